"""Tuning: the Triton kernel with tiles of other sizes and other numbers of threads.

    python -m bench.gpu_tune [--mib 1024] [--dtype bfloat16] [--only transpose]

What it finds goes into TILE of `xlayout_torch.triton_tile` and WARPS of `xlayout_torch.cuda` by
hand, where it holds for most ops.
"""

from __future__ import annotations

import itertools

import torch

from bench.gpu_checks import contest, show
from bench.gpu_speed import CUDA, DEVICE, options, raw
from bench.gpu_timing import race
from xlayout.bench.cases import CASES, Permute, make_case
from xlayout_torch import cuda, triton_tile

__all__ = ["main", "tuned"]

TILES = (1 << 13, 1 << 14, 1 << 15)
WARPS = (4, 8)


def tuned(op: str, dtype: str, mib: int) -> dict[str, float | str]:
    """Share of a copy's speed by (bytes of a tile, warps), or why there is none."""
    case = make_case(op, (mib << 20) // getattr(torch, dtype).itemsize)
    (shape,) = case.layout.in_shapes
    size = case.layout.in_size * getattr(torch, dtype).itemsize
    x = torch.randint(0, 127, (size,), dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(x)
    given = x.view(getattr(torch, dtype)).view(shape)
    usual = triton_tile.TILE, cuda.WARPS
    wanted = raw(case.ours(given))
    found: dict[str, float | str] = {}
    try:
        for tile, warps in itertools.product(TILES, WARPS):
            use(tile, warps)
            name = f"{tile >> 10} KB, {warps} warps"
            cell = contest(
                op,
                {name: lambda: case.ours(given)},
                lambda made: torch.equal(raw(made), wanted),
                lambda sound: race(
                    sound, lambda: target.copy_(x), rounds=5 if CUDA else 1, cuda=CUDA
                ),
            )[name]
            found[name] = cell if isinstance(cell, str) else round(cell["share"], 3)
    finally:
        use(*usual)
    return found


def use(tile: int, warps: int) -> None:
    """Forget every plan, and make others from now on."""
    triton_tile.TILE, cuda.WARPS = tile, warps
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
