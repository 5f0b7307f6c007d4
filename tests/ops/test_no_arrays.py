"""What is no array, or more than its elements, is refused before anything is done with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import xlayout as xl
from tests.frameworks import Framework
from xlayout import Layout


def test_refuses_what_is_no_array(backend: Framework) -> None:
    for thing in ([1, 2], None, 3, "x"):
        name = type(thing).__name__
        text = rf"expected a torch\.Tensor, jax\.Array or numpy\.ndarray, got builtins\.{name}"
        with pytest.raises(TypeError, match=text):
            xl.interleave(thing)
    x = backend.array(np.zeros(2, np.float32))
    with pytest.raises(TypeError, match=r"got builtins\.list"):
        xl.stack([x, [1, 2]])


def test_refuses_a_tensor_without_strides() -> None:
    dense = torch.zeros(38, 7)  # of a shape that no other test has: what is kept asks no more
    for x, layout in ((dense.to_sparse(), "sparse_coo"), (dense.to_mkldnn(), "_mk")):
        for call in (xl.interleave, lambda x: xl.stack([x, x]), xl.unstack):
            with pytest.raises(
                TypeError, match=rf"^x: a tensor of layout torch\.{layout}.*; wanted"
            ):
                call(x)


def test_refuses_a_scalar_that_is_no_array() -> None:
    for call in (lambda x: xl.permute_dims(x, ()), Layout.identity(())):
        with pytest.raises(TypeError, match=r"^x: a float64 is no array; give np\.asarray\(x\)$"):
            call(np.float64(3))


@pytest.mark.parametrize("call", [xl.interleave, lambda x: xl.stack([x, x]), xl.unstack])
def test_what_numpy_would_not_keep_is_refused(call: Any) -> None:
    masked = np.ma.masked_equal(np.arange(4).reshape(2, 2), 3)
    with pytest.raises(TypeError, match="x: a masked array would lose its mask; give x"):
        call(masked)
    with pytest.raises(TypeError, match="x: a matrix has two axes whatever is done with it; give"):
        call(masked.data.view(np.matrix))
