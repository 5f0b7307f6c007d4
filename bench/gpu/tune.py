"""Tuning: the Triton kernel with tiles of other sizes and other numbers of threads.

    python -m bench.gpu.tune [--mib 1024] [--dtype bfloat16] [--only transpose]

Findings that hold for most ops go into `xlayout_triton.tile` by hand. For each op, only the setting
by which its tiles are made is varied.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bench.gpu.checks import contest, show
from bench.gpu.speed import CUDA, DEVICE, options, raw
from bench.gpu.timing import race
from xlayout.bench.cases import CASES, Permute, make_case
from xlayout.lower.moves import moves_of
from xlayout_torch import cuda
from xlayout_triton import tile as tiles
from xlayout_triton.plan import pieces_of
from xlayout_triton.tile import Tile

__all__ = ["main", "tuned"]

SETTINGS = {
    "STRIP": [(1 << 12, 2), (1 << 13, 2), (1 << 13, 4), (1 << 14, 4)],
    "TILE": [(1 << 14, 2), (1 << 14, 4), (1 << 15, 2), (1 << 15, 8), (1 << 16, 8)],
    "SCALARS": [(1 << 11, 2), (1 << 12, 4), (1 << 13, 2), (1 << 13, 8), (1 << 14, 16)],
}
"""Name -> the sizes and warps that it is tried with."""


def tuned(op: str, dtype: str, mib: int) -> dict[str, float | str]:
    """Setting -> share of a copy's speed, or why there is none."""
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
        found = pieces_of(moves, kind.itemsize, [16], [16])
        return found[0].cut.tile if found else sys.exit(f"{op}: not for the kernel")

    usual, found = tile(), {}
    for name, choices in SETTINGS.items():
        with setting(name, 2 * getattr(tiles, name)):
            if tile().sizes == usual.sizes:
                continue  # another setting decides this tile
        for size_of_tile, warps in choices:
            with setting(name, size_of_tile, warps):
                label = f"{name} {size_of_tile}, {warps} warps: {tile().sizes}"
                cell = contest(
                    op,
                    {label: lambda: case.ours(given)},
                    lambda made: torch.equal(raw(made), wanted),
                    lambda sound: race(sound, lambda: target.copy_(x), cuda=CUDA),
                )[label]
                found[label] = cell if isinstance(cell, str) else round(cell["share"], 3)
    return found


@contextmanager
def setting(name: str, size: int, warps: int | None = None) -> Iterator[None]:
    """Plan with another tile size, and this many warps for all; plans made before are forgotten."""
    names = (name,) if warps is None else (name, "WARPS", "MORE_WARPS")
    before = {each: getattr(tiles, each) for each in names}
    try:
        for each in names:
            setattr(tiles, each, size if each == name else warps)
        forget()
        yield
    finally:
        for each, value in before.items():
            setattr(tiles, each, value)
        forget()


def forget() -> None:
    """Forget every plan, so that new ones are made."""
    tiles.cut.cache_clear()
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
