"""A size that follows from data stays open in one graph, however an array of that size lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import xlayout as xl

Op = Callable[[Any], Any]

OPS: dict[str, Op] = {
    "matrix_transpose": xl.matrix_transpose,
    "interleave": lambda x: xl.interleave(x, axis=1),
    "pad": lambda x: xl.pad(x, to=6, axis=1),
    "stack": lambda x: xl.stack([x, x], axis=1),
    "unstack": lambda x: xl.unstack(x, axis=1)[2],
    "split_qkv": lambda x: xl.split_qkv(x, heads=2, kv_heads=1, axis=1)[0],
    "rearrange": lambda x: xl.rearrange(x, "b (h d) -> (b h) d", h=2),
}


class Model(torch.nn.Module):
    """An op on the first columns of the rows that begin with a positive number."""

    def __init__(self, op: Op) -> None:
        super().__init__()
        self.op = op

    def forward(self, x: Any) -> Any:
        return self.op(x[x[:, 0] > 0][:, :4])


@pytest.fixture(autouse=True)
def sizes_from_data() -> Iterator[None]:
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield
    torch._dynamo.reset()


def compiled(model: Model, _x: Any) -> Callable[..., Any]:
    return torch.compile(model, fullgraph=True, backend="eager")


def exported(model: Model, x: Any) -> Callable[..., Any]:
    return torch.export.export(model, (x,), strict=False).module()


def exported_strictly(model: Model, x: Any) -> Callable[..., Any]:
    return torch.export.export(model, (x,), strict=True).module()


@pytest.mark.parametrize("by", [compiled, exported, exported_strictly])
@pytest.mark.parametrize("name", OPS)
def test_it_stays_open(name: str, by: Callable[[Model, Any], Callable[..., Any]]) -> None:
    x = torch.randn(10, 8)
    model = Model(OPS[name])
    call = by(model, x)
    for rows in (x, x.abs(), -x.abs()):
        assert torch.equal(call(rows), model(rows))


def test_an_array_may_be_of_known_size_where_its_strides_follow_from_data() -> None:
    def column(x: Any) -> Any:
        return xl.interleave(x[:, x[0] > 0][:, 0])

    x = torch.randn(8, 10).abs()
    assert torch.equal(torch.compile(column, fullgraph=True, backend="eager")(x), column(x))
