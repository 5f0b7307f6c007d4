"""What a user may write: a strict type checker finds nothing to complain about."""

from __future__ import annotations

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import xlayout as xl
from xlayout import Layout

Array = NDArray[np.float32]
x: Array = np.zeros((6, 4), np.float32)

# Layouts: integers in, layouts out.
layout = Layout.permute((2, 3, 4), (1, 0, 2))
assert_type(layout.inverse() >> layout, Layout)
assert_type(layout.in_shape, tuple[int, ...])
assert_type(layout.out_shapes, tuple[tuple[int, ...], ...])
assert_type(layout.is_identity, bool)
assert_type(Layout.parse("(g n) -> (n g)", (6,), g=2), Layout)
assert_type(Layout.from_json(layout.to_json()), Layout)
assert_type(xl.partition(10, 4, rule="ceil"), tuple[int, ...])

# An op knows the array type that it is given, and its options.
assert_type(xl.interleave(x), Array)
assert_type(xl.interleave(x, block=3, groups=2, axis=0, copy=True), Array)
assert_type(xl.interleave(x, copy=None, out=None), Array)
assert_type(xl.interleave.layout((6, 4), block=3), Layout)
assert_type(xl.matrix_transpose(x), Array)
assert_type(xl.permute_dims(x, (1, 0)), Array)
assert_type(xl.pad(x, to=8, value=1), Array)
assert_type(xl.stack([x, x], axis=1), Array)
square = np.ones((4, 4))  # a type with a rank, which these change
one, two, three = xl.stack([square, square]).shape
(only,) = xl.unstack(square)[0].shape
assert_type(xl.tiled_linear(x, xl.to_tiles(x, grid=(2, 2))), Array)
assert_type(xl.tiled_linear([x, x], [[x, x]], x), Array)
assert_type(xl.fuse_qkv(x, x, x, heads=2, kv_heads=2, order="per_head"), Array)
