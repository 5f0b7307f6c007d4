"""Tuning: the Triton kernel with tiles of other sizes and other numbers of threads.

    python -m bench.gpu.tune [--mib 1024] [--dtype bfloat16] [--only transpose]

Findings that hold for most ops go into `xlayout_triton.tile` by hand. For each op, only the setting
by which its tiles are made is varied.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from bench.gpu.checks import contest, show
from bench.gpu.speed import CUDA, DEVICE, options, raw
from bench.gpu.timing import race
from xlayout.bench.cases import CASES, make_case
from xlayout.bench.hands import Permute
from xlayout.lower.moves import moves_of
from xlayout_torch import launches
from xlayout_triton import tile as tiles
from xlayout_triton import words
from xlayout_triton.plan import pieces_of
from xlayout_triton.tile import Tile

__all__ = ["main", "tuned"]

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "STRIP": [
        {"STRIP": size, "STRIP_WARPS": warps}
        for size, warps in ((1 << 11, 1), (1 << 12, 1), (1 << 12, 2), (1 << 13, 1), (1 << 13, 2))
    ],
    "TILE": [
        {"TILE": size, "WARPS": warps}
        for size, warps in ((1 << 14, 1), (1 << 14, 2), (1 << 15, 2), (1 << 15, 4), (1 << 16, 8))
    ],
    "SCALARS": [
        {"SCALARS": size, "WARPS": warps, "MORE_WARPS": warps}
        for size, warps in ((1 << 12, 2), (1 << 12, 4), (1 << 13, 2), (1 << 13, 4), (1 << 13, 8))
    ],
    "SHIFTS": [
        {"SHIFTS": dict.fromkeys(words.SHIFTS, words.Shift(*shift))}
        for shift in (
            (4, 1, 8, 48), (4, 1, 8, 64), (4, 1, 8, 80), (4, 4, 8, 64), (4, 1, 4, 96),
            (8, 1, 8, 64), (8, 4, 4, 80), (8, 4, 4, 96), (8, 4, 8, 64), (8, 4, 8, 80),
        )
    ],
    "GROUPS": [{"GROUPS": rows} for rows in (4, 8, 16)],
}  # fmt: skip
"""Name -> what it is tried with, and what goes with it."""

_DECIDES = {words.SHIFTED: "SHIFTS", words.FEW_COLUMNS: "GROUPS", words.FEW_ROWS: "GROUPS"}
"""Way of a tile -> the setting that it is made by; others are found by trying."""


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

    def decides(name: str) -> bool:
        if usual.way != words.VECTORS:
            return _DECIDES[usual.way] == name
        if name in _DECIDES.values():
            return False
        with setting({name: 2 * getattr(tiles, name)}):
            return tile().sizes != usual.sizes

    with setting({}):
        usual = tile()
    found: dict[str, float | str] = {}
    for changed in itertools.chain(*[SETTINGS[name] for name in SETTINGS if decides(name)]):
        with setting(changed):
            now = tile()
            label = f"{now.sizes}, {now.warps} warps, {now.registers or 'any'} registers"
            cell = contest(
                op,
                {label: lambda: case.ours(given)},
                lambda made: torch.equal(raw(made), wanted),
                lambda sound: race(sound, lambda: target.copy_(x), cuda=CUDA),
            )[label]
            found[label] = cell if isinstance(cell, str) else round(cell["share"], 3)
    return found


@contextmanager
def setting(changed: Mapping[str, Any]) -> Iterator[None]:
    """Plan with other sizes, and as for a large copy; plans made before are forgotten."""
    homes = {name: tiles if hasattr(tiles, name) else words for name in ("SMALL", *changed)}
    before = {name: getattr(home, name) for name, home in homes.items()}
    try:
        for name, value in {"SMALL": 0, **changed}.items():
            setattr(homes[name], name, value)
        forget()
        yield
    finally:
        for name, value in before.items():
            setattr(homes[name], name, value)
        forget()


def forget() -> None:
    """Forget every plan, so that new ones are made."""
    tiles.cut.cache_clear()
    for plans in (launches.prepared, launches.ready):
        plans.cache_clear()


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
