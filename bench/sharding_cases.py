"""Layouts between shardings that compilers get wrong, and awkward ones: measured and tested."""

from __future__ import annotations

import xlayout as xl
from xlayout import Layout, Mesh, Piece, Sharding, Split

__all__ = ["AWKWARD", "CASES", "GRID"]

F, E = 1024, 512
W = (2 * F, E)
TP, GRID = Mesh(4, "tp"), Mesh((2, 4), ("fsdp", "tp"))
ROWS, COLUMNS, MIDDLE = (Sharding(TP, spec) for spec in (["tp"], [None, "tp"], [None, "tp", None]))
FUSED = Sharding(TP, ["tp"], splits={0: Split(segments=(F, F))})
BOTH = Sharding(GRID, ["fsdp", "tp"])
Q = (F // 2, E)


def at(layout: Layout, ins: object, outs: object) -> Layout:
    return layout.regrouped([ins] if ins else None, [outs] if outs else None)  # type: ignore[list-item]


def strided(mesh: Mesh, n: int, parts: int) -> Sharding:
    return Sharding(mesh, ["tp"], splits={0: Split(segments=(n // parts,) * parts)})


GLU, GLU32, GLUF = (xl.interleave.layout(W, block=b) for b in (1, 32, F // 4))
UNGLU = xl.deinterleave.layout(W, block=1)
FLIPPED, SAME = Layout.permute(W, (1, 0)), Layout.identity(W)
THREE = xl.fuse_qkv.layout(Q, Q, Q, heads=8, kv_heads=8, order="concat")
GROUPED = xl.fuse_qkv.layout(Q, Q, Q, heads=8, kv_heads=8)
REGROUPED = THREE.inverse() >> GROUPED
N = 2 * F * E
TILED = Layout((W,), ((4 * F, E),), (Piece(0, 0, ((2, 0, N), (N, 1, 1))),))
REPEATED = Layout((W,), ((4 * F, E),), (Piece(0, 0, ((2 * F, E, 2 * E), (2, 0, E), (E, 1, 1))),))

# name: layout, from, to, MiB that a device must receive on average
CASES = {
    "interleave": (GLU, ROWS, ROWS, 0.75),
    "interleave in blocks of 32": (GLU32, ROWS, ROWS, 0.75),
    "interleave in blocks of F/tp": (GLUF, ROWS, ROWS, 0.75),
    "deinterleave": (UNGLU, ROWS, ROWS, 0.75),
    "interleave from [2, F, E]": (at(GLU, (2, F, E), None), MIDDLE, ROWS, 0),
    "deinterleave to [2, F, E]": (at(UNGLU, None, (2, F, E)), ROWS, MIDDLE, 0),
    "interleave from the fused shards": (GLU, FUSED, ROWS, 0),
    "deinterleave to the fused shards": (UNGLU, ROWS, FUSED, 0),
    "interleave along a whole axis": (xl.interleave.layout(W, axis=1), ROWS, ROWS, 0),
    "transpose to columns": (FLIPPED, ROWS, COLUMNS, 0),
    "transpose to rows": (FLIPPED, ROWS, ROWS, 0.75),
    "rows to columns": (SAME, ROWS, COLUMNS, 0.75),
    "flatten": (at(SAME, None, (2 * F * E,)), ROWS, ROWS, 0),
    "split heads": (at(SAME, None, (32, 64, E)), ROWS, ROWS, 0),
    "view as [2, F, E]": (at(SAME, None, (2, F, E)), ROWS, MIDDLE, 0.75),
    "q, k, v end to end": (THREE, ROWS, ROWS, 0.5),
    "q, k, v group by group": (GROUPED, ROWS, ROWS, 0),
    "end to end to group by group": (REGROUPED, ROWS, ROWS, 0.5),
    "tiled twice": (TILED, ROWS, ROWS, 1.5),
    "repeated twice": (REPEATED, ROWS, ROWS, 0),
    "2-D transpose to (tp, fsdp)": (FLIPPED, BOTH, Sharding(GRID, ["tp", "fsdp"]), 0),
    "2-D transpose to (fsdp, tp)": (FLIPPED, BOTH, BOTH, 0.375),
    "gather fsdp from (tp, fsdp)": (
        SAME, Sharding(GRID, [("tp", "fsdp")]), Sharding(GRID, ["tp"]), 0.5),
    "gather fsdp from (fsdp, tp)": (
        SAME, Sharding(GRID, [("fsdp", "tp")]), Sharding(GRID, ["tp"]), 0.875),
    "fused shards to rows": (SAME, FUSED, ROWS, 0.75),
    "every second row of flat columns": (
        at(SAME, None, (2 * F * E,)), COLUMNS, strided(TP, 2 * F * E, 2048), 0),
    "flat columns to flat rows": (
        at(SAME, None, (2 * F * E,)), COLUMNS, ROWS, 0.75),
}  # fmt: skip

SIX = (384, 16)
KV2 = xl.fuse_qkv.layout((128, 8), (32, 8), (32, 8), heads=8, kv_heads=2)
AWKWARD = {
    "six blocks on four ranks": (xl.interleave.layout(SIX, block=32), ROWS, ROWS),
    "six blocks, fused shards": (
        xl.interleave.layout(SIX, block=32), strided(TP, 384, 2), ROWS),
    "rope of six heads": (xl.rope_halves.layout(SIX, heads=6), ROWS, ROWS),
    "a slice off the grid": (Layout.slice(SIX, 0, 300), ROWS, ROWS),
    "an uneven axis": (Layout.identity((10, 8)), ROWS, COLUMNS),
    "fewer rows than ranks": (Layout.identity((3, 8)), ROWS, COLUMNS),
    "key-value heads fewer than ranks": (KV2, ROWS, ROWS),
    "ceil to balanced": (
        Layout.identity((17, 4)),
        Sharding(Mesh(8, "tp"), ["tp"]),
        Sharding(Mesh(8, "tp"), ["tp"], splits={0: Split(rule="balanced")})),
    "three axes, two of them on one": (
        Layout.identity((4, 6, 8)),
        Sharding(Mesh((2, 4), ("x", "y")), ["y", None, "x"]),
        Sharding(Mesh((2, 4), ("x", "y")), [None, ("x", "y")])),
}  # fmt: skip
