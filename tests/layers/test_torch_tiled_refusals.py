"""Bad arguments of a tiled layer are refused before any work, with the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from xlayout.errors import AxisError, SizeError
from xlayout.torch import TiledLinear, TiledLinearReturnBias


class NoTile(nn.Linear):
    """A tile that is made only if a check comes too late."""

    def __init__(self, *_args: Any, **_options: Any) -> None:
        raise AssertionError("a tile was made")


class Three(nn.Linear):
    """A tile that returns three things."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x), None, None


def made(*args: Any, **options: Any) -> Callable[[], Any]:
    return lambda: TiledLinear(*args, **{"linear_cls": NoTile, **options})


def given(*args: Any, **options: Any) -> Callable[..., Callable[[], Any]]:
    layer = TiledLinear(*args, **options)
    for tile in layer.linears.modules():
        if isinstance(tile, nn.Linear):
            tile.forward = None  # type: ignore[assignment]
    return lambda x: lambda: layer(x)


def copied(other: Any, **options: Any) -> Callable[[], Any]:
    return lambda: TiledLinear(6, 4, **options).copy_params_from(other)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no inputs": (made(0, 4), SizeError, "^in_features: 0; wanted at least 1$"),
    "no outputs": (made(6, 0), SizeError, "^out_features: 0; wanted at least 1$"),
    "half inputs": (made(6.5, 4), TypeError, r"^in_features: 6\.5 is a float; wanted an int$"),
    "no columns": (made(6, 4, in_splits=0), SizeError, "^in_splits: 0; wanted at least 1$"),
    "too many columns": (
        made(6, 4, in_splits=7), SizeError, "^in_splits: 7; wanted 1 to in_features = 6$"
    ),
    "too many rows": (
        made(6, 4, out_splits=5), SizeError, "^out_splits: 5; wanted 1 to out_features = 4$"
    ),
    "a bias that counts": (made(6, 4, 1), TypeError, "^bias: 1; wanted True or False$"),
    "a word for a flag": (
        made(6, 4, combine_out_splits="no"), TypeError, "combine_out_splits: 'no'; wanted True or"
    ),
    "None for a flag": (
        made(6, 4, input_is_already_split=None), TypeError, "input_is_already_split: None; wanted"
    ),
    "a layer for a class": (
        made(6, 4, linear_cls=3), TypeError, "^linear_cls: an int; wanted a class of layers$"
    ),
    "another size": (
        made(6, 4, init_linear=nn.Linear(4, 6)), SizeError,
        r"^init_linear\.weight: shape \(6, 4\); wanted \(4, 6\)$",
    ),
    "no bias": (
        made(6, 4, init_linear=nn.Linear(6, 4, bias=False)), SizeError,
        "^init_linear: it has no bias; this layer has one; make this one with bias=False$",
    ),
    "a bias": (
        made(6, 4, False, init_linear=nn.Linear(6, 4)), SizeError,
        "^init_linear: it has a bias; this layer has none; make this one with bias=True$",
    ),
    "no weight": (
        made(6, 4, init_linear=nn.ReLU()), TypeError,
        r"^init_linear: a torch\.nn\..*ReLU; wanted a layer with a weight, such as torch.nn.Linear",
    ),
    "a tensor to copy": (copied(torch.ones(4, 6)), TypeError, r"^other: a torch\.Tensor; wanted"),
    "another size to copy": (
        copied(nn.Linear(5, 4)), SizeError, r"^other\.weight: shape \(4, 5\); wanted \(4, 6\)$"
    ),
    "too narrow": (
        given(6, 4, in_splits=2)(torch.ones(2, 5)), SizeError,
        "^input_: last axis 5; wanted in_features = 6$",
    ),
    "too wide": (
        given(6, 4, out_splits=2)(torch.ones(7)), SizeError,
        "^input_: last axis 7; wanted in_features = 6$",
    ),
    "a scalar": (given(6, 4)(torch.ones(())), AxisError, r"^input_: no axes; wanted \(\.\.\.,"),
    "an array of numpy's": (
        given(6, 4)(np.ones(6)), TypeError, r"^input_: a numpy\.ndarray; wanted a torch\.Tensor$"
    ),
    "too few parts": (
        given(6, 4, in_splits=2)([torch.ones(6)]), SizeError,
        "^input_: 1 parts; wanted in_splits = 2$",
    ),
    "parts that are not apart": (
        given(6, 4, in_splits=2, input_is_already_split=True)(torch.ones(2, 6)), SizeError,
        r"^input_\[0\]: last axis 6; linears\[0\]\[0\] takes 3$",
    ),
    "a narrow part": (
        given(6, 4, in_splits=2, input_is_already_split=True)([torch.ones(3), torch.ones(2)]),
        SizeError, r"^input_\[1\]: last axis 2; linears\[0\]\[1\] takes 3$",
    ),
    "a part of numpy's": (
        given(6, 4, in_splits=2)([torch.ones(3), np.ones(3)]), TypeError,
        r"^input_\[1\]: a numpy\.ndarray; wanted a torch\.Tensor$",
    ),
    "no bias apart": (
        lambda: TiledLinearReturnBias(6, 4)(torch.ones(6)), TypeError,
        r"^linears\[0\]\[0\]: it returned a torch\.Tensor; wanted a tuple \(output, bias\)",
    ),
    "three results apart": (
        lambda: TiledLinearReturnBias(6, 4, linear_cls=Three)(torch.ones(6)), TypeError,
        r"^linears\[0\]\[0\]: it returned a tuple of 3; wanted a tuple \(output, bias\): Tiled",
    ),
}  # fmt: skip


