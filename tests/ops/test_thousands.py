"""Thousands of arrays or pieces take a time that grows with their number, not with its square."""

from __future__ import annotations

import itertools
import pickle
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xlayout as xl
from xlayout import Layout, Piece
from xlayout.errors import InverseError, SizeError


def shuffled(n: int) -> Layout:
    """A table in which hardly any two elements follow in order."""
    order = random.Random(0).sample(range(n), n)
    return Layout([(n,)], [(n,)], [Piece(i, o) for o, i in enumerate(order)])


def columns(n: int) -> Layout:
    """Matrices of many widths, side by side."""
    widths = random.Random(1).choices(range(1, 40), k=n)
    return Layout.concat([(4, width) for width in widths], axis=1)


def shares(n: int) -> Layout:
    """From equal parts of a flat buffer to parameters of many sizes, as in ZeRO."""
    sizes = random.Random(2).choices(range(1, 40), k=n)
    part, rest = divmod(sum(sizes), n - 1)
    parts = [(part,)] * (n - 1) + [(rest,)]
    return Layout.identity((sum(sizes),)).regrouped(parts, [(size,) for size in sizes])


def packed(n: int) -> Layout:
    """Sequences of many lengths, from a padded batch to one after the other."""
    lengths = random.Random(3).choices(range(1, 40), k=n)
    starts = itertools.accumulate(lengths, initial=0)
    pieces = [
        Piece(40 * k, start, ((length, 1, 1),))
        for k, (length, start) in enumerate(zip(lengths, starts, strict=False))
    ]
    return Layout([(n, 40)], [(sum(lengths),)], pieces)


def crossed(n: int) -> Layout:
    """Permutes whose factors have no common refinement: each piece lies across all others."""
    return Layout.permute((2, 1936, n), (2, 0, 1)) >> Layout.permute((11, 176, 2 * n), (0, 2, 1))


def run_shares(n: int) -> Any:
    layout = shares(n)
    return layout(*[np.ones(shape) for shape in layout.in_shapes])


def columns_of(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(x[:, k] for k in range(x.shape[1]))


def run_shares_into(n: int) -> Any:
    layout = shares(n)
    arrays = [np.ones(2 * shape[0])[::2] for shape in layout.in_shapes]
    return layout(*arrays, out=[np.empty(shape) for shape in layout.out_shapes])


def tensors(n: int) -> Any:
    return xl.unstack(torch.ones(64, n).T, out=[torch.empty(64) for _ in range(n)])


def tensors_again(n: int) -> Any:
    x, out = torch.ones(n, 66), [torch.empty(66) for _ in range(n)]
    xl.unstack(x, out=out)
    return xl.unstack(x, out=out)  # by what the first call kept


OPS: dict[str, Callable[[int], Any]] = {
    "unstack": lambda n: xl.unstack(np.ones((n, 61))),
    "unstack, views": lambda n: xl.unstack(np.ones((n, 62)), copy=None),
    "unstack, column-major": lambda n: xl.unstack(
        np.ones((63, n)).T, out=tuple(np.empty(63) for _ in range(n))
    ),
    "unstack, into columns": lambda n: xl.unstack(
        np.ones((n, 65)), out=columns_of(np.empty((65, n)))
    ),
    "unstack, tensors": tensors,
    "unstack, tensors again": tensors_again,
    "stack": lambda n: xl.stack([np.ones(99)] * n),
    "to_tiles": lambda n: xl.to_tiles(np.ones((4 * 16, n)), grid=(4, n // 4)),
    "from_tiles": lambda n: xl.from_tiles([[np.ones((16, 5))] * (n // 4)] * 4),
    "the inverse of a table": lambda n: shuffled(n).inverse(),
    "two tables": lambda n: shuffled(n) >> shuffled(n),
    "equal tables": lambda n: shuffled(n) == shuffled(n).inverse().inverse(),
    "a batch packed and padded": lambda n: packed(n) >> packed(n).inverse(),
    "columns, there and back": lambda n: columns(n) >> columns(n).inverse(),
    "columns, checked": lambda n: pickle.loads(pickle.dumps(columns(n))),
    "columns, one at a time": lambda n: columns(n).inverse().each(),
    "columns, as a program": lambda n: columns(n).cost(1),
    "columns, as a pattern": lambda n: str(columns(n)),
    "crossed permutes, inverted": lambda n: crossed(n).inverse(),
    "crossed permutes, checked": lambda n: pickle.loads(pickle.dumps(crossed(n))),
    "parameters from shares": run_shares,
    "parameters from shares, every other element": run_shares_into,
    "shares, with an axis more": lambda n: shares(n).lift(3),
}


def lines(function: Callable[[], Any]) -> int:
    """How many lines of Python run in it, which depends on neither the machine nor its load."""
    count = 0

    def trace(_frame: Any, event: str, _given: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("op", OPS)
def test_four_times_the_arrays_take_four_times_the_planning(op: str) -> None:
    OPS[op](64)  # imports, and makes what is made once
    few, many = (lines(lambda n=n: OPS[op](n)) for n in (256, 1024))  # type: ignore[misc]
    assert few < many < 5 * few


def test_one_overlap_among_hundreds_of_crossed_pieces_is_found() -> None:
    layout = crossed(256)
    first, *rest = layout.pieces
    assert len(rest) > 500
    with pytest.raises(SizeError, match="two of them write the same output position"):
        Layout(layout.in_shapes, layout.out_shapes, (first.shifted(0, 1), *rest))
    with pytest.raises(InverseError, match="sends one input to several outputs"):
        Layout(layout.in_shapes, layout.out_shapes, (first.shifted(1, 0), *rest)).inverse()
