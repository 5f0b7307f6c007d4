"""The kernel that finds its arrays by number, as JAX calls it, writes what the other one writes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import xlayout as xl
from xlayout.algebra import Layout
from xlayout.lower.moves import moves_of
from xlayout_torch import launches
from xlayout_triton.plan import ALONE, planned

QKV = xl.fuse_qkv.layout((64, 48), (16, 48), (16, 48), heads=4, kv_heads=1)
LAYOUTS: dict[str, Layout] = {
    "one piece": xl.matrix_transpose.layout((70, 200)),
    "rows of two loops": xl.rope_pairs.layout((64, 90), heads=2)
    >> xl.matrix_transpose.layout((64, 90)),
    "zip": xl.interleave.layout((40, 512), axis=1),
    "three inputs": QKV,
    "three outputs": QKV.inverse(),
    "many": xl.stack.layout([(7, 40)] * 20),
    "three kinds of tiles": xl.regroup.layout((64, 24), sizes=(4, 8, 12), groups=2, axis=1),
}


@pytest.mark.parametrize("itemsize", [1, 2, 8])
@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout_by_its_table(name: str, itemsize: int, device: str) -> None:
    from xlayout_triton.copy import copy_arrays

    layout = LAYOUTS[name]
    rng = np.random.default_rng(0)
    values = rng.integers(0, 256, (layout.in_size, itemsize), np.uint8)
    ends = np.cumsum([0, *map(np.prod, layout.in_shapes)])
    xs = [torch.tensor(values[a:b], device=device) for a, b in pairwise(ends)]
    ys: list[Any] = [
        torch.zeros((int(np.prod(s)), itemsize), dtype=torch.uint8, device=device)
        for s in layout.out_shapes
    ]
    inputs, outputs = len(xs), len(ys)
    made = planned((moves_of(layout), itemsize, [16] * inputs, [16] * outputs))
    assert made is not None
    numbers = made.ends([*range(inputs), *range(outputs)])
    table, there = (
        launches.uploaded(words, torch.device(device)) for words in (made.words, numbers)
    )
    sources, targets = (tuple(launches.addresses_of(zs)) for zs in (xs, ys))
    for one in made.launches:
        fixed = one.jobs is not None, ALONE, one.tile
        arguments = table, there, sources, targets, one.first, one.jobs or 0, one.group, *fixed
        copy_arrays[one.programs,](*arguments, **one.tile.options)
    wrote = np.concatenate([y.cpu().numpy() for y in ys])
    assert np.array_equal(wrote, values[layout.index()])
