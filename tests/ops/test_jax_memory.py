"""Where a result in JAX lies is left as open as it was, and nothing is moved to find that out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import xlayout as xl
from tests.ops.memory import shares


def flat(x: Any) -> Any:
    return xl.rearrange(x, "a b -> (a b)", copy=None)


def twice(x: Any) -> Any:
    return xl.stack([x, x])


def test_a_view_is_bound_to_a_device_only_if_its_array_is() -> None:
    third = jax.devices()[3]
    with jax.default_device(third):
        free = jnp.arange(24.0).reshape(4, 6)
    bound = jax.device_put(free, third)
    for x in (free, bound):
        made = flat(x)
        assert shares(x, made)
        assert (made.committed, made.device) == (x.committed, third)
    assert (flat(free) + jax.device_put(jnp.ones(24), jax.devices()[0])).sum() == 300


def test_a_weak_type_stays_weak_where_a_view_would_have_lost_it() -> None:
    weak = jnp.broadcast_to(jnp.asarray(2.0), (4, 6))
    made = flat(weak)
    assert made.weak_type
    assert (made * jnp.ones(24, jnp.bfloat16)).dtype == jnp.bfloat16
    assert xl.permute_dims(weak, (0, 1), copy=False) is weak


def test_no_guard_sees_a_transfer() -> None:
    x, given = jnp.arange(24.0).reshape(4, 6), jnp.arange(24.0).reshape(4, 6)
    moved = xl.matrix_transpose(x)
    with jax.transfer_guard("disallow"):
        made = flat(x)
        turned = xl.matrix_transpose(given, donate=True)
    assert shares(x, made)
    assert given.is_deleted()
    assert turned.tolist() == moved.tolist()


def test_what_only_stands_for_an_array_is_refused_with_the_way_out() -> None:
    shape = jax.ShapeDtypeStruct((4,), jnp.float32)
    for x, said in (
        (jax.new_ref(jnp.ones(4)), r"Ref; wanted a jax.Array; .*, x\[\.\.\.\]"),
        (shape, r"ShapeDtypeStruct; wanted a jax.Array; .* jax.eval_shape\(op, x\)"),
    ):
        for name, run in (("x", xl.interleave), (r"arrays\[0\]", xl.interleave.layout((4,)))):
            with pytest.raises(TypeError, match=f"^{name}: {said}"):
                run(x)


def test_without_jit_no_result_is_an_input() -> None:
    x, y = jnp.arange(3.0), jnp.arange(2.0)
    with jax.disable_jit():
        made = (*xl.rearrange([x, y], "a, b -> b, a"), xl.permute_dims(x, (0,)))
        assert not any(a is b or shares(a, b) for a in made for b in (x, y))


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("x", xl.matrix_transpose),
        (r"arrays\[0\]", xl.Layout.permute((8, 4), (1, 0))),
        (r"xs\[0\]", twice),
    ],
)
def test_what_was_donated_elsewhere_is_refused_by_calls_that_are_kept_too(
    name: str, op: Any
) -> None:
    x = jnp.ones((8, 4))
    jax.block_until_ready(op(x))
    jax.jit(jnp.negative, donate_argnums=0)(x)
    for _ in range(2):
        text = rf"^{name}: jax.Array .* was deleted or donated; .* a copy"
        with pytest.raises(ValueError, match=text):
            op(x)
