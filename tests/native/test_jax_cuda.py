"""On CUDA a layout that is a program of its own calls the Triton kernel, if its gates are open."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import pytest
from jax import export
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
from tests.native.zipped import zipped
from xlayout_jax import cuda, launches, native, primitive

SHAPE = (8192, 4096)
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that has passed its trials; what Triton compiles for it is not checked."""
    monkeypatch.setattr(cuda, "why_not", lambda: "")
    monkeypatch.setattr(cuda, "is_wrong", lambda *_kind: False)
    monkeypatch.setattr(launches, "described", lambda *_: "a kernel")


def halves(shape: tuple[int, ...] = SHAPE, dtype: str = "bfloat16") -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def lowered(function: Function, *arrays: Any, platforms: tuple[str, ...] = ("cuda",)) -> str:
    """The program of the function alone, before XLA compiles it."""
    whole = jax.jit(primitive.alone(lambda *xs: function(*xs)))
    text: str = whole.trace(*arrays).lower(lowering_platforms=platforms).as_text()
    return text


def calls(text: str) -> int:
    return text.count(f"@{launches.TARGET}(")


# -- when ------------------------------------------------------------------------------------------


def off(function: Function) -> str:
    traced = jax.jit(primitive.alone(function)).trace(halves())
    with xl.native(False):
        text: str = traced.lower(lowering_platforms=("cuda",)).as_text()
    return text


def elsewhere(function: Function) -> str:
    return lowered(function, halves(), platforms=("cuda", "tpu"))


def exported(function: Function) -> str:
    whole = jax.jit(primitive.alone(function))
    try:
        return str(export.export(whole, platforms=["cuda"])(halves()).mlir_module())
    except ValueError as error:  # the call went too far
        return str(error).replace(launches.TARGET, f"@{launches.TARGET}(")


def spread(function: Function) -> str:
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    there = NamedSharding(mesh, P("d"))
    return lowered(function, jax.ShapeDtypeStruct(SHAPE, "bfloat16", sharding=there))


def small(function: Function) -> str:
    return lowered(function, halves((1024, 4096)))


def many(_function: Function) -> str:
    return lowered(lambda *xs: xl.stack(xs), *[halves((1024, 1024))] * cuda.MOST)


def partial_(_function: Function) -> str:
    return lowered(lambda x: xl.trim(x, axis=1, to=4095), halves())


def by_xla(_function: Function) -> str:
    return lowered(xl.interleave, halves(dtype="float32"))


def refused(function: Function) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "why_not", lambda: "a trial came out wrong")
        return lowered(function, halves())


SITUATIONS: dict[str, Callable[[Function], str]] = {
    "off": off,
    "elsewhere": elsewhere,
    "exported": exported,
    "spread": spread,
    "small": small,
    "many": many,
    "partial": partial_,
    "by XLA": by_xla,
    "refused": refused,
}


def test_every_gate_has_a_situation() -> None:
    assert SITUATIONS.keys() == cuda.GATES.keys()


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_gate_keeps_the_kernel_away(name: str) -> None:
    assert calls(SITUATIONS[name](zipped)) == 0


@pytest.mark.parametrize("name", SITUATIONS)
def test_and_no_other_gate_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(cuda.GATES, name)
    assert calls(SITUATIONS[name](zipped)) == 1


@pytest.mark.parametrize(
    ("function", "arrays"),
    [
        (lambda *xs: xl.stack(xs), [halves((1024, 1024), "float32")] * 9),
        (xl.matrix_transpose, [halves((4099, 8191), "float32")]),
        (xl.matrix_transpose, [halves((8192, 4099), "float32")]),
        (xl.matrix_transpose, [halves((8192, 8192), "int8")]),
        (xl.matrix_transpose, [halves((4096, 8192), "float32")]),
    ],
    ids=["many arrays", "odd rows", "odd rows on one side", "bytes", "columns"],
)
def test_what_xla_is_slower_at(function: Function, arrays: list[Any]) -> None:
    assert calls(lowered(function, *arrays)) == 1


@pytest.mark.parametrize(
    ("function", "arrays", "called"),
    [
        (zipped, [halves((4096, 4096))], 1),
        (zipped, [halves((4094, 4096))], 0),
        (lambda *xs: xl.stack(xs), [halves((1024, 2048), "float32")] * cuda.FEW, 0),
        (lambda *xs: xl.stack(xs), [halves((1024, 1024))] * (cuda.MOST - 1), 1),
        (lambda x: xl.pad(x, axis=1, to=4099), [halves()], 0),
        (xl.trim.layout(SHAPE, to=8191) >> xl.pad.layout((8191, 4096), to=8192), [halves()], 0),
    ],
    ids=["32 MB", "less", "not many arrays", "as many as have room", "padded", "cut and padded"],
)
def test_gates_close_where_they_say(function: Function, arrays: list[Any], called: int) -> None:
    assert calls(lowered(function, *arrays)) == called


