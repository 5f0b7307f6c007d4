"""What is not an array, or is more than its elements, is refused before anything is done."""

from __future__ import annotations

import re
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


def test_refuses_what_torch_has_beside_tensors() -> None:
    for thing, text in (
        (torch.nn.Linear(2, 2), "Linear; wanted a torch.Tensor, as x.weight$"),
        (torch.float32, "dtype; wanted a torch.Tensor$"),
    ):
        for name, call in (
            ("x", xl.interleave),
            ("xs[0]", lambda x: xl.stack([x])),
            ("arrays[0]", Layout.identity((2,))),
        ):
            with pytest.raises(TypeError, match=f"^{re.escape(name)}: {text}"):
                call(thing)


OPS: list[tuple[str, Any]] = [
    ("x", xl.interleave),
    ("x", xl.matrix_transpose),
    ("x", xl.unstack),
    ("x", lambda x: xl.pad(x, to=700)),
    ("xs[0]", lambda x: xl.stack([x, x])),
    ("xs[0]", lambda x: xl.stack([x, x], axis=-1)),
    ("q", lambda x: xl.fuse_qkv(x, x, x, heads=2, kv_heads=2)),
    ("x", lambda x: xl.to_tiles(x, grid=(2, 1))),
    ("arrays[0]", lambda x: xl.matrix_transpose.layout(x.shape)(x)),
    ("arrays[0]", lambda x: xl.stack.layout([x.shape] * 2)(x, x)),
]


@pytest.mark.parametrize("size", [38, 400])
@pytest.mark.parametrize("form", ["to_sparse", "to_mkldnn"])
def test_refuses_a_tensor_without_strides(form: str, size: int) -> None:
    dense = torch.zeros(size, 298)
    for name, call in OPS:
        text = rf"^{re.escape(name)}: a tensor of layout torch\.\w+; wanted"
        for _ in range(2):  # the first time, and where dense ones have gone the way
            with pytest.raises(TypeError, match=text):
                call(getattr(dense, form)())
            call(dense)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_refuses_a_nested_tensor() -> None:
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    text = r"a nested tensor; wanted one array, as x\.to_padded_tensor\(0\)$"
    turned = xl.matrix_transpose.layout((2, 3))
    for name, call in (
        ("x", xl.interleave),
        ("x", xl.matrix_transpose),
        ("xs[0]", lambda x: xl.stack([x, x])),
        ("xs[1]", lambda x: xl.stack([torch.ones(2, 3), x])),
        ("arrays[0]", turned),
    ):
        with pytest.raises(TypeError, match=f"^{re.escape(name)}: {text}"):
            call(x)
    for _ in range(2):
        with pytest.raises(TypeError, match=f"^out: {text}"):
            xl.matrix_transpose(torch.zeros(2, 3), out=x)
        xl.matrix_transpose(torch.zeros(2, 3), out=torch.zeros(3, 2))


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
def test_scales_of_channels_would_not_move_along() -> None:
    """Torch refuses some steps, and makes a tensor that it cannot read of others."""
    dense = torch.arange(24.0).reshape(4, 6)
    x = torch.quantize_per_tensor(dense, 0.5, 0, torch.quint8)
    channels = torch.quantize_per_channel(dense, torch.ones(4), torch.zeros(4), 0, torch.quint8)
    split = "(a b) c -> a b c"
    for name, call in (
        ("x", xl.matrix_transpose),
        ("x", lambda y: xl.rearrange(y, split, a=2)),
        ("x", lambda y: xl.rearrange(y, split, a=2, copy=None)),
        ("xs[0]", lambda y: xl.stack([y, y])),
        ("xs[1]", lambda y: xl.stack([x, y])),
        ("arrays[0]", xl.matrix_transpose.layout((4, 6))),
    ):
        text = rf"^{re.escape(name)}: a tensor with a scale for each channel, .* x\.int_repr\(\)"
        for _ in range(2):
            with pytest.raises(TypeError, match=text):
                call(channels)
            call(x)  # which has the same shape and dtype


def test_refuses_a_scalar_that_is_no_array() -> None:
    for name, call in (
        ("x", lambda x: xl.permute_dims(x, ())),
        ("arrays[0]", Layout.identity(())),
        ("v", lambda x: xl.fuse_qkv(np.ones(2), np.ones(2), x, heads=1, kv_heads=1)),
        ("tiles[1]", lambda x: xl.from_tiles([[np.ones((2, 2)), x]])),
    ):
        scalar = r"the scalar np\.float64\(3\.0\); wanted an array, as np\.asarray\(x\)"
        text = rf"^{re.escape(name)}: {scalar}$"
        with pytest.raises(TypeError, match=text):
            call(np.float64(3))


@pytest.mark.parametrize(
    ("name", "call"),
    [("x", xl.interleave), ("xs[0]", lambda x: xl.stack([x, x])), ("x", xl.unstack)],
)
def test_what_numpy_would_not_keep_is_refused(name: str, call: Any) -> None:
    masked = np.ma.masked_equal(np.arange(4).reshape(2, 2), 3)
    named = f"^{re.escape(name)}: "
    with pytest.raises(TypeError, match=f"{named}a masked array would lose its mask; give x"):
        call(masked)
    text = "a matrix has two axes whatever is done with it; give"
    with pytest.raises(TypeError, match=named + text):
        call(masked.data.view(np.matrix))


def test_refuses_no_arrays_and_no_shapes() -> None:
    with pytest.raises(xl.ShapeError, match=r"^layout: takes 1 arrays, 0 given$"):
        Layout.identity((8, 3))()
    with pytest.raises(xl.SizeError, match=r"^xs: no arrays; give at least one$"):
        xl.stack.layout([])
