"""What the kernel runs on: a GPU, or Triton's interpreter on a CPU, which has to be asked for."""

from __future__ import annotations

import importlib.util
import os

import pytest

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TRITON = importlib.util.find_spec("triton") is not None

collect_ignore = [] if TRITON else ["ptx.py", "permuting.py"]
collect_ignore_glob = [] if importlib.util.find_spec("torch") else ["*.py"]


@pytest.fixture(scope="session")
def device() -> str:
    """Where tensors for the kernel are."""
    if not TRITON:
        pytest.skip("Triton is not installed")
    if INTERPRETED:
        return "cpu"
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU; with TRITON_INTERPRET=1 the kernel runs on a CPU")
    return "cuda:0"
