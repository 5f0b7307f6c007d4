"""Trial: whether the Triton kernel makes a few copies right on a device, before it makes others.

Copies in words are put together by instructions that no other GPU may have, so each way to do so is
tried by itself. If one comes out wrong, torch makes such copies, and the kernel all others.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from xlayout_torch import launches
from xlayout_torch.launches import addresses_of
from xlayout_triton.plan import Moves
from xlayout_triton.uncompiled import CompileError
from xlayout_triton.words import FEW_COLUMNS, FEW_ROWS, SHIFTED

__all__ = ["passes"]

Copy = Callable[[Moves, int, list[int], list[int], torch.device], bool]
"""`cuda.copy`."""


def passes(device: torch.device, copy: Copy) -> bool:
    """Whether copies in vectors come out right; ways in words that do not are refused."""
    if not _vectors(device, copy):
        return False
    odd = torch.arange(257 * 129, device=device).to(torch.uint8).view(257, 129)
    pixels = torch.arange(1021 * 3, device=device).to(torch.uint8).view(1021, 3)
    matrices = {SHIFTED: odd, FEW_COLUMNS: pixels, FEW_ROWS: pixels.mT.contiguous()}
    for way, x in matrices.items():
        rows, columns = x.shape
        made, loops = torch.zeros_like(x.mT).contiguous(), ((rows, columns, 1), (columns, 1, rows))
        try:
            copy(((0, 0, (0, 0, loops)),), 1, [x.data_ptr()], [made.data_ptr()], device)
        except CompileError:
            continue  # nor will others of its kind compile
        if not torch.equal(made, x.mT):
            launches.refuse(way, device)
    return True


def _vectors(device: torch.device, copy: Copy) -> bool:
    x = torch.arange(3 * 66 * 80, dtype=torch.int32, device=device).view(3, 66, 80)
    turn = 0, 0, ((3, 66 * 80, 66 * 80), (66, 80, 1), (80, 1, 66))
    join = [(j, 0, (0, 40 * j, ((198, 80, 80), (40, 1, 1)))) for j in range(2)]
    alone = torch.zeros_like(x.mT).contiguous()
    joined, turned = torch.zeros_like(x), torch.zeros_like(alone)
    halves, both = addresses_of((x, x[:, :, 40:])), addresses_of((joined, turned))
    copy(((0, 0, turn),), 4, [x.data_ptr()], [alone.data_ptr()], device)
    copy((*join, (0, 1, turn)), 4, halves, both, device)
    return all(map(torch.equal, (alone, turned, joined), (x.mT, x.mT, x)))
