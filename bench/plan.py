"""Plan: which rows a run of the grid has, and which calls are left out of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from xlayout.bench.cases import CASES
from xlayout.bench.frameworks import FRAMEWORKS
from xlayout.bench.rows import Key, Row, Settings

__all__ = ["FAMILIES", "FULL", "QUICK", "SIZE", "Grid", "left_out"]

FAMILIES = ("rows", "zips", "transposes", "compounds", "edges", "small calls")
MB = 1 << 20
SIZE = 1 << 10
"""Bytes of a small call."""

PATIENCE = 40.0
"""Memcpys at 64 MB above which a call is left out at 512 MB."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A selection of rows.

    Args:
        ops: of `CASES`.
        small: ops on 1 KB, of `bench.contenders`; None: all.
        dtypes: for `ops`.
        sizes: bytes, ascending.
        rounds: the most readings of a call; a small call has 51.
        seconds: the time for a call in one row; at 512 MB twice that.
        compiled: whether `torch.compile` takes part; at 512 MB only in bfloat16.
    """

    ops: tuple[str, ...]
    small: tuple[str, ...] | None
    dtypes: tuple[str, ...]
    sizes: tuple[int, ...]
    rounds: int
    seconds: float
    compiled: bool

    def keys(self, family: str) -> list[Key]:
        """The rows of a family, in the order to run them."""
        if family == "small calls":
            from bench.contenders import OPS

            small = tuple(OPS) if self.small is None else self.small
            return [(op, name, "float32", SIZE) for op in small for name in FRAMEWORKS]
        return [
            (op, framework, dtype, size)
            for op in self.ops
            if CASES[op].family == family
            for dtype in self.dtypes
            for size in self.sizes
            for framework in FRAMEWORKS
        ]

    def only(self, ops: Iterable[str]) -> Grid:
        """The grid with these ops only.

        Raises:
            ValueError: for an op that the grid does not have.
        """
        mine = {key[0] for family in FAMILIES for key in self.keys(family)}
        if absent := [op for op in ops if op not in mine]:
            raise ValueError(f"op: {absent[0]!r}; there are {', '.join(sorted(mine))}")
        small = {key[0] for key in self.keys("small calls")}
        return replace(
            self,
            ops=tuple(op for op in ops if op in self.ops),
            small=tuple(op for op in ops if op in small),
        )

    def settings(self, key: Key, threads: int) -> Settings:
        """How thoroughly to measure a row."""
        _, _, dtype, size = key
        largest = size == 512 * MB
        return Settings(
            threads,
            rounds=51 if size == SIZE else self.rounds,
            seconds=2 * self.seconds if largest else self.seconds,
            compiled=self.compiled and (not largest or dtype == "bfloat16"),
            peaks=size == 64 * MB,
        )


FULL = Grid(
    ops=tuple(CASES),
    small=None,
    dtypes=("bfloat16", "float32", "uint8"),
    sizes=(4 * MB, 64 * MB, 512 * MB),
    rounds=31,
    seconds=0.25,
    compiled=True,
)

QUICK = Grid(
    ops=("interleave rows", "fuse qkv", "zip", "transpose"),
    small=("interleave", "matrix_transpose", "fuse_qkv", "stack"),
    dtypes=("bfloat16", "uint8"),
    sizes=(64 * MB,),
    rounds=7,
    seconds=0.2,
    compiled=False,
)


def left_out(key: Key, rows: Mapping[Key, Row]) -> dict[str, str]:
    """The calls that this row omits because they were slow at 64 MB, and why."""
    op, framework, dtype, size = key
    before = rows.get((op, framework, dtype, 64 * MB))
    if size <= 64 * MB or before is None:
        return {}
    why = f"above {PATIENCE:g} memcpys at 64 MB"
    return {name: why for name, time in before.times.items() if time.ratio > PATIENCE}
