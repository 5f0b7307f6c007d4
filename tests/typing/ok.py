"""What a consumer may write: a strict type checker finds nothing here."""

from __future__ import annotations

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import xlayout as xl
from xlayout import Layout

x: NDArray[np.float32] = np.zeros((6, 4), np.float32)

layout = Layout.permute((2, 3, 4), (1, 0, 2))
assert_type(layout.inverse() >> layout, Layout)
assert_type(layout.in_shape, tuple[int, ...])
assert_type(str(layout), str)
assert_type(xl.interleave.layout((6, 4), block=1), Layout)
assert_type(xl.interleave(x, block=1), NDArray[np.float32])
