"""Examples of an op: arrays it takes, and an oracle of numpy and the op's index formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from typing import Any

import numpy as np

import xlayout as xl

__all__ = [
    "Example",
    "deinterleave",
    "flat",
    "fuse",
    "interleave",
    "lists",
    "numbered",
    "pad",
    "pattern",
    "permute",
    "regroup",
    "rope_halves",
    "rope_pairs",
    "split",
    "stack",
    "tiles",
    "transpose",
    "trim",
    "ungroup",
    "unstack",
    "untiled",
    "wanted",
    "woven",
]

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


def lists(result: Any) -> list[Any]:
    """The arrays of a result as nested lists of numbers."""
    return [y.tolist() for y in flat(result)]


def wanted(example: Example, *given: Any) -> list[Any]:
    """What an example is to make of some arrays, by default of numbered ones."""
    values = given or numbered(example.shapes)
    return lists(example.oracle(*map(np.asarray, values)))


def numbered(shapes: Sequence[Shape], dtype: Any = np.int32) -> list[np.ndarray]:
    """One array per shape; all numbers differ, as long as the dtype has enough of them."""
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
    """The rows of [Q | K | V], head by head, in the order of a fused weight."""
    q = [list(range(h * d, (h + 1) * d)) for h in range(heads)]
    k = [list(range((heads + h) * d, (heads + h + 1) * d)) for h in range(kv_heads)]
    v = [[row + kv_heads * d for row in head] for head in k]
    share = heads // kv_heads
    groups = {
        "concat": [q, k, v],
        "per_head": [[q[h], k[h], v[h]] for h in range(min(heads, kv_heads))],
        "grouped": [[*q[g * share : (g + 1) * share], k[g], v[g]] for g in range(kv_heads)],
        "codegen": [
            [h for t in (q, v, k) for h in t[len(t) * b // blocks : len(t) * (b + 1) // blocks]]
            for b in range(blocks)
        ],
    }[order]
    return [row for group in groups for head in group for row in head]


def _undone(index: Sequence[int]) -> list[int]:
    return list(np.argsort(index))


def _along(call: Callable[..., Any], index: Any, undo: bool = False) -> Callable[..., Any]:
    """A function that makes examples of an op that is `numpy.take` along one axis."""

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


def woven(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([r for g in range(3) for r in (a[2 * g : 2 * g + 2], b[g : g + 1])])
