"""Under autocast an op moves elements of every dtype, and casts none."""

from __future__ import annotations

import pytest
import torch

import xlayout as xl
from tests.ops.examples import Example, flat, numbered
from tests.ops.matrix import EXAMPLES

DTYPES = [torch.float8_e4m3fn, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_autocast_changes_nothing(example: Example, dtype: torch.dtype) -> None:
    xs = [torch.from_numpy(x).to(dtype) for x in numbered(example.shapes)]
    wanted = flat(example.call(*xs))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for requires_grad in (False, True):
            made = flat(example.call(*[x.requires_grad_(requires_grad) for x in xs]))
            for y, z in zip(made, wanted, strict=True):
                assert y.dtype is dtype
                assert torch.equal(y.double(), z.double())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("side", [8, 600])
def test_a_compiled_op_may_be_called_in_and_out_of_autocast(side: int, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    call = torch.compile(lambda x, y: xl.stack([x, y], axis=1), backend="aot_eager", fullgraph=True)
    x = torch.arange(side**2).remainder(13).reshape(side, side).to(dtype).requires_grad_()
    for enabled in (False, True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            made = call(x, x.detach())
        assert made.dtype is dtype
        assert torch.equal(made[:, 1].double(), x.double())
        (back,) = torch.autograd.grad(made, x, torch.ones_like(made))
        assert back.double().eq(1).all()


def test_a_device_without_autocast_asks_for_none() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = torch.ones(2, 3, dtype=torch.float16, device="meta")
        assert xl.stack([x, x]).dtype is torch.float16
