"""The kernel writes what numpy writes and no stray byte, for all strides, sizes and processors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xlayout_native
from tests.native.oracle import Buffer, Loops, Move, same

ITEMSIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 64, 100)
SIZES = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 65, 130))
LARGEST = 1 << 16

every_kernel = pytest.mark.usefixtures("isa", "thresholds")
# A fixture that forces kernels keeps its value for all examples of a test, as intended.
examples = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])


def strides_of(
    shape: list[int], order: list[int], gaps: list[tuple[int, int]], flips: list[bool]
) -> list[int]:
    """Strides that give each position its own address: axes nested in some order, with gaps."""
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = -step if flips[axis] else step
        times, more = gaps[axis]
        step = step * shape[axis] * times + more
    return strides


@st.composite
def copies(draw: st.DrawFn) -> Loops:
    """Loops in any order: outputs are distinct, inputs may repeat, overlap and reverse."""
    shape = draw(st.lists(SIZES, max_size=5))
    while math.prod(shape) > LARGEST:
        shape.remove(max(shape))
    axes = range(len(shape))
    each = {"min_size": len(shape), "max_size": len(shape)}
    gap = st.sampled_from(((1, 0), (1, 0), (1, 0), (2, 0), (1, 1), (1, 3)))
    flip = st.sampled_from((False, False, False, True))
    inputs, outputs = (
        strides_of(
            shape,
            draw(st.permutations(axes)),
            draw(st.lists(gap, **each)),
            draw(st.lists(flip, **each)),
        )
        for _ in range(2)
    )
    odd = st.sampled_from((None, None, None, 0, 1, 3, -2))
    inputs = [x if (y := draw(odd)) is None else y for x in inputs]
    return tuple(zip(shape, inputs, outputs, strict=True))


def span(loops: Loops, column: int) -> tuple[int, int]:
    """(elements before the start, elements in all) that loops reach on one side."""
    reach = [(loop[0] - 1) * loop[column] for loop in loops]
    before = -sum(r for r in reach if r < 0)
    return before, before + sum(r for r in reach if r > 0) + 1


def agree(loops: Loops, itemsize: int, shift: int, threads: int) -> None:
    """Check the loops as a copy between two arrays; `shift` says where both begin."""
    before, count = span(loops, 1)
    after, size = span(loops, 2)
    moves: list[Move] = [(0, 0, (before, after, loops))]
    source = Buffer(count * itemsize, shift=shift % 64, fill=np.random.default_rng(7))
    same(moves, itemsize, [source], [Buffer(size * itemsize, shift=shift // 64)], threads=threads)


@every_kernel
@examples
@given(copies(), st.sampled_from(ITEMSIZES), st.integers(0, 4095), st.integers(1, 2))
def test_any_strided_copy(loops: Loops, itemsize: int, shift: int, threads: int) -> None:
    agree(loops, itemsize, shift, threads)


def permuted(shape: tuple[int, ...], axes: tuple[int, ...]) -> Loops:
    """The loops of a transposition of a row-major array."""
    inputs = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
    after = [shape[a] for a in axes]
    outputs = [math.prod(after[k + 1 :]) for k in range(len(shape))]
    return tuple((shape[a], inputs[a], z) for a, z in zip(axes, outputs, strict=True))


# name -> (shape, axes): every kernel in the C file, on several tiles, with edges.
LARGE = {
    "one run": ((1_000_001,), (0,)),
    "row blocks": ((2, 37, 3001), (1, 0, 2)),
    "blocks of lines": ((64, 48, 192), (1, 0, 2)),
    "zip": ((2, 300_001), (1, 0)),
    "zip 4": ((4, 100_003), (1, 0)),
    "zip 8 rows": ((40, 8, 1003), (0, 2, 1)),
    "unzip": ((300_001, 2), (1, 0)),
    "unzip 4": ((100_003, 4), (1, 0)),
    "unzip 8 rows": ((40, 1003, 8), (0, 2, 1)),
    "three ways": ((3, 100_003), (1, 0)),
    "short rope": ((9001, 2, 16), (0, 2, 1)),
    "transpose": ((1024, 768), (1, 0)),
    "transpose odd": ((1009, 769), (1, 0)),
    "transpose tall": ((20_011, 36), (1, 0)),
    "transpose wide": ((36, 20_011), (1, 0)),
    "transpose batch": ((11, 257, 259), (0, 2, 1)),
    "transpose high": ((2112, 320), (1, 0)),
    "transpose high, odd": ((2113, 301), (1, 0)),
    "transpose narrow": ((5, 9000, 7), (0, 2, 1)),
    "zip of pairs": ((301, 2, 640, 2), (0, 2, 1, 3)),
    "unzip of pairs": ((301, 640, 2, 2), (0, 2, 1, 3)),
    "pages in turn": ((3, 40, 2, 5000), (0, 2, 1, 3)),
    "four axes": ((13, 50, 20, 33), (2, 0, 3, 1)),
}


@every_kernel
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", LARGE)
def test_several_tiles(name: str, itemsize: int) -> None:
    shape, axes = LARGE[name]
    agree(permuted(shape, axes), itemsize, 0, threads=2)
    agree(permuted(shape, axes), itemsize, 3 + 64 * 9, threads=2)


@every_kernel
@pytest.mark.parametrize("gap", [0, 1, 3])
@pytest.mark.parametrize("kept", [2, 4, 8, 16])
def test_bytes_that_stay_together_in_rows_that_begin_within_them(kept: int, gap: int) -> None:
    rows, columns = 4099, 37
    turned = (columns, kept, rows * kept + gap), (rows, columns * kept, kept), (kept, 1, 1)
    agree(turned, 1, 0, threads=2)
    agree(turned, 1, 64 * 9, threads=2)


@every_kernel
@pytest.mark.parametrize("rows", [577, 640])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
def test_rows_that_crowd_each_other_out_of_the_cache(itemsize: int, rows: int) -> None:
    loops = permuted((rows, 4096 // itemsize), (1, 0))
    agree(loops, itemsize, 0, threads=2)
    agree(loops, itemsize, 64 * 16, threads=2)


@every_kernel
@pytest.mark.parametrize("columns", [64, 83])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
def test_rows_of_both_sides_that_crowd_each_other_out(itemsize: int, columns: int) -> None:
    page = 4096 // itemsize
    agree(((columns, 1, page), (page, page, 1)), itemsize, 0, threads=2)


@every_kernel
def test_several_arrays_in_and_out() -> None:
    moves: list[Move] = [
        (j, k, (100 * k, 50 * j, ((2, 10, 25), (5, 1, 5))))
        for j, k in itertools.product(range(3), range(20))
    ]
    sources = [Buffer(8 * 2100, fill=np.random.default_rng(j)) for j in range(3)]
    same(moves, 8, sources, [Buffer(8 * 150) for _ in range(20)])


@every_kernel
@pytest.mark.parametrize("loops", [((0, 1, 1),), ((5, 1, 1), (0, 9, 9))])
def test_nothing_to_copy_touches_nothing(loops: Loops) -> None:
    target = Buffer(64)
    plan = xlayout_native.prepare([(0, 0, (0, 0, loops))], 4, 1, 1)
    xlayout_native.run(plan, 2, 0, target.address)
    xlayout_native.run(xlayout_native.prepare([], 4, 1, 1), 2, 0, target.address)
    assert (target.memory == 0xA5).all()


# case -> (moves, itemsize, inputs, outputs, the text of the refusal)
REFUSED = {
    "a negative count": ([(0, 0, (0, 0, ((-1, 1, 1),)))], 4, 1, 1, "wanted n >= 0"),
    "a repeated output": ([(0, 0, (0, 0, ((2, 1, 0),)))], 4, 1, 1, "out stride other than 0"),
    "a missing input": ([(1, 0, (0, 0, ()))], 4, 1, 1, "from input 1 to output 0; there are 1"),
    "a missing output": ([(0, -1, (0, 0, ()))], 4, 1, 1, "to output -1; there are 1 and 1"),
    "too many loops": ([(0, 0, (0, 0, ((2, 1, 1),) * 16))], 4, 1, 1, "16 of them; wanted at most"),
    "no item": ([], 0, 1, 1, "itemsize: 0; wanted 1 to"),
    "a large item": ([], 1 << 21, 1, 1, "itemsize: 2097152; wanted 1 to"),
    "no arrays": ([], 1, -1, 1, "inputs, outputs: -1, 1; wanted"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_plan_refuses(what: str) -> None:
    *arguments, text = REFUSED[what]
    with pytest.raises(ValueError, match=text):
        xlayout_native.prepare(*arguments)


FAR = 1 << 61


@pytest.mark.parametrize(
    "move",
    [
        (0, 0, (FAR, 0, ())),
        (0, 0, (0, -FAR, ())),
        (0, 0, (1 << 80, 0, ())),
        (0, 0, (1 << 58, 0, ())),  # in bytes
        (0, 0, (-(1 << 60), 0, ((1 << 30, 1, 1),))),
        (0, 0, (0, 0, ((1, -(1 << 60), 1), (1 << 19, 1 << 23, 1)))),
        (0, 0, (0, 0, ((1 << 40, 1 << 40, 1),))),
        (0, 0, (0, 0, ((1 << 31, 0, 1), (1 << 31, 0, 1 << 31)))),
        (0, 0, (0, 0, ((1 << 30, 1, 1 << 30), (1 << 30, 1 << 30, 1)))),
    ],
)
def test_a_plan_refuses_numbers_that_would_overflow(move: Move) -> None:
    with pytest.raises(OverflowError, match=r"wanted less than 2\*\*61 bytes|too large|too big"):
        xlayout_native.prepare([move], 8, 1, 1)


@pytest.mark.parametrize(
    ("move", "text"),
    [
        ([0, 0, (0, 0, ())], r"move: \[0, 0, .*\]; wanted a tuple"),
        ((0, 0, [0, 0, ()]), "a move is .input, output, .from, to, loops.."),
        ((0, 0, (0, 0, [])), "a copy is .from, to, loops."),
        ((0, 0, (0, 0, ([1, 1, 1],))), r"loop: \[1, 1, 1\]; wanted a tuple"),
        ((0, 0, (0, 0)), "a copy is .from, to, loops."),
        ((0, 0), "a move is .input, output, .from, to, loops.."),
    ],
)
def test_a_plan_refuses_what_is_no_tuple(move: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        xlayout_native.prepare([move], 4, 1, 1)


def test_a_run_refuses_another_number_of_addresses() -> None:
    plan = xlayout_native.prepare([], 4, 1, 2)
    with pytest.raises(TypeError, match="4 arguments; wanted the plan, threads, 1 \\+ 2 addresses"):
        xlayout_native.run(plan, 1, 0, 0)


def test_a_run_refuses_what_is_no_plan() -> None:
    with pytest.raises(ValueError, match="PyCapsule"):
        xlayout_native.run(b"plan", 1, 0, 0)  # type: ignore[arg-type]


def test_an_unknown_isa_is_refused() -> None:
    with pytest.raises(ValueError, match="isa: 'mmx'; this machine has no such kernel"):
        xlayout_native.set_isa("mmx")


def test_an_address_is_that_of_the_first_element() -> None:
    x = np.arange(24, dtype=np.int16).reshape(4, 6)
    x.flags.writeable = False
    dates, pairs = np.zeros(3, "M8[s]"), np.zeros(3, [("a", "i2"), ("b", "u1")])
    for y in (x, x[::-1], x.T[2:, ::-2], dates[1:], pairs["b"], np.zeros(3, ml_dtypes.bfloat16)):
        assert xlayout_native.address(y) == y.ctypes.data
    with pytest.raises(TypeError, match="bytes-like object"):
        xlayout_native.address([1, 2])
