"""Cases: the ops that are raced, each for any number of elements, as xlayout and by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from xlayout.algebra.shapes import Shape
from xlayout.bench.case import WIDTH, Case
from xlayout.bench.edges import pad_columns, pad_rows, trim_columns
from xlayout.bench.hands import Cut, Join, Permute, Stack
from xlayout.ops import (
    deinterleave,
    from_tiles,
    fuse_qkv,
    interleave,
    matrix_transpose,
    rearrange,
    rope_halves,
    rope_pairs,
    split_qkv,
    stack,
    to_tiles,
    unstack,
)

__all__ = ["CASES", "Case", "make_case"]

LAYERS = 32
PARTS = 8
HEADS: dict[str, Any] = {"heads": 32, "kv_heads": 8}
COLOURS, SIDE, PATCH = 3, 14, 16  # of an image: channels, patches along a side, pixels along theirs


@dataclass(frozen=True, slots=True)
class _Op:
    family: str
    make: Callable[[int], Case]


def make_case(op: str, count: int) -> Case:
    """The case of an op on about `count` elements.

    >>> make_case("transpose", 1 << 20).layout.in_shape
    (1024, 1024)
    """
    return CASES[op].make(count)


def _rows(count: int) -> Shape:
    return count // WIDTH // 64 * 64, WIDTH


def _interleave_rows(count: int) -> Case:
    rows, width = shape = _rows(count)
    return Case(
        interleave.layout(shape),
        interleave,
        Permute((2, rows // 2, width), (1, 0, 2)),
        ("(g n) c -> (n g) c", {"g": 2}),
    )


def _rope_weights(count: int) -> Case:
    rows, width = shape = _rows(count)
    heads = HEADS["heads"]
    return Case(
        rope_halves.layout(shape, heads=heads),
        lambda x, **o: rope_halves(x, heads=heads, **o),
        Permute((heads, rows // heads // 2, 2, width), (0, 2, 1, 3)),
        ("(h n two) c -> (h two n) c", {"h": heads, "two": 2}),
    )


def _qkv(count: int) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    """Shapes of queries, keys and values, 4 to 1 to 1; and the same, viewed group by group."""
    unit = count // WIDTH // 96 * 16
    shapes = tuple((n * unit, WIDTH) for n in (4, 1, 1))
    groups = HEADS["kv_heads"]
    return shapes, tuple((groups, rows // groups, WIDTH) for rows, _ in shapes)


def _fuse_qkv(count: int) -> Case:
    shapes, grouped = _qkv(count)
    return Case(
        fuse_qkv.layout(*shapes, **HEADS),
        lambda q, k, v, **o: fuse_qkv(q, k, v, **HEADS, **o),
        Join(grouped, 1),
    )


def _split_qkv(count: int) -> Case:
    shapes, grouped = _qkv(count)
    sizes = tuple(n for _, n, _ in grouped)
    return Case(
        split_qkv.layout((sum(rows for rows, _ in shapes), WIDTH), **HEADS),
        lambda x, **o: split_qkv(x, **HEADS, **o),
        Cut((HEADS["kv_heads"], sum(sizes), WIDTH), 1, sizes),
    )


def _stack_layers(count: int) -> Case:
    shapes = [(count // WIDTH // LAYERS, WIDTH)] * LAYERS
    return Case(
        stack.layout(shapes),
        lambda *xs, **o: stack(xs, **o),
        Stack(),
        ("n a b -> n a b", {}),
    )


def _merge_columns(count: int) -> Case:
    shapes = [(count // WIDTH, WIDTH // PARTS)] * PARTS
    return Case(
        from_tiles.layout([shapes]),
        lambda *xs, **o: from_tiles([xs], **o),
        Join(tuple(shapes), 1),
        ("n a b -> a (n b)", {}),
    )


def _split_columns(count: int) -> Case:
    shape = (count // WIDTH, WIDTH)
    layout = to_tiles.layout(shape, grid=(1, PARTS))
    return Case(
        layout,
        lambda x, **o: layout(x, **o) if o else to_tiles(x, grid=(1, PARTS))[0],
        Cut(shape, 1, (WIDTH // PARTS,) * PARTS),
        ("a (n b) -> n a b", {"n": PARTS}),
    )


def _zip(count: int) -> Case:
    rows, width = shape = _rows(count)
    return Case(
        interleave.layout(shape, axis=1),
        lambda x, **o: interleave(x, axis=1, **o),
        Permute((rows, 2, width // 2), (0, 2, 1)),
        ("r (g n) -> r (n g)", {"g": 2}),
    )


def _stack_last(parts: int) -> Callable[[int], Case]:
    def made(count: int) -> Case:
        shapes = [(count // WIDTH, WIDTH // parts)] * parts
        return Case(
            stack.layout(shapes, axis=-1),
            lambda *xs, **o: stack(xs, axis=-1, **o),
            Stack(2),
            ("n a b -> a b n", {}),
        )

    return made


def _unstack_pairs(count: int) -> Case:
    shape = count // WIDTH, WIDTH // 2, 2
    return Case(
        unstack.layout(shape, axis=-1),
        lambda x, **o: unstack(x, axis=-1, **o),
        Cut(shape, 2, (1, 1)),
        ("a b n -> n a b", {}),
    )


def _unzip(block: int) -> Callable[[int], Case]:
    def made(count: int) -> Case:
        rows, width = shape = _rows(count)
        return Case(
            deinterleave.layout(shape, block=block, axis=1),
            lambda x, **o: deinterleave(x, block=block, axis=1, **o),
            Permute((rows, width // 2 // block, 2, block), (0, 2, 1, 3)),
            ("r (n g b) -> r (g n b)", {"g": 2, "b": block}),
        )

    return made


def _rope_activations(count: int) -> Case:
    rows, width = shape = _rows(count)
    return Case(
        rope_halves.layout(shape, heads=64, axis=1),
        lambda x, **o: rope_halves(x, heads=64, axis=1, **o),
        Permute((rows, 64, width // 128, 2), (0, 1, 3, 2)),
        ("r (h n two) -> r (h two n)", {"h": 64, "two": 2}),
    )


def _transposed(shape: Callable[[int], Shape]) -> Callable[[int], Case]:
    def made(count: int) -> Case:
        full = shape(count)
        last = len(full) - 1
        return Case(
            matrix_transpose.layout(full),
            matrix_transpose,
            Permute(full, (*range(last - 1), last, last - 1)),
            ("... a b -> ... b a", {}),
        )

    return made


def _rope_and_transpose(count: int) -> Case:
    rows, width = shape = _rows(count)
    heads = HEADS["heads"]
    layout = rope_pairs.layout(shape, heads=heads) >> matrix_transpose.layout(shape)
    return Case(
        layout,
        layout,
        Permute((heads, 2, rows // heads // 2, width), (3, 0, 2, 1)),
        ("(h two n) c -> c (h n two)", {"h": heads, "two": 2}),
    )


def _patched(count: int) -> Case:
    return _rearranged(
        "b c (h p) (w q) -> b (h w) (p q c)",
        (images := _images(count), COLOURS, SIDE * PATCH, SIDE * PATCH),
        Permute((images, COLOURS, SIDE, PATCH, SIDE, PATCH), (0, 2, 4, 3, 5, 1)),
    )


def _unpatched(count: int) -> Case:
    return _rearranged(
        "b (h w) (p q c) -> b c (h p) (w q)",
        (images := _images(count), SIDE * SIDE, PATCH * PATCH * COLOURS),
        Permute((images, SIDE, SIDE, PATCH, PATCH, COLOURS), (0, 5, 1, 3, 2, 4)),
    )


def _images(count: int) -> int:
    return count // COLOURS // (SIDE * PATCH) ** 2


def _rearranged(pattern: str, shape: Shape, hand: Permute) -> Case:
    sizes: dict[str, Any] = {"h": SIDE, "p": PATCH, "q": PATCH}
    layout = rearrange.layout(shape, pattern, **sizes)
    return Case(layout, lambda x, **o: rearrange(x, pattern, **sizes, **o), hand, (pattern, sizes))


def _square(count: int) -> Shape:
    side = 1 << (count.bit_length() - 1) // 2
    return side, count // side


def _odd(count: int) -> Shape:
    side = math.isqrt(count)
    return side - 7, side - 3


CASES: dict[str, _Op] = {
    "interleave rows": _Op("rows", _interleave_rows),
    "rope on weights": _Op("rows", _rope_weights),
    "fuse qkv": _Op("rows", _fuse_qkv),
    "split qkv": _Op("rows", _split_qkv),
    "stack layers": _Op("rows", _stack_layers),
    "merge columns": _Op("rows", _merge_columns),
    "split columns": _Op("rows", _split_columns),
    "zip": _Op("zips", _zip),
    "unzip": _Op("zips", _unzip(1)),
    "unzip by 32": _Op("zips", _unzip(32)),
    "rope on activations": _Op("zips", _rope_activations),
    "stack pairs": _Op("zips", _stack_last(2)),
    "unstack pairs": _Op("zips", _unstack_pairs),
    "transpose": _Op("transposes", _transposed(_square)),
    "transpose, odd": _Op("transposes", _transposed(_odd)),
    "transpose, 3 columns": _Op("transposes", _transposed(lambda n: (n // 3, 3))),
    "stack eights": _Op("transposes", _stack_last(8)),
    "transpose, 64 experts": _Op("transposes", _transposed(lambda n: (64, n // 64 // 512, 512))),
    "rope and transpose": _Op("compounds", _rope_and_transpose),
    "images to patches": _Op("compounds", _patched),
    "patches to images": _Op("compounds", _unpatched),
    "pad rows": _Op("edges", pad_rows),
    "pad columns": _Op("edges", pad_columns),
    "trim columns": _Op("edges", trim_columns),
}
"""Name -> family and maker, for any number of elements from about a million."""
