"""What a strict type checker must find; each line says what is wrong with it."""

from __future__ import annotations

import numpy as np

import xlayout as xl
from xlayout import Layout

x = np.zeros((6, 4), np.float32)

Layout.permute("23", (1, 0))  # wrong: a shape is integers
Layout.parse(1)  # wrong: a pattern is text
_ = Layout.permute((2, 3), (1, 0)) >> (3, 2)  # wrong: only layouts compose
name = xl.no_such_name  # wrong: not in the surface
xl.interleave(x, 1)  # wrong: options are keyword-only
xl.interleave(x, blocks=1)  # wrong: no such option
xl.interleave(x=x)  # wrong: arrays are positional-only
xl.interleave.layout((6, 4), block="1")  # wrong: a block is an integer
xl.pad(x)  # wrong: to= is missing
xl.stack([x], axis="0")  # wrong: an axis is an integer
