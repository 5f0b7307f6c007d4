"""In place, the kernel leaves what it would leave in a fresh buffer, or touches nothing at all."""

from __future__ import annotations

import numpy as np
import pytest

import xlayout as xl
import xlayout_native
from tests.native.oracle import Buffer, Loops, Move, expect
from xlayout.lower.moves import moves_of

pytestmark = pytest.mark.usefixtures("isa", "thresholds")


def in_place(moves: list[Move], itemsize: int, count: int, *, shift: int = 0) -> bool:
    """Whether the kernel permuted `count` items in place: either as numpy does, or not at all."""
    rng = np.random.default_rng(count)
    buffer = Buffer(count * itemsize, shift=shift, fill=rng)
    before = buffer.bytes.copy()
    source, wanted = Buffer(count * itemsize), Buffer(count * itemsize)
    source.bytes[:] = before
    wanted.bytes[:] = before
    plan = xlayout_native.prepare(moves, itemsize, 1, 1)
    done = xlayout_native.run_in_place(plan, 2, buffer.address)
    if done:
        expect(moves, itemsize, [source], [wanted])
    assert buffer.bytes.tobytes() == wanted.bytes.tobytes()
    assert buffer.intact()
    return done


def square(n: int, pitch: int, batch: int = 1) -> Loops:
    """Transpose `batch` squares whose rows are `pitch` apart."""
    return ((batch, n * pitch, n * pitch), (n, 1, pitch), (n, pitch, 1))


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("n", [2, 8, 9, 16, 64, 65, 130, 200])
@pytest.mark.parametrize("shift", [0, 3])
def test_squares(itemsize: int, n: int, shift: int) -> None:
    assert in_place([(0, 0, (0, 0, square(n, n)))], itemsize, n * n, shift=shift)
    assert in_place(
        [(0, 0, (5, 5, square(n, n + 3, 3)))], itemsize, 3 * n * (n + 3) + 5, shift=shift
    )


LAYOUTS = {
    "interleave": xl.interleave.layout((10, 300)),
    "interleave of an odd number": xl.interleave.layout((2 * 37, 200)),
    "deinterleave, 3 groups": xl.deinterleave.layout((48, 129), groups=3, block=2),
    "regroup": xl.regroup.layout((24, 160), sizes=(12, 8, 4), groups=4),
    "rope": xl.rope_halves.layout((48, 512), heads=3),
    "fuse": xl.fuse_qkv.layout((8, 256), (4, 256), (4, 256), heads=8, kv_heads=4),
    "large blocks": xl.interleave.layout((4, 60_001)),
    "identity": xl.Layout.identity((100, 200)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_blocks(name: str) -> None:
    layout = LAYOUTS[name]
    if len(layout.in_shapes) > 1:  # its parts are adjacent
        layout = xl.Layout(((layout.in_size,),), layout.out_shapes, layout.pieces)
    assert in_place(list(moves_of(layout)), 4, layout.out_size)


@pytest.mark.parametrize(
    ("loops", "itemsize"),
    [
        (((2, 1, 500), (500, 2, 1)), 4),  # single elements
        (((70, 1, 60), (60, 70, 1)), 4),  # not a square
        (((2, 0, 512), (512, 1, 1)), 4),  # the first half twice
        (((8, 1, 8), (8, 8, 1)), 24),  # a square of items whose size is not a power of two
    ],
)
def test_what_has_no_form_is_left_alone(loops: Loops, itemsize: int) -> None:
    count = int(np.prod([n for n, _, _ in loops]))
    assert not in_place([(0, 0, (0, 0, loops))], itemsize, count)


def test_blocks_that_leave_the_buffer_or_meet_are_left_alone() -> None:
    rows = ((256, 1, 1),)
    swap: list[Move] = [(0, 0, (0, 256, rows)), (0, 0, (256, 0, rows))]
    assert in_place(swap, 4, 512)
    assert not in_place([(0, 0, (0, 256, rows)), (0, 0, (512, 0, rows))], 4, 1024)
    assert not in_place([(0, 0, (0, 256, rows)), (0, 0, (256, 256, rows))], 4, 512)
    assert not in_place([(0, 0, (0, 1024, rows)), (0, 0, (1024, 0, rows))], 4, 2048)


def test_an_address_that_no_pointer_holds_is_refused() -> None:
    plan = xlayout_native.prepare([(0, 0, (0, 0, ((64, 1, 64), (64, 64, 1))))], 4, 1, 1)
    buffer = np.zeros((64, 64), np.int32)
    far = (1 << 64) + buffer.ctypes.data
    for call in (
        lambda: xlayout_native.run_in_place(plan, 1, far),
        lambda: xlayout_native.huge_pages(far, 1 << 22),
    ):
        with pytest.raises(OverflowError, match="too large"):
            call()


def test_several_buffers_have_no_form() -> None:
    plan = xlayout_native.prepare([], 4, 2, 1)
    assert not xlayout_native.run_in_place(plan, 1, 0)
