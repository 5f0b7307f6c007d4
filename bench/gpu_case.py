"""A case: one question about exchange on an accelerator, asked in a process of its own.

A promise that does not hold is an AssertionError; what a case returns is its finding, in one line.
With a CPU for a device, the cases that make sense there check themselves.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
LARGE = 1 << 26 if CUDA else 1 << 20  # elements


@dataclass(frozen=True, slots=True)
class Case:
    """One question, and what it needs to be asked."""

    ask: Callable[[], str]
    on_cpu: bool
    devices: int
    environment: dict[str, str]

    @property
    def question(self) -> str:
        """The first line of the function's docstring."""
        return (self.ask.__doc__ or "").partition("\n")[0]


CASES: dict[str, Case] = {}


def case(
    *, on_cpu: bool = True, devices: int = 1, **environment: str
) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Add a function to the questions."""

    def add(ask: Callable[[], str]) -> Callable[[], str]:
        CASES[ask.__name__] = Case(ask, on_cpu, devices, environment)
        return ask

    return add


def address(x: Any) -> int:
    """Where the memory of a tensor or an array begins."""
    return int(x.data_ptr() if isinstance(x, torch.Tensor) else x.unsafe_buffer_pointer())


def settle() -> None:
    """Wait for everything torch has queued."""
    if CUDA:
        torch.cuda.synchronize()


def stall(milliseconds: int = 200) -> None:
    """Keep torch's current stream busy, so that what is queued next is late."""
    if CUDA:
        torch.cuda._sleep(milliseconds * 1_500_000)  # cycles


def busy(x: jax.Array) -> jax.Array:
    """Keep JAX's stream busy; zero, but no compiler knows it."""
    return jax.lax.fori_loop(0, 200, lambda _, y: y @ y * 1e-4, x).sum() * 0


def raised(call: Callable[[], Any], wanted: type[Exception]) -> str:
    """The first line of the error that `call` must raise."""
    try:
        call()
    except wanted as error:
        return str(error).partition("\n")[0][:90]
    raise AssertionError(f"no {wanted.__name__}")


def surroundings() -> dict[str, Any]:
    """What the answers depend on."""
    devices = jax.devices("gpu") if CUDA else jax.devices("cpu")
    return {
        "device": torch.cuda.get_device_name() if CUDA else "cpu",
        "devices": len(devices),
        "platform": devices[0].platform,
        "memory_kinds": [memory.kind for memory in devices[0].addressable_memories()],
        "python": sys.version.partition(" ")[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "tfrt": os.environ.get("XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT", "unset"),
    }


def main(name: str) -> None:
    """Print one answer as JSON; for `list`, what there is to ask."""
    if name == "list":
        cases = {
            key: {
                "question": value.question,
                "part": value.ask.__module__.rpartition("_")[2],
                "on_cpu": value.on_cpu,
                "devices": value.devices,
                "environment": value.environment,
            }
            for key, value in CASES.items()
        }
        print(json.dumps({"cases": cases, "surroundings": surroundings()}))
        return
    try:
        print(json.dumps({"verdict": "ok", "finding": CASES[name].ask()}))
    except AssertionError as error:
        print(json.dumps({"verdict": "FAILS", "finding": str(error) or "an assertion"}))
