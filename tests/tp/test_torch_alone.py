"""With torch and neither numpy nor ml_dtypes, weights are cut and put together all the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys

for module in ("numpy", "ml_dtypes", "jax"):
    sys.modules[module] = None  # importing it is an ImportError

import torch
from xlayout import tp
from xlayout.errors import ShapeError

for dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn):
    x = {"mlp.up_proj.weight": torch.ones(4, 2).to(dtype), "norm.weight": torch.ones(2).to(dtype)}
    plan = tp.plan(x, 2, rules="llama")
    shards = [tp.shard(x, plan, rank) for rank in range(2)]
    assert all(torch.equal(tp.merge(shards, plan)[name].float(), x[name].float()) for name in x)
    shards[1]["norm.weight"] = torch.zeros(2).to(dtype)
    try:
        tp.merge(shards, plan)
    except ShapeError as error:
        assert "differs from the copy" in str(error)
    else:
        raise AssertionError("not refused")
"""


def test_shards_are_merged_without_numpy() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
