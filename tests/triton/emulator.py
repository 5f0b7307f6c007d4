"""Emulator: what the Triton kernel does with a plan, in numpy, and what no plan may ask of it."""

from __future__ import annotations

import math

import numpy as np

from tests.native.oracle import Buffer
from xlayout_triton.plan import Plan
from xlayout_triton.tile import COUNT, LENGTHS, SIZES, STRIDES, WORDS, Tile
from xlayout_triton.words import FEW_COLUMNS, FEW_ROWS, ROW, SHIFTED, VECTORS, WORD

__all__ = ["emulate", "positions", "turned"]

Side = tuple[np.ndarray, np.ndarray]
"""Positions of units, a row for each run of memory, and which of them are inside."""


def emulate(plan: Plan, buffers: list[Buffer]) -> None:
    """Run a plan; its places count the buffers."""
    for launch in plan.launches:
        for program in range(launch.programs):
            piece, number = launch.first, program
            if launch.jobs is not None:
                job = plan.words[launch.jobs + program // launch.group]
                piece = job >> 32
                number = (job & 0xFFFFFFFF) + program % launch.group
            words = plan.words[piece * WORDS : (piece + 1) * WORDS].tolist()
            if number < words[COUNT]:
                source, target = plan.places[piece]
                move = _MOVES[launch.tile.way]
                move(launch.tile, words, number, buffers[source], buffers[target])


def _tile(tile: Tile, words: list[int], number: int, source: Buffer, target: Buffer) -> None:
    (where, inside), (to, written) = positions(tile, words, number)
    _check(source.address, where, inside, tile.unit, tile.vectors[0])
    _check(target.address, to, written, tile.unit, tile.vectors[1])
    unit = np.arange(tile.unit)
    values = np.zeros((*where.shape, tile.unit + 1), np.uint8)
    values[inside, :-1] = source.bytes[where[inside][:, None] * tile.unit + unit]
    values[..., -1] = inside
    values = turned(tile, values).reshape(*to.shape, -1)
    assert (values[..., -1] == written).all(), "what is read is not what is written"
    target.bytes[to[written][:, None] * tile.unit + unit] = values[written, :-1]


def _shifted_tile(
    tile: Tile, words: list[int], number: int, source: Buffer, target: Buffer
) -> None:
    (_, b, a, r), read, write = _begin(words, number)
    (n_b, n_a), (x_r, x_b) = words[SIZES + 1 : SIZES + 3], words[STRIDES : STRIDES + 2]
    z_r, z_a = words[STRIDES + 3 : STRIDES + 5]
    _, B, A, _ = tile.sizes
    Q = WORD // tile.unit
    rows = min(n_b - b * B, ROW * Q)
    assert A * tile.unit in (31 * 4, 31 * 8), "the words of a row lack their other halves"
    for column in range(a * A, min(n_a, a * A + A)):
        to = write + r * z_r + column * z_a + b * B
        row = _rows_of(target.address + to * tile.unit, tile, ROW - B // Q, B // Q, rows)
        if b == 0:
            row = np.union1d(row, np.arange(min([rows, *row])))
        where = read + r * x_r + (b * B + row) * x_b + column
        _move(tile, source, where, target, to + row)


def _few_columns(tile: Tile, words: list[int], number: int, source: Buffer, target: Buffer) -> None:
    (_, b, _, r), read, write = _begin(words, number)
    n_b, x_r, (z_r, z_a) = words[SIZES + 1], words[STRIDES], words[STRIDES + 3 : STRIDES + 5]
    _, B, columns, _ = tile.sizes
    Q = WORD // tile.unit
    read += r * x_r
    skipped = _skipped(source.address // tile.unit + read, columns, Q)
    b0 = b * B + skipped
    rows = min(n_b - b0, B + Q)
    for column in range(columns):
        to = write + r * z_r + column * z_a + b0
        row = _rows_of(target.address + to * tile.unit, tile, 1, B // Q, rows)
        if b == 0:
            row = np.union1d(row, np.arange(-skipped, min([rows, *row])))
        _move(tile, source, read + (b0 + row) * columns + column, target, to + row)


def _few_rows(tile: Tile, words: list[int], number: int, source: Buffer, target: Buffer) -> None:
    (_, _, a, r), read, write = _begin(words, number)
    n_a, (x_r, x_b), z_r = words[SIZES + 2], words[STRIDES : STRIDES + 2], words[STRIDES + 3]
    _, rows, A, _ = tile.sizes
    Q = WORD // tile.unit
    write += r * z_r
    skipped = _skipped(target.address // tile.unit + write, rows, Q)
    a0 = a * A + skipped
    last = min(max(0, n_a - a0), A) * rows  # in the strip; if words are left, they are the next's
    first = -skipped * rows if a == 0 else 0
    assert not (target.address + (write + a0 * rows) * tile.unit) % WORD
    at = np.arange(first, last)
    where = read + r * x_r + a0 + at // rows + at % rows * x_b
    _move(tile, source, where, target, write + a0 * rows + at)


def _skipped(strip: int, few: int, Q: int) -> int:
    """How many of the first rows or columns of a strip are before a word and an element begin."""
    return int(np.flatnonzero((strip + np.arange(Q) * few) % Q == 0)[0])


def _rows_of(address: int, tile: Tile, skipped: int, count: int, rows: int) -> np.ndarray:
    """Rows in so many words of an output's row, and those behind the last of all.

    The first word begins `skipped` words behind where a group of as many does, before the address.
    """
    group, Q = skipped * WORD, WORD // tile.unit
    first = (group - 1 - (address - 1) % group) // tile.unit
    whole = max(0, rows - first) // Q
    last = first + min(whole, count) * Q
    return np.arange(first, last if whole >= count else max(last, rows))


def _move(tile: Tile, source: Buffer, where: np.ndarray, target: Buffer, to: np.ndarray) -> None:
    unit = np.arange(tile.unit)
    target.bytes[to[:, None] * tile.unit + unit] = source.bytes[where[:, None] * tile.unit + unit]


_MOVES = {VECTORS: _tile, SHIFTED: _shifted_tile, FEW_COLUMNS: _few_columns, FEW_ROWS: _few_rows}


def _begin(words: list[int], number: int) -> tuple[list[int], int, int]:
    """A tile's numbers along c, b, a and r, and where it is read and written but for these."""
    at, outer = _numbers(words, number)
    read, write = (
        words[k] + sum(i * words[12 + 4 * j + k] for j, i in enumerate(outer)) for k in (0, 1)
    )
    return at, read, write


def _numbers(words: list[int], number: int) -> tuple[list[int], list[int]]:
    """A tile's numbers along c, b, a and r, and along the outer axes."""
    at = []
    for place in (2, 4, 6, 8, 10, 14, 18, 22):
        n, magic = words[place : place + 2]
        quotient = (number + (number * (magic & 0xFFFFFFFF) >> 32)) >> (magic >> 32)
        at.append(number - quotient * n)
        number = quotient
    assert number == 0
    return at[:4], at[4:]


def turned(tile: Tile, values: np.ndarray) -> np.ndarray:
    """What is read, in the order in which it is written."""
    read, written = tile.orders
    apart = values.reshape(*(tile.sizes[k] for k in read), -1)
    return apart.transpose(*(read.index(k) for k in written), 4)


def positions(tile: Tile, words: list[int], number: int) -> tuple[Side, Side]:
    """Units that a tile reads and writes, both in the order of their side."""
    (c, b, a, r), outer = _numbers(words, number)
    axes = [*zip(tile.sizes, (r, b, a, c), words[SIZES : SIZES + 4], strict=True)]
    read, written = (zip(*(axes[k] for k in order), strict=True) for order in tile.orders)
    base = [words[k] + sum(i * words[12 + 4 * j + k] for j, i in enumerate(outer)) for k in (0, 1)]
    return (
        _side(*read, base[0], words[STRIDES:], words[LENGTHS], tile.runs[0], tile.vectors[0]),
        _side(
            *written,
            base[1],
            words[STRIDES + 3 :],
            words[LENGTHS + 1],
            tile.runs[1],
            tile.vectors[1],
        ),
    )


def _side(
    tile: tuple[int, ...],
    at: tuple[int, ...],
    sizes: tuple[int, ...],
    base: int,
    strides: list[int],
    length: int,
    run: int,
    vector: int,
) -> Side:
    apart = 4 - run
    rows, along = math.prod(tile[:apart]), np.arange(math.prod(tile[apart:]))
    start = at[apart] * (along.size // vector)
    inside = np.broadcast_to(along < (length - start) * vector, (rows, along.size)).copy()
    row, position = np.arange(rows), np.full(rows, base + start)
    for k in reversed(range(apart)):
        step = at[k] * tile[k] + row % tile[k]
        row = row // tile[k]
        inside &= (step < sizes[k])[:, None]
        position += step * strides[k]
    return position[:, None] * vector + along, inside


def _check(address: int, where: np.ndarray, inside: np.ndarray, unit: int, vector: int) -> None:
    vectors = inside.reshape(inside.shape[0], -1, vector)
    assert (vectors.all(-1) == vectors.any(-1)).all(), "a vector is not whole"
    starts = address + where.reshape(vectors.shape)[..., 0] * unit
    assert not (starts[vectors[..., 0]] % (unit * vector)).any(), "a vector lies across"
