"""Random shapes, layouts and strided arrays for the laws."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from xlayout.algebra import Layout

SIZES = (1, 2, 3, 4, 5, 6, 8)


def shapes(
    max_size: int = 120, min_axes: int = 0, max_axes: int = 4
) -> SearchStrategy[tuple[int, ...]]:
    """Shapes of at most `max_size` elements, axes of size 1 included."""
    return (
        st.lists(st.sampled_from(SIZES), min_size=min_axes, max_size=max_axes)
        .map(tuple)
        .filter(lambda s: math.prod(s) <= max_size)
    )


@st.composite
def factorisations(draw: DrawFn, n: int) -> tuple[int, ...]:
    """Factors whose product is `n`, in any order, ones included."""
    factors: list[int] = []
    while n > 1:
        d = draw(st.sampled_from([d for d in range(2, n + 1) if n % d == 0]))
        factors.append(d)
        n //= d
    if draw(st.booleans()):
        factors.insert(draw(st.integers(0, len(factors))), 1)
    return tuple(factors)


@st.composite
def permutes(draw: DrawFn, n: int) -> Layout:
    """One gap-free piece: split, permute, merge."""
    split = draw(factorisations(n))
    axes = draw(st.permutations(range(len(split))))
    return Layout.permute(split, axes).regrouped(
        [draw(factorisations(n))], [draw(factorisations(n))]
    )


@st.composite
def bijections(draw: DrawFn, n: int) -> Layout:
    """Permutes, direct sums and regroups of `n` elements, composed a few times."""
    layout = draw(permutes(n))
    for _ in range(draw(st.integers(0, 2))):
        layout = layout >> draw(st.one_of(permutes(n), sums(n)))
    return layout


@st.composite
def sums(draw: DrawFn, n: int) -> Layout:
    """Unequal segments, taken apart and put together group by group."""
    outer = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
    rows = n // outer
    cuts = sorted(draw(st.sets(st.integers(1, rows - 1), max_size=2))) if rows > 1 else []
    widths = [b - a for a, b in zip([0, *cuts], [*cuts, rows], strict=True)]
    parts = " + ".join(f"(g{' ' if outer > 1 else ' '}s{k})" for k in range(len(widths)))
    right = " + ".join(f"s{k}" for k in range(len(widths)))
    sizes = {f"s{k}": w for k, w in enumerate(widths)}
    layout = Layout.parse(f"({parts}) -> (g ({right}))", None, g=outer, **sizes)
    return layout if draw(st.booleans()) else layout.inverse()


@st.composite
def layouts(draw: DrawFn, max_size: int = 96) -> Layout:
    """Anything: bijections, slices, pads, repeats, chains of them."""
    shape = draw(shapes(max_size, min_axes=1).filter(lambda s: math.prod(s) > 0))
    layout = draw(bijections(math.prod(shape))).regrouped(in_shapes=[shape])
    for _ in range(draw(st.integers(0, 2))):
        layout = layout >> draw(steps(layout.out_shape, max_size))
    return layout


@st.composite
def steps(draw: DrawFn, shape: tuple[int, ...], max_size: int) -> Layout:
    """One more layout that fits after `shape`."""
    kind = draw(st.sampled_from(["slice", "pad", "repeat", "bijection"]))
    axis = draw(st.integers(0, len(shape) - 1)) if shape else 0
    n = math.prod(shape)
    if kind == "slice" and shape and shape[axis] > 1:
        start = draw(st.integers(0, shape[axis] - 1))
        return Layout.slice(shape, start, draw(st.integers(start + 1, shape[axis])), axis)
    if kind == "pad" and shape and n * 2 <= max_size:
        return Layout.pad(shape, draw(st.integers(shape[axis], 2 * shape[axis])), axis)
    if kind == "repeat" and n * 2 <= max_size:
        repeat = Layout.parse("(n m) -> n m", (2 * n,), n=2)  # shapes only: (2, n)
        pieces = tuple(type(p)(0, 0, ((2, 0, n), (n, 1, 1))) for p in repeat.pieces)
        return Layout((shape,), ((2, n),), pieces)
    return draw(bijections(n)).regrouped(in_shapes=[shape])


@st.composite
def strided(draw: DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """An array of a shape whose strides may be permuted, stepped, reversed, repeated or odd on size-1 axes."""
    order = draw(st.permutations(range(len(shape))))
    gaps = [draw(st.sampled_from([1, 1, 2])) for _ in shape]
    base = np.arange(math.prod(n * g for n, g in zip(shape, gaps, strict=True)), dtype=np.int64)
    wide = base.reshape([shape[a] * gaps[a] for a in order]).transpose(np.argsort(order))
    array = wide[tuple(slice(None, None, g) for g in gaps)]
    for axis, n in enumerate(shape):
        kind = draw(st.sampled_from(["keep", "keep", "reverse", "repeat"]))
        if kind == "reverse":
            array = np.flip(array, axis)
        elif kind == "repeat" and n > 1:
            array = np.broadcast_to(array.take([0], axis), shape)
    odd = tuple(
        draw(st.sampled_from([8, 24, 0, 1000])) if n == 1 else s
        for n, s in zip(array.shape, array.strides, strict=True)
    )
    return np.lib.stride_tricks.as_strided(array, array.shape, odd)
