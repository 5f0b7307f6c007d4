"""Emulator: what the Triton kernel does with a plan, in numpy, and what no plan may ask of it."""

from __future__ import annotations

import math

import numpy as np

from tests.native.oracle import Buffer
from xlayout_triton.plan import Plan
from xlayout_triton.tile import (
    COUNT,
    LENGTHS,
    READ_WORD,
    ROW,
    SIZES,
    STRIDES,
    WORDS,
    WRITE_WORD,
    Tile,
)

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
                move = _shifted_tile if launch.tile.shifted else _tile
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
    (_, b, a, r), outer = _numbers(words, number)
    (n_b, n_a), (x_r, x_b) = words[SIZES + 1 : SIZES + 3], words[STRIDES : STRIDES + 2]
    z_r, z_a = words[STRIDES + 3 : STRIDES + 5]
    _, B, A, _ = tile.sizes
    Q = WRITE_WORD // tile.unit
    read, write = (
        words[k] + sum(i * words[12 + 4 * j + k] for j, i in enumerate(outer)) for k in (0, 1)
    )
    rows, unit, word = min(n_b - b * B, B + Q), np.arange(tile.unit), np.arange(ROW)
    assert A * tile.unit + READ_WORD - 1 <= ROW * READ_WORD, "a row is wider than it is read"
    for column in range(a * A, min(n_a, a * A + A)):
        to = write + r * z_r + column * z_a + b * B
        before = (target.address + to * tile.unit) % WRITE_WORD // tile.unit
        start = word * Q - before
        whole = start[(start >= 0) & (start + Q <= rows)]
        moved = [whole[:, None] + np.arange(Q)]
        if b == 0:
            moved.append(np.arange(Q - before))
        if rows < B + Q:
            moved.append((rows + before) // Q * Q - before + np.arange(Q))
        row = np.concatenate([some.ravel() for some in moved])
        row = row[row < rows]
        where = read + r * x_r + (b * B + row) * x_b + column
        values = source.bytes[where[:, None] * tile.unit + unit]
        target.bytes[(to + row)[:, None] * tile.unit + unit] = values


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
