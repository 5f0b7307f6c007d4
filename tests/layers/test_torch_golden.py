"""DeepSpeed's tiled layer, as recorded: the same outputs, edges of tiles, parameters and names."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from tests.golden import Case, cases
from xlayout.errors import SizeError
from xlayout.torch import TiledLinear, TiledLinearReturnBias

RECORDED = cases("tiled_linear")


def found(pattern: str) -> list[Any]:
    return [pytest.param(c, id=c.id) for c in RECORDED if re.fullmatch(pattern, c.id)]


def dense(case: Case) -> nn.Linear:
    weight, bias = (None if v is None else nn.Parameter(torch.from_numpy(v))
                    for v in (case.inputs["weight"], case.inputs["bias"]))  # fmt: skip
    assert weight is not None
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight, layer.bias = weight, bias  # type: ignore[assignment]
    return layer


@pytest.mark.parametrize("case", found(r"tiled/\d+"))
def test_as_recorded(case: Case) -> None:
    layer = TiledLinear(**case.params, init_linear=dense(case))
    want = case.expected
    assert np.array_equal(layer(torch.from_numpy(case.inputs["x"])).detach().numpy(), want["out"])
    assert (layer.in_parts, layer.out_parts) == (want["in_parts"], want["out_parts"])
    if want["tiles"] is not None:
        state = {name: held.numpy() for name, held in layer.state_dict().items()}
        assert state.keys() == want["tiles"].keys()
        assert all(np.array_equal(state[name], held) for name, held in want["tiles"].items())


class Apart(nn.Linear):
    def forward(self, x: torch.Tensor) -> Any:
        return linear(x, self.weight), self.bias


@pytest.mark.parametrize("case", found(r"tiled_returnbias/\d+"))
def test_a_bias_apart_as_recorded(case: Case) -> None:
    params = {**case.params, "linear_cls": Apart}
    layer = TiledLinearReturnBias(**params, init_linear=dense(case))
    made = layer(torch.from_numpy(case.inputs["x"]))
    for one, want in zip(made, case.expected, strict=True):
        assert np.array_equal(one.detach().numpy(), want)


def test_refuses_what_it_refuses() -> None:
    assert {c.id for c in RECORDED if c.error} == {
        "tiled_err/zero", "tiled_err/bias_mismatch", "tiled_err/wrong_split_count",
    }  # fmt: skip
    with pytest.raises(SizeError, match="out_splits: 0; wanted at least 1"):
        TiledLinear(10, 7, out_splits=0)
    with pytest.raises(SizeError, match="init_linear: it has no bias; this layer has one"):
        TiledLinear(10, 7, init_linear=nn.Linear(10, 7, bias=False))
    with pytest.raises(SizeError, match="input_: 3 parts; wanted in_splits = 4"):
        TiledLinear(10, 7, in_splits=4, input_is_already_split=True)([torch.ones(3)] * 3)
