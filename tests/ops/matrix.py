"""Every op with arrays it takes and an oracle: numpy and the op's index formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any

import numpy as np

import xlayout as xl

__all__ = ["EXAMPLES", "ONE_OF_EACH", "Example", "flat", "numbered"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """`call(*arrays, **run_options)` must equal `oracle(*numpy arrays)`, on inputs of `shapes`."""

    name: str
    call: Callable[..., Any]
    shapes: tuple[Shape, ...]
    oracle: Callable[..., Any]

    def __str__(self) -> str:
        return self.name


def flat(result: Any) -> tuple[Any, ...]:
    """The arrays of a result: one, a tuple, or rows of tiles."""
    if isinstance(result, (tuple, list)):
        return tuple(y for part in result for y in flat(part))
    return (result,)


def numbered(shapes: Sequence[Shape], dtype: Any = np.int32) -> list[np.ndarray]:
    """One array per shape; no number stands twice, as long as the dtype has enough of them."""
    ends = list(accumulate((math.prod(s) for s in shapes), initial=1))
    return [
        (np.arange(n) + first).astype(dtype).reshape(s)
        for first, n, s in zip(ends, map(math.prod, shapes), shapes, strict=False)
    ]


def _interleaved(n: int, block: int, groups: int) -> list[int]:
    """out[(j·groups + g)·block + e] = in[(g·n + j)·block + e]."""
    blocks = n // (groups * block)
    return [
        (g * blocks + j) * block + e
        for j, g, e in product(range(blocks), range(groups), range(block))
    ]


def _halves(n: int, heads: int) -> list[int]:
    """Per head: out[c·d/2 + i] = in[2i + c]."""
    d = n // heads
    return [h * d + 2 * i + c for h, c, i in product(range(heads), range(2), range(d // 2))]


def _dealt(sizes: Sequence[int], groups: int) -> list[int]:
    """Group g takes the g-th of `groups` equal stretches of every segment."""
    starts = list(accumulate(sizes, initial=0))
    return [
        start + g * (n // groups) + e
        for g in range(groups)
        for start, n in zip(starts, sizes, strict=False)
        for e in range(n // groups)
    ]


def _fused(heads: int, kv_heads: int, d: int, order: str, blocks: int = 4) -> list[int]:
    """Rows of [Q | K | V] in the order of a fused weight, head by head."""
    q = [list(range(h * d, (h + 1) * d)) for h in range(heads)]
    k = [list(range((heads + h) * d, (heads + h + 1) * d)) for h in range(kv_heads)]
    v = [[row + kv_heads * d for row in head] for head in k]
    share = heads // kv_heads
    blocks = blocks if heads == kv_heads else 1
    several = heads // blocks
    groups = {
        "concat": [q, k, v],
        "per_head": [[q[h], k[h], v[h]] for h in range(min(heads, kv_heads))],
        "grouped": [[*q[g * share : (g + 1) * share], k[g], v[g]] for g in range(kv_heads)],
        "codegen": [
            [head for t in (q, v, k) for head in t[b * several : (b + 1) * several]]
            for b in range(blocks)
        ],
    }[order]
    return [row for group in groups for head in group for row in head]


def _undone(index: Sequence[int]) -> list[int]:
    return list(np.argsort(index))


def _along(call: Callable[..., Any], index: Any, undo: bool = False) -> Callable[..., Any]:
    """Examples of an op that is `numpy.take` along one axis."""

    def example(shape: Shape, axis: int = 0, **options: Any) -> Example:
        wanted = index(shape[axis], **options)
        wanted = _undone(wanted) if undo else wanted

        def run(x: Any, **run: Any) -> Any:
            return call(x, axis=axis, **options, **run)

        said = " ".join(f"{k}={v}" for k, v in options.items())
        return Example(
            f"{call.__name__} {shape} axis={axis} {said}".strip(),
            run,
            (shape,),
            lambda x: np.take(x, np.array(wanted, dtype=np.intp), axis),
        )

    return example


def _regrouped(n: int, sizes: Sequence[int], groups: int) -> list[int]:
    assert sum(sizes) == n
    return _dealt(sizes, groups)


interleave = _along(xl.interleave, lambda n, block=1, groups=2: _interleaved(n, block, groups))
deinterleave = _along(
    xl.deinterleave, lambda n, block=1, groups=2: _interleaved(n, block, groups), undo=True
)
rope_halves = _along(xl.rope_halves, _halves)
rope_pairs = _along(xl.rope_pairs, _halves, undo=True)
regroup = _along(xl.regroup, _regrouped)
ungroup = _along(xl.ungroup, _regrouped, undo=True)
trim = _along(xl.trim, lambda n, to: list(range(to)))  # noqa: ARG005 -- the caller gives the size


def transpose(*shape: int) -> Example:
    return Example(
        f"matrix_transpose {shape}", xl.matrix_transpose, (shape,), lambda x: np.swapaxes(x, -1, -2)
    )


def permute(shape: Shape, axes: Shape) -> Example:
    def run(x: Any, **run: Any) -> Any:
        return xl.permute_dims(x, axes, **run)

    return Example(f"permute_dims {shape} {axes}", run, (shape,), lambda x: np.transpose(x, axes))


def pad(shape: Shape, to: int, axis: int = 0, value: complex = 0) -> Example:
    def run(x: Any, **run: Any) -> Any:
        return xl.pad(x, to=to, axis=axis, value=value, **run)

    def oracle(x: np.ndarray) -> np.ndarray:
        missing = list(x.shape)
        missing[axis] = to - x.shape[axis]
        filler = np.empty(missing, x.dtype)
        filler[...] = value
        return np.concatenate([x, filler], axis)

    return Example(f"pad {shape} to={to} axis={axis} value={value}", run, (shape,), oracle)


def _qkv(heads: int, kv_heads: int, d: int, order: str, rest: Shape, axis: int) -> Any:
    options = {"heads": heads, "kv_heads": kv_heads, "order": order, "axis": axis}
    index = np.array(_fused(heads, kv_heads, d, order))
    shapes = tuple((*rest[:axis], h * d, *rest[axis:]) for h in (heads, kv_heads, kv_heads))
    whole = (*rest[:axis], (heads + 2 * kv_heads) * d, *rest[axis:])
    cuts = [heads * d, (heads + kv_heads) * d]
    return f"{order} {heads}:{kv_heads} d={d} {whole}", options, index, shapes, whole, cuts


def fuse(heads: int, kv_heads: int, d: int, order: str, rest: Shape = (), axis: int = 0) -> Example:
    name, options, index, shapes, _, _ = _qkv(heads, kv_heads, d, order, rest, axis)
    return Example(
        f"fuse_qkv {name}",
        lambda q, k, v, **run: xl.fuse_qkv(q, k, v, **options, **run),
        shapes,
        lambda *qkv: np.take(np.concatenate(qkv, axis), index, axis),
    )


def split(
    heads: int, kv_heads: int, d: int, order: str, rest: Shape = (), axis: int = 0
) -> Example:
    name, options, index, _, whole, cuts = _qkv(heads, kv_heads, d, order, rest, axis)
    return Example(
        f"split_qkv {name}",
        lambda x, **run: xl.split_qkv(x, **options, **run),
        (whole,),
        lambda x: tuple(np.split(np.take(x, _undone(index), axis), cuts, axis)),
    )


def stack(shapes: Sequence[Shape], axis: int = 0) -> Example:
    return Example(
        f"stack {len(shapes)}x{shapes[0]} axis={axis}",
        lambda *xs, **run: xl.stack(xs, axis=axis, **run),
        tuple(shapes),
        lambda *xs: np.stack(xs, axis),
    )


def unstack(shape: Shape, axis: int = 0) -> Example:
    return Example(
        f"unstack {shape} axis={axis}",
        lambda x, **run: xl.unstack(x, axis=axis, **run),
        (shape,),
        lambda x: tuple(np.take(x, k, axis) for k in range(shape[axis])),
    )


def tiles(shape: Shape, rows: Sequence[int], columns: Sequence[int], rule: str) -> Example:
    """The block sizes are written out, so that `partition` has no say in what is right."""
    grid = (len(rows), len(columns))

    def oracle(x: np.ndarray) -> tuple[np.ndarray, ...]:
        bands = np.split(x, list(accumulate(rows))[:-1], axis=-2)
        edges = list(accumulate(columns))[:-1]
        return tuple(tile for band in bands for tile in np.split(band, edges, axis=-1))

    return Example(
        f"to_tiles {shape} {grid} {rule}",
        lambda x, **run: xl.to_tiles(x, grid=grid, rule=rule, **run),  # type: ignore[arg-type]
        (shape,),
        oracle,
    )


def untiled(rows: Sequence[int], columns: Sequence[int], batch: Shape = ()) -> Example:
    width = len(columns)

    def nested(xs: Sequence[Any]) -> list[list[Any]]:
        return [list(xs[k : k + width]) for k in range(0, len(xs), width)]

    return Example(
        f"from_tiles {rows} {columns} {batch}",
        lambda *xs, **run: xl.from_tiles(nested(xs), **run),
        tuple((*batch, h, w) for h in rows for w in columns),
        lambda *xs: np.concatenate([np.concatenate(row, -1) for row in nested(xs)], -2),
    )


def pattern(shapes: Sequence[Shape], text: str, oracle: Any, **sizes: int) -> Example:
    def run(*xs: Any, **run: Any) -> Any:
        return xl.rearrange(xs if len(xs) > 1 else xs[0], text, **sizes, **run)

    return Example(f"rearrange {text!r} {shapes}", run, tuple(shapes), oracle)


def _woven(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([r for g in range(3) for r in (a[2 * g : 2 * g + 2], b[g : g + 1])])


ONE_OF_EACH = [
    interleave((12, 3), block=2),
    deinterleave((3, 12), axis=-1, block=2, groups=3),
    transpose(2, 3, 4),
    permute((2, 3, 4), (2, 0, -2)),
    rope_halves((12, 3), heads=2),
    rope_pairs((2, 12), axis=1, heads=3),
    fuse(4, 2, 3, "grouped", (2,)),
    split(4, 2, 3, "grouped", (2,)),
    regroup((8, 3), sizes=(4, 2, 2), groups=2),
    ungroup((3, 9), axis=-1, sizes=(6, 3), groups=3),
    tiles((10, 7), (3, 3, 2, 2), (3, 2, 2), "balanced"),
    untiled((2, 1), (3, 2, 1)),
    stack([(2, 3)] * 3, axis=-1),
    unstack((2, 3, 2), axis=1),
    pad((3, 2), to=5),
    trim((5, 2), to=3),
    pattern([(6, 2)], "(q + k + v) h -> q h, k h, v h", lambda x: tuple(np.split(x, [3, 5])),
            q=3, k=2),
    pattern([(6, 2), (3, 2)], "(g q) h, (g k) h -> (g (q + k)) h", _woven, g=3),
]  # fmt: skip
"""Small on purpose: what costs a compilation runs these."""

EXAMPLES = [
    *ONE_OF_EACH,
    interleave((8,)),
    interleave((8,), block=4),
    interleave((0, 3), block=2),
    interleave((4, 0), block=2),
    interleave((2, 18, 3), axis=1, block=3, groups=3),
    interleave((6, 1), groups=6),
    interleave((5,), groups=1, block=5),
    deinterleave((8, 2), block=4),
    deinterleave((8,)),
    deinterleave((2, 12), axis=-1, groups=3, block=4),
    transpose(2, 3),
    transpose(1, 4),
    transpose(4, 1),
    transpose(0, 3),
    transpose(2, 2, 1, 3),
    permute((), ()),
    permute((5,), (0,)),
    permute((3, 1, 2), (-1, 0, 1)),
    permute((2, 3, 4, 5), (3, 1, 0, 2)),
    rope_halves((8,), heads=1),
    rope_halves((4,), heads=2),
    rope_pairs((8, 2), heads=2),
    *(fuse(4, 4, 2, order) for order in ("concat", "per_head", "grouped", "codegen")),
    *(split(8, 8, 1, order, (2, 2), 1) for order in ("concat", "per_head", "grouped", "codegen")),
    fuse(6, 1, 2, "grouped", (3,), 1),
    fuse(6, 3, 1, "concat", (0,)),
    split(6, 1, 2, "grouped", (3,)),
    split(4, 2, 2, "concat"),
    regroup((9,), sizes=(0, 6, 3), groups=3),
    regroup((2, 4, 3), axis=1, sizes=(4,), groups=4),
    ungroup((12, 1), sizes=(8, 2, 2), groups=2),
    tiles((2, 5, 4), (2, 2, 1), (2, 2), "ceil"),
    tiles((2, 5), (1, 1), (1, 1, 3), "last"),
    tiles((1, 5), (0, 1), (1, 2, 2), "back"),
    tiles((4, 6), (2, 2), (3, 3), "even"),
    tiles((3, 5), (1, 2), (2, 3), "back"),
    untiled((2, 3), (4, 1), batch=(2,)),
    untiled((2,), (3,)),
    untiled((1, 0), (2, 2)),
    stack([()] * 3),
    stack([(2, 3)]),
    stack([(2, 3)] * 2, axis=1),
    unstack((3,)),
    unstack((2, 3), axis=-1),
    unstack((1, 4)),
    pad((2, 3), to=3, axis=-1),
    pad((4,), to=4),
    pad((3, 2), to=5, value=7),
    pad((2, 2), to=3, axis=1, value=-1),
    pad((0, 2), to=3, value=1),
    trim((2, 5), axis=-1, to=0),
    trim((4,), to=4),
    pattern([(6, 2)], "(h d) m -> m h d", lambda x: x.reshape(2, 3, 2).transpose(2, 0, 1), h=2),
    pattern([(2, 3, 4)], "... a b -> ... b a", lambda x: x.transpose(0, 2, 1)),
    pattern([(2, 1, 3)], "a 1 b -> (b a) 1", lambda x: x.reshape(2, 3).T.reshape(6, 1)),
    pattern([(7, 2)], "(a + b) c -> c (b + a)", lambda x: np.roll(x, -3, 0).T, a=3),
    pattern([(3, 2), (3, 1)], "a b, a c -> a (c + b)", lambda x, y: np.concatenate([y, x], 1)),
]  # fmt: skip
