"""Tiles of odd rows: which part of a row each of them writes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.native.test_copy import permuted
from xlayout_torch import launches
from xlayout_triton.plan import alignment, planned
from xlayout_triton.words import SHIFTED, SHIFTS, WORD

ROWS, COLUMNS = 1021, 129


def written(itemsize: int, tiles: int, device: str) -> tuple[np.ndarray, int]:
    """Which bytes the first tiles of a transpose write, and where they begin."""
    x = torch.ones(ROWS * COLUMNS * itemsize, dtype=torch.uint8, device=device)
    y = torch.zeros_like(x)
    addresses = launches.addresses_of((x, y))
    moves = ((0, 0, (0, 0, tuple(permuted((ROWS, COLUMNS), (1, 0))))),)
    made = planned((moves, itemsize, *[[alignment(end)] for end in addresses]))
    assert made is not None
    (one,) = made.launches
    assert one.tile.way == SHIFTED
    some = replace(made, launches=(replace(one, programs=tiles),))
    table, ends = (launches.uploaded(w, x.device) for w in (made.words, made.ends(addresses)))
    launches.launch(some, table, ends)
    return y.cpu().numpy().reshape(COLUMNS, -1) != 0, addresses[1]


@pytest.mark.parametrize("itemsize", SHIFTS)
def test_a_tile_writes_whole_groups_of_words(itemsize: int, device: str) -> None:
    """Of as many as are left out, which are a sector of the second cache if these are four."""
    (before, _), (after, begin) = (written(itemsize, tiles, device) for tiles in (2, 3))
    read, left_out, *_ = SHIFTS[itemsize]
    rows = [(k, np.flatnonzero(row)) for k, row in enumerate(after & ~before) if row.any()]
    assert len(rows) == 31 * read // itemsize
    for k, own in rows:
        assert (begin + k * ROWS * itemsize + own[0]) % (left_out * WORD) == 0
        assert np.array_equal(own - own[0], np.arange((32 - left_out) * WORD))
