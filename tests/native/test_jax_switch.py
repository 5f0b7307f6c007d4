"""The switch: what is compiled without the kernel is kept apart from what is compiled with it."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import xlayout as xl
from tests.house.tree import printed
from tests.native.zipped import called, compiled, values, zipped
from xlayout_jax import native


def test_the_switch_is_part_of_what_jit_remembers() -> None:
    function = jax.jit(zipped)
    seen = []
    for on in (True, False, True, False):
        with xl.native(on):
            seen.append(called(function.lower(values()).as_text()))
            assert np.array_equal(function(values()), zipped(values()))
    assert seen == [True, False, True, False]


def test_the_switch_nests_and_ends_with_an_error() -> None:
    def inside() -> None:
        with xl.native(False):
            with xl.native(True):
                assert called(compiled(zipped, values()))
            assert not called(compiled(zipped, values()))
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        inside()
    assert called(compiled(zipped, values()))


def test_the_switch_takes_true_and_false() -> None:
    with pytest.raises(TypeError, match=r"^on: 1; wanted True or False$"):
        xl.native(1)


def test_a_cotangent_is_asked_for_the_switch_again() -> None:
    _, pullback = jax.vjp(zipped, values())
    made = []
    with pytest.MonkeyPatch.context() as patch:
        numbers = native._numbers
        patch.setattr(native, "_numbers", lambda moves: made.append(moves) or numbers(moves))
        with xl.native(False):
            (moved,) = pullback(values())
    assert made == []
    assert np.array_equal(zipped(moved), values())


EARLY = """
import jax, jax.numpy as jnp, xlayout as xl
f = jax.jit(lambda x: xl.interleave(x, axis=1))
x = jnp.zeros((256, 384))
with xl.native(False):
    xl.matrix_transpose(x)
    print("xlayout_copy" in f.lower(x).as_text())
print("xlayout_copy" in f.lower(x).as_text())
"""


def test_the_first_use_may_be_under_the_switch() -> None:
    assert printed(EARLY) == "False\nTrue"


LATE = """
import sys, xlayout as xl
with xl.native(sys.argv[1] == "on"):
    import jax, jax.numpy as jnp
    f = jax.jit(lambda x: xl.interleave(x, axis=1))
    x = jnp.arange(256.0 * 384).reshape(256, 384)
    assert (f(x) == x.reshape(256, 2, 192).swapaxes(1, 2).reshape(x.shape)).all()
    print("xlayout_copy" in f.lower(x).as_text())
"""


@pytest.mark.parametrize(
    ("switch", "variable", "there"),
    [("on", "auto", True), ("off", "auto", False), ("on", "off", False)],
    ids=["on", "off", "absent"],
)
def test_in_a_program_that_imports_jax_last(switch: str, variable: str, there: bool) -> None:
    assert printed(LATE, switch, XLAYOUT_NATIVE=variable) == f"{there}"


OFTEN = """
import jax, jax.numpy as jnp, xlayout as xl
import jax.extend.core  # from JAX 0.12 on, its first import has everything traced again
traced = []
before = jax.jit(lambda x: traced.append("before") or x + 1)
step = jax.jit(lambda x: traced.append("step") or xl.interleave(x, axis=1))
x = jnp.zeros((256, 384))
for _ in range(3):
    before(x), step(x), xl.interleave(x)
print(*traced)
with xl.native(False):
    before(x), step(x)
print(*traced)
"""


def test_without_the_switch_nothing_is_traced_again() -> None:
    assert printed(OFTEN) == "before step\nbefore step before step"
