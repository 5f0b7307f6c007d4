"""Tuning: the Triton kernel with tiles of other sizes and other numbers of threads.

    python -m bench.gpu_tune [--mib 1024] [--dtype bfloat16] [--only transpose]

What it finds goes into `xlayout_torch.triton_tile` by hand, where it holds for most ops. Each op is
tried with the setting that its tiles are made by.
"""

from __future__ import annotations

import itertools
import sys

import torch

from bench.gpu_checks import contest, show
from bench.gpu_speed import CUDA, DEVICE, options, raw
from bench.gpu_timing import race
from xlayout.bench.cases import CASES, Permute, make_case
from xlayout.lower.moves import moves_of
from xlayout_torch import cuda, triton_tile
from xlayout_torch.triton_plan import cuts
from xlayout_torch.triton_tile import Tile

__all__ = ["main", "tuned"]

SETTINGS = {
    "STRIP": ("FEW_WARPS", [(1 << 12, 2), (1 << 13, 2), (1 << 13, 4), (1 << 14, 4)]),
    "TILE": ("WARPS", [(1 << 14, 4), (1 << 14, 8), (1 << 15, 8), (1 << 16, 8)]),
    "SCALARS": ("WARPS", [(1 << 11, 2), (1 << 12, 4), (1 << 13, 8), (1 << 14, 8), (1 << 14, 16)]),
}
"""Name -> the name of its warps, and what both are tried with."""


def tuned(op: str, dtype: str, mib: int) -> dict[str, float | str]:
    """Share of a copy's speed by setting, or why there is none."""
    kind = getattr(torch, dtype)
    case = make_case(op, (mib << 20) // kind.itemsize)
    (shape,) = case.layout.in_shapes
    size = case.layout.in_size * kind.itemsize
    x = torch.randint(0, 127, (size,), dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(x)
    given = x.view(kind).view(shape)
    wanted = raw(case.ours(given))
    moves = moves_of(case.layout, (given.stride(),))

    def tile() -> Tile:
        found = cuts(moves, kind.itemsize, [16], [16])
        return found[0][0].tile if found else sys.exit(f"{op}: not for the kernel")

    usual, found = tile(), {}
    for name, (warps, choices) in SETTINGS.items():
        before = getattr(triton_tile, name), getattr(triton_tile, warps)
        try:
            for choice in choices:
                use(name, warps, choice)
                if tile() == usual and (choice != before or found):
                    continue  # made by another setting, or known already
                label = f"{name} {choice[0]}, {choice[1]} warps: {tile().sizes}"
                cell = contest(
                    op,
                    {label: lambda: case.ours(given)},
                    lambda made: torch.equal(raw(made), wanted),
                    lambda sound: race(
                        sound, lambda: target.copy_(x), rounds=5 if CUDA else 1, cuda=CUDA
                    ),
                )[label]
                found[label] = cell if isinstance(cell, str) else round(cell["share"], 3)
        finally:
            use(name, warps, before)
    return found


def use(name: str, warps: str, choice: tuple[int, int]) -> None:
    """Forget every plan, and make others from now on."""
    setattr(triton_tile, name, choice[0])
    setattr(triton_tile, warps, choice[1])
    triton_tile.cut.cache_clear()
    cuda._prepared.cache_clear()


def main() -> None:
    """Print a row for each op that is one permutation."""
    chosen = options(__doc__ or "")
    mib = chosen.mib[-1]
    show(
        {"op": op, "dtype": dtype, "mib": mib, "tuned": tuned(op, dtype, mib)}
        for op, dtype in itertools.product(CASES, chosen.dtype)
        if chosen.only in op and isinstance(make_case(op, 1 << 20).hand, Permute)
    )


if __name__ == "__main__":
    main()
