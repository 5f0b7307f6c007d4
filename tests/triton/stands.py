"""What stands for a compiled kernel, and plans to start."""

from __future__ import annotations

from typing import Any

from xlayout_triton.plan import Piece, Plan, plan
from xlayout_triton.tile import cut


class Kernel:
    """Stands for what Triton compiled: it tells how it was started."""

    def __init__(self) -> None:
        self.started: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments, **_stream: self.started.append((grid, *arguments))


def runs(count: int, size: int = 1 << 20) -> Plan:
    """A plan of so many runs."""
    one = cut(0, 0, ((size, 1, 1),), 4, (16, 16))
    assert one is not None
    return plan([Piece(one, (2 * k, 2 * k + 1)) for k in range(count)])


def kinds(*names: str) -> Plan:
    """A plan of a piece of each of these kinds."""
    loops = {"run": ((1 << 20, 1, 1),), "turned": ((512, 1, 512), (512, 512, 1))}
    cuts = [cut(0, 0, loops[name], 4, (16, 16)) for name in names]
    return plan([Piece(one, (2 * k, 2 * k + 1)) for k, one in enumerate(cuts) if one is not None])
