"""An op of which a compiler leaves an axis open: a layout that depends on its size is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax import export

from tests.table import UNCUT
from xlayout.algebra import Layout
from xlayout.errors import SizeError
from xlayout.ops.op import one_to_one


def rest(_ndim: int, _options: dict[str, Any]) -> frozenset[int]:
    return frozenset({1})


@one_to_one(touched=rest)
def shorter(shape: tuple[int, ...], /, **_options: Any) -> Layout:
    """All rows but the last, whose position is unknown."""
    return Layout.slice(shape, 0, shape[0] - 1)


@one_to_one(touched=rest)
def crossed(shape: tuple[int, ...], /, **_options: Any) -> Layout:
    """Every row by a table, which would have an entry for each row."""
    return UNCUT.lift(before=shape[:1])


@pytest.mark.parametrize("op", [shorter, crossed])
def test_a_layout_that_depends_on_an_open_axis_is_refused(op: Callable[..., Any]) -> None:
    (rows,) = export.symbolic_shape("n")
    with pytest.raises(SizeError, match=r"^a dynamic axis: this layout depends on its size; fix"):
        jax.eval_shape(op, jax.ShapeDtypeStruct((rows, 42), np.float32))
    assert jax.eval_shape(op, jax.ShapeDtypeStruct((3, 42), np.float32)).shape[1] == 42