def other_bias(size: int) -> nn.Linear:
    layer = nn.Linear(6, 4)
    layer.bias = nn.Parameter(torch.ones(size))
    return layer


REFUSED["another bias"] = (
    copied(other_bias(3)), SizeError, r"^other\.bias: shape \(3,\); wanted \(4,\)$",
)  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(what: str) -> None:
    call, error, text = REFUSED[what]
    with pytest.raises(error, match=text):
        call()


def test_a_tile_that_holds_a_part_of_its_weight_is_not_written() -> None:
    class Half(nn.Linear):
        def __init__(self, into: int, out: int, **options: Any) -> None:
            super().__init__(into, out // 2, **options)

    layer = TiledLinear(6, 8, out_splits=2, linear_cls=Half)
    text = r"^linears\[0\]\[0\]\.weight: shape \(2, 6\); wanted \(4, 6\)$"
    for call in (lambda: layer.copy_params_from(nn.Linear(6, 8)), layer.to_linear):
        with pytest.raises(SizeError, match=text):
            call()


@pytest.mark.parametrize("held", ["weight", "bias"])
def test_tiles_of_several_dtypes_are_not_put_together(held: str) -> None:
    layer = TiledLinear(6, 4, in_splits=2)
    tile: Any = layer.linears[0][1]  # type: ignore[index]
    setattr(tile, held, nn.Parameter(getattr(tile, held).bfloat16()))
    text = (
        rf"^linears\[0\]\[0\]\.weight is torch\.float32, linears\[0\]\[1\]\.{held} is "
        r"torch\.bfloat16; wanted one dtype, as after \.to\(dtype\)$"
    )
    with pytest.raises(TypeError, match=text):
        layer.to_linear()
    assert layer.to(torch.float32).to_linear().weight.dtype == torch.float32


@pytest.mark.parametrize(
    "change",
    [
        nn.utils.parametrizations.weight_norm,
        nn.utils.spectral_norm,
        lambda tile: prune.identity(tile, "weight"),
        lambda tile: prune.identity(tile, "bias"),
    ],
    ids=["parametrization", "norm", "pruned weight", "pruned bias"],
)
def test_a_tile_that_computes_its_weight_or_bias_is_not_written(change: Any) -> None:
    layer = TiledLinear(6, 8, in_splits=2)
    tile: Any = layer.linears[0][1]  # type: ignore[index]
    change(tile)
    before = layer.to_linear().weight
    text = (
        r"^linears\[0\]\[1\]: a torch\.nn\..*Linear that computes its weight or bias from other "
        r"parameters \(a parametrization, .* or pruning\), so that a copy to it would be lost; "
        r"copy first, or remove that$"
    )
    with pytest.raises(TypeError, match=text):
        layer.copy_params_from(nn.Linear(6, 8))
    assert torch.equal(layer.to_linear().weight, before)


class Gained(nn.Linear):
    """A layer with parameters beside its own, and named like them."""

    def __init__(self, into: int, out: int, **options: Any) -> None:
        super().__init__(into, out, **options)
        self.weight_gain = self.biased = nn.Parameter(torch.ones(()))


def test_a_tile_with_more_parameters_is_written() -> None:
    dense = nn.Linear(6, 8)
    layer = TiledLinear(6, 8, in_splits=2, linear_cls=Gained, init_linear=dense)
    assert torch.equal(layer.to_linear().weight, dense.weight)
    assert torch.equal(layer.to_linear().bias, dense.bias)