def test_one_odd_segment_of_several_is_enough() -> None:
    sizes = 8, 16, 18, 6  # halves of which are 4, 8, 9 and 3
    odd = partial(xl.regroup, sizes=sizes, groups=2, axis=1)
    assert calls(lowered(odd, halves((1 << 20, 48), "float32"))) == 4


def test_a_program_that_does_more_is_left_to_xla() -> None:
    text = jax.jit(zipped).trace(halves()).lower(lowering_platforms=("cuda",)).as_text()
    assert calls(text) == 0


def test_ops_on_arrays_and_their_derivatives_are_programs_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(native, "called", lambda *_: None)
    monkeypatch.setattr(
        cuda, "called", lambda _context, _operands, _orders, moves: seen.append(moves)
    )
    x = jax.numpy.zeros((331, 512))
    zipped(x)
    assert len(seen) == 1
    jax.vjp(zipped, x)[1](x)
    assert len(seen) == 3
    jax.jit(lambda x: zipped(x) + 1)(x)
    assert len(seen) == 3


def test_what_has_too_many_axes_is_left_to_xla() -> None:
    names = "abcdefghijkl"
    layout = xl.Layout.parse(f"{' '.join(names)} -> {' '.join(names[::-1])}", (4,) * 12)
    assert calls(lowered(layout, halves((4,) * 12))) == 0


def test_nothing_is_planned_for_another_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "numbered", None)  # must not be called
    lowered(zipped, halves(), platforms=("cpu",))


def test_for_several_platforms_there_are_plain_ops() -> None:
    whole = jax.jit(primitive.alone(zipped))
    text = whole.trace(halves()).lower(lowering_platforms=("cuda", "cpu", "tpu")).as_text()
    assert "custom_call" not in text


# -- what ------------------------------------------------------------------------------------------


def test_the_launches_after_the_first_write_on() -> None:
    def function(x: Any) -> Any:
        return xl.regroup(x, sizes=(8, 16, 24), groups=2, axis=1)

    text = lowered(function, halves((1 << 20, 48)))
    assert calls(text) == 3
    table, given, *before = [line for line in text.splitlines() if "output_operand_alias" in line]
    assert not before
    for line in (table, given):
        assert "operand_tuple_indices = []" in line
        assert "operand_index = 3" in line


def test_a_kernel_has_as_many_arrays_as_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the table and the ends; the results so far are among what it reads."""
    asked: list[tuple[int, int]] = []

    def described(_launch: Any, inputs: int, outputs: int, _capability: int) -> bytes:
        asked.append((inputs, outputs))
        return b""

    monkeypatch.setattr(launches, "described", described)
    lowered(lambda x: xl.regroup(x, sizes=(8, 16, 24), groups=2, axis=1), halves((1 << 20, 48)))
    lowered(lambda *xs: xl.stack(xs), *[halves((8192, 4096), "int8")] * 3)
    assert asked == [(1, 1), (2, 1), (2, 1), (3, 1)]


def test_arrays_are_found_by_number_in_what_stays_a_constant() -> None:
    """XLA would compute numbers that are all alike, here without the last, in one more kernel."""
    text = lowered(zipped, halves((16384, 4096), "int8"))
    assert "dense<[0, 0, -1]>" in text
    text = lowered(lambda *xs: xl.stack(xs), *[halves((8192, 4096), "int8")] * 3)
    assert "dense<[0, 0, 1, 0, 2, 0, -1]>" in text


def test_an_argument_is_read_as_it_lies() -> None:
    from jax.experimental.layout import Format, Layout

    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    whole = jax.jit(
        primitive.alone(xl.matrix_transpose), in_shardings=Format(Layout((1, 0)), place)
    )
    text = whole.trace(halves()).lower(lowering_platforms=("cuda",)).as_text()
    lists = "dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>"  # the table and the ends
    assert f"operand_layouts = [{lists}, dense<[0, 1]>" in text
    assert calls(text) == 1


def test_plans_count_their_arrays() -> None:
    moves = tuple((k, 1 - k, (0, 0, ((64, 1, 1),))) for k in range(2))
    made = launches.numbered(moves, 4, 2, 2)
    assert made is not None
    assert made.places == ((0, 3), (1, 2))  # the inputs, and then the outputs
    loops = tuple((3, 3**k * 5, 7 * 3 ** (8 - k)) for k in range(9))
    assert launches.numbered(((0, 0, (0, 0, loops)),), 4, 1, 1) is None
