"""Random shapes, layouts, equivalent forms of a layout, and strided memory, for the laws."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from xlayout.algebra import Layout, Piece
from xlayout.algebra.piece import are_nested

SIZES = (1, 2, 3, 4, 5, 6, 8)

Shape = tuple[int, ...]


def shapes(max_size: int = 120, min_axes: int = 0, max_axes: int = 4) -> SearchStrategy[Shape]:
    """Shapes of at most `max_size` elements, axes of size 1 included."""
    return (
        st.lists(st.sampled_from(SIZES), min_size=min_axes, max_size=max_axes)
        .map(tuple)
        .filter(lambda s: math.prod(s) <= max_size)
    )


@st.composite
def factorisations(draw: DrawFn, n: int) -> Shape:
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
def stretches(draw: DrawFn, n: int, most: int) -> list[int]:
    """At most `most` sizes of at least 1 that add up to `n`."""
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), max_size=most - 1))) if n > 1 else []
    return [b - a for a, b in zip([0, *cuts], [*cuts, n], strict=True)]


# -- layouts ---------------------------------------------------------------------------------------


@st.composite
def permutes(draw: DrawFn, n: int) -> Layout:
    """One gap-free piece: split, permute, merge."""
    split = draw(factorisations(n))
    axes = draw(st.permutations(range(len(split))))
    return Layout.permute(split, axes).regrouped(
        [draw(factorisations(n))], [draw(factorisations(n))]
    )


@st.composite
def sums(draw: DrawFn, n: int) -> Layout:
    """Unequal segments, split and put together again group by group."""
    outer = draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0]))
    widths = draw(stretches(n // outer, most=3))
    parts = " + ".join(f"(g s{k})" for k in range(len(widths)))
    right = " + ".join(f"s{k}" for k in range(len(widths)))
    sizes = {f"s{k}": w for k, w in enumerate(widths)}
    layout = Layout.parse(f"({parts}) -> (g ({right}))", None, g=outer, **sizes)
    return layout if draw(st.booleans()) else layout.inverse()


@st.composite
def bijections(draw: DrawFn, n: int) -> Layout:
    """Permutes and direct sums of `n` elements, composed a few times."""
    layout = draw(permutes(n))
    for _ in range(draw(st.integers(0, 2))):
        layout = layout >> draw(st.one_of(permutes(n), sums(n)))
    return layout


@st.composite
def layouts(draw: DrawFn, max_size: int = 96, repeats: bool = True) -> Layout:
    """Any layout of one array: bijections, slices, pads, repeats, and chains of these."""
    shape = draw(shapes(max_size, min_axes=1))
    layout = draw(bijections(math.prod(shape))).regrouped(in_shapes=[shape])
    for _ in range(draw(st.integers(0, 2))):
        layout = layout >> draw(steps(layout.out_shape, max_size, repeats))
    return layout


@st.composite
def steps(draw: DrawFn, shape: Shape, max_size: int, repeats: bool = True) -> Layout:
    """One more layout, for an input of this shape."""
    kinds = ["slice", "pad", "bijection", "repeat" if repeats else "bijection"]
    kind = draw(st.sampled_from(kinds))
    axis = draw(st.integers(0, len(shape) - 1)) if shape else 0
    n = math.prod(shape)
    if kind == "slice" and shape and shape[axis] > 1:
        start = draw(st.integers(0, shape[axis] - 1))
        return Layout.slice(shape, start, draw(st.integers(start + 1, shape[axis])), axis)
    if kind == "pad" and shape and n * 2 <= max_size:
        return Layout.pad(shape, draw(st.integers(shape[axis], 2 * shape[axis])), axis)
    if kind == "repeat" and n * 2 <= max_size:
        return Layout((shape,), ((2, n),), (Piece(0, 0, ((2, 0, n), (n, 1, 1))),))
    return draw(bijections(n)).regrouped(in_shapes=[shape])


@st.composite
def several(draw: DrawFn, max_size: int = 72, repeats: bool = True) -> Layout:
    """A layout with one to three arrays on either side."""
    layout = draw(layouts(max_size, repeats))
    return layout.regrouped(
        [draw(factorisations(n)) for n in draw(stretches(layout.in_size, most=3))],
        [draw(factorisations(n)) for n in draw(stretches(layout.out_size, most=3))],
    )


@st.composite
def patchworks(draw: DrawFn) -> Layout:
    """A few pieces of any strides, side by side and interleaved, with holes and repeats."""
    in_size, out_size = draw(st.integers(1, 24)), draw(st.integers(1, 24))
    strides = st.sampled_from([1, 1, 2, 3, 4, 6, 8])
    loops = st.tuples(st.integers(1, 4), st.one_of(st.just(0), strides), strides)
    written: set[int] = set()
    pieces = []
    for _ in range(draw(st.integers(1, 5))):
        found = draw(st.lists(loops, max_size=2))
        if not are_nested(found):
            continue
        first = Piece(draw(st.integers(0, in_size - 1)), draw(st.integers(0, out_size - 1)), found)
        outputs = {first.out_offset}
        for n, _, z in first.loops:
            outputs = {o + k * z for o in outputs for k in range(n)}
        if first.in_end <= in_size and first.out_end <= out_size and not outputs & written:
            written |= outputs
            pieces.append(first)
    layout = Layout(((in_size,),), ((out_size,),), pieces)
    return layout.regrouped([draw(factorisations(in_size))], [draw(factorisations(out_size))])


# -- the same map, written another way -------------------------------------------------------------


@st.composite
def recut(draw: DrawFn, layout: Layout) -> tuple[Piece, ...]:
    """The same pairs as a layout's, in pieces cut at random and in any order."""
    pieces = list(layout.pieces)
    for _ in range(draw(st.integers(0, 6))):
        cuttable = [k for k, p in enumerate(pieces) if p.loops]
        if not cuttable:
            break
        piece = pieces.pop(draw(st.sampled_from(cuttable)))
        number = draw(st.integers(0, len(piece.loops) - 1))
        n, x, z = piece.loops[number]
        rest = piece.loops[:number] + piece.loops[number + 1 :]
        at = draw(st.integers(1, n - 1))
        pieces.append(Piece(piece.in_offset, piece.out_offset, (*rest, (at, x, z))))
        moved = piece.in_offset + at * x, piece.out_offset + at * z
        pieces.append(Piece(*moved, (*rest, (n - at, x, z))))
    return tuple(draw(st.permutations(pieces)))


# -- memory ----------------------------------------------------------------------------------------


@st.composite
def memory_strides(draw: DrawFn, shape: Shape) -> Shape:
    """Strides in memory, in elements: permuted, with gaps, reversed, repeated or arbitrary.

    Axes of size 1 may have any stride at all.
    """
    strides = [0] * len(shape)
    step = draw(st.sampled_from([1, 1, 1, 2, 3]))
    inner_first = list(range(len(shape)))[::-1]
    if draw(st.booleans()):
        inner_first = draw(st.permutations(inner_first))
    for axis in inner_first:
        strides[axis] = step
        step *= shape[axis] * draw(st.sampled_from([1, 1, 1, 2]))
        if shape[axis] == 1:
            strides[axis] = draw(st.sampled_from([0, 1, 7, -3, 1000]))
        elif draw(st.integers(0, 3)) == 0:
            strides[axis] = draw(st.sampled_from([0, -strides[axis], 1, 5]))
    return tuple(strides)


@st.composite
def strided(draw: DrawFn, shape: Shape) -> np.ndarray:
    """An array whose strides may be permuted, stepped, reversed, repeated, or odd on axes of 1."""
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
