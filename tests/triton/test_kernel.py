"""The Triton kernel writes what numpy writes and no stray byte, wherever it runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import strategies
from tests.native.oracle import CANARY, Buffer, Loops, Move, expect, fenced
from tests.native.test_copy import copies, permuted
from tests.triton.cases import (
    EDGES,
    FAMILIES,
    ITEMSIZES,
    NARROW_EDGES,
    compounds,
    prepared,
    several,
)
from tests.triton.conftest import INTERPRETED
from xlayout.algebra import Layout
from xlayout_torch import cuda
from xlayout_triton import plan
from xlayout_triton.tile import OUTER, TILE

# A tile takes the interpreter some ten milliseconds, and a GPU's compiler half a second.
examples = settings(
    max_examples=60 if INTERPRETED else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
SMALL_LOOPS = copies().filter(lambda loops: np.prod([n for n, _, _ in loops]) <= 1 << 13)


MARGIN = 1 << 15
"""Bytes around a buffer on the device, which are a tile's if it reaches too far."""


def held(buffer: Buffer, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The buffer's memory on the device, at the same place within a line, and all around it."""
    size = buffer.memory.size
    room = torch.full((size + 2 * MARGIN,), CANARY, dtype=torch.uint8, device=device)
    first = MARGIN // 2 + (buffer.memory.ctypes.data - room.data_ptr() - MARGIN // 2) % 64
    there = room[first : first + size]
    return there.copy_(torch.from_numpy(buffer.memory)), room


def run(
    moves: list[Move], itemsize: int, sources: list[Buffer], targets: list[Buffer], device: str
) -> bool:
    """Whether the kernel made the moves, between copies of the buffers on the device."""
    there = [held(b, device) for b in (*sources, *targets)]
    begins = [
        t.data_ptr() + b.address - b.memory.ctypes.data
        for (t, _), b in zip(there, (*sources, *targets), strict=True)
    ]
    inputs = len(sources)
    if not cuda.copy(
        tuple(moves), itemsize, begins[:inputs], begins[inputs:], torch.device(device)
    ):
        return False
    for target, (t, room) in zip(targets, there[inputs:], strict=True):
        target.memory[:] = t.cpu().numpy()
        t.fill_(CANARY)
        assert bool((room == CANARY).all())
    return True


def agree(loops: Loops, itemsize: int, shift: int, device: str) -> None:
    """The kernel leaves the bytes that numpy leaves, in and around the target."""
    move, source, made, wanted = prepared(loops, itemsize, shift)
    expect([move], itemsize, [source], [wanted])
    if not run([move], itemsize, [source], [made], device):
        assert len(loops) > OUTER
        return
    assert made.bytes.tobytes() == wanted.bytes.tobytes()
    assert made.intact()


@examples
@given(loops=SMALL_LOOPS, itemsize=st.sampled_from(ITEMSIZES), shift=st.integers(0, 4095))
def test_any_strided_copy(loops: Loops, itemsize: int, shift: int, device: str) -> None:
    agree(loops, itemsize, shift, device)


@examples
@given(loops=compounds(1 << 14), itemsize=st.sampled_from(ITEMSIZES), shift=st.integers(0, 4095))
def test_any_transpose_of_short_loops(loops: Loops, itemsize: int, shift: int, device: str) -> None:
    agree(loops, itemsize, shift, device)


@pytest.mark.parametrize("itemsize", [2] if INTERPRETED else ITEMSIZES)
@pytest.mark.parametrize("name", FAMILIES)
def test_each_family(name: str, itemsize: int, device: str) -> None:
    agree(FAMILIES[name], itemsize, 0, device)


@pytest.mark.parametrize("itemsize", [1, 4, 8, 16])
@pytest.mark.parametrize(
    "name",
    ["zip rows", "transpose odd", "transpose odd rows", "odd rows", "channels", "channels last"],
)
def test_each_width(name: str, itemsize: int, device: str) -> None:
    agree(FAMILIES[name], itemsize, 3 + 64 * 9, device)


@pytest.mark.parametrize(("shape", "itemsize"), EDGES + NARROW_EDGES)
def test_transposes_that_end_where_tiles_do(
    shape: tuple[int, int], itemsize: int, device: str
) -> None:
    agree(permuted(shape, (1, 0)), itemsize, 1 + 64 * 7, device)
    if min(shape) < 8:
        for shift in (0, 7 + 64):
            agree(permuted(shape[::-1], (1, 0)), itemsize, shift, device)


@pytest.mark.skipif(not INTERPRETED, reason="a GPU's memory has no such fences")
@pytest.mark.parametrize("at_the_end", [False, True])
@pytest.mark.parametrize("itemsize", [1, 2])
@pytest.mark.parametrize(
    "shape", [(300, 129), (257, 300), (529, 3), (3, 529), (300, 7), (7, 300), (301, 2), (2, 301)]
)
def test_nothing_is_read_or_written_beyond_a_word_of_a_matrix(
    shape: tuple[int, int], itemsize: int, at_the_end: bool
) -> None:
    """Or the process would end, because the memory next to it may not be accessed."""
    source, target = (fenced(shape[0] * shape[1] * itemsize, at_the_end=at_the_end) for _ in "xy")
    source[:] = np.random.default_rng(3).integers(0, 256, source.size, np.uint8)
    moves = ((0, 0, (0, 0, permuted(shape, (1, 0)))),)
    addresses = [source.ctypes.data], [target.ctypes.data]
    assert cuda.copy(moves, itemsize, *addresses, torch.device("cpu"))
    made, wanted = target.reshape(*shape[::-1], itemsize), source.reshape(*shape, itemsize)
    assert np.array_equal(made, wanted.swapaxes(0, 1))


@examples
@given(layout=strategies.several(), itemsize=st.sampled_from(ITEMSIZES))
def test_any_layout_by_its_table(layout: Layout, itemsize: int, device: str) -> None:
    ends = [np.cumsum([0, *map(np.prod, s)]) for s in (layout.in_shapes, layout.out_shapes)]
    moves = [
        (j, k, (piece.in_offset, piece.out_offset, piece.loops))
        for j, first, last in zip(range(9), ends[0], ends[0][1:], strict=False)
        for k, to, until in zip(range(9), ends[1], ends[1][1:], strict=False)
        for piece in layout.between((int(first), int(last)), (int(to), int(until)))
    ]
    rng = np.random.default_rng(1)
    sources = [Buffer(int(n) * itemsize, fill=rng) for n in np.diff(ends[0])]
    targets = [Buffer(int(n) * itemsize) for n in np.diff(ends[1])]
    blank = b"".join(t.bytes.tobytes() for t in targets)
    if not run(moves, itemsize, sources, targets, device):
        return
    flat = np.concatenate([s.bytes for s in sources]).reshape(-1, itemsize)
    wanted = np.frombuffer(blank, np.uint8).reshape(-1, itemsize).copy()
    table = layout.index()
    wanted[table >= 0] = flat[table[table >= 0]]
    assert b"".join(t.bytes.tobytes() for t in targets) == wanted.tobytes()
    assert all(t.intact() for t in targets)


@pytest.mark.parametrize("itemsize", [1, 8])
def test_positions_beyond_31_bits(itemsize: int, device: str) -> None:
    far, n = (1 << 31) + 16, 40 * itemsize  # bytes; memory that nobody touches costs nothing
    source = torch.empty(2 * far + n, dtype=torch.uint8, device=device)
    target = torch.empty(far + 4 * n, dtype=torch.uint8, device=device)
    blocks = torch.from_numpy(np.random.default_rng(2).integers(0, 256, (3, n), np.uint8))
    for k, block in enumerate(blocks):
        source[k * far : k * far + n] = block
    target[far - n :] = 7
    moves = ((0, 0, (0, far // itemsize, ((40, 1, 3), (3, far // itemsize, 1)))),)
    addresses = [source.data_ptr()], [target.data_ptr()]
    assert cuda.copy(moves, itemsize, *addresses, torch.device(device))
    before, made, after = target[far - n :].cpu().split([n, 3 * n, n])
    assert torch.equal(made.view(40, 3, -1), blocks.view(3, 40, -1).transpose(0, 1))
    assert bool((before == 7).all() and (after == 7).all())


def test_several_kinds_of_pieces_between_several_buffers(device: str) -> None:
    moves, sources, made, wanted = several()
    assert run(moves, 4, sources, made, device)
    assert [b.bytes.tobytes() for b in made] == [b.bytes.tobytes() for b in wanted]
    assert all(b.intact() for b in made)


def test_jobs_of_several_tiles(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "JOBS", 4)
    size = 19 * TILE
    moves: list[Move] = [(j, 0, (0, j * size, ((size, 1, 1),))) for j in range(2)]
    sources = [Buffer(size, fill=np.random.default_rng(k)) for k in range(2)]
    made = Buffer(2 * size)
    assert run(moves, 1, sources, [made], device)
    assert made.bytes.tobytes() == b"".join(s.bytes.tobytes() for s in sources)
    assert made.intact()
