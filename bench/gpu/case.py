"""A case: one question to an accelerator, asked in a process that may crash.

A promise that does not hold is an AssertionError; what a case returns is its finding, in one line.
On a CPU, the cases that make sense there check themselves.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bench.gpu.ask import KEPT

if TYPE_CHECKING:
    import jax

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
LARGE = 1 << 26 if CUDA else 1 << 20  # elements

MODULES = {
    "torch": ("bench.gpu.kernel",),
    "jax": ("bench.gpu.calls", "bench.gpu.promises", "bench.gpu.questions"),
}
"""Framework -> the modules whose cases need it, JAX beside torch."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question, and what it needs to be asked."""

    ask: Callable[[], str]
    on_cpu: bool
    devices: int
    risky: bool
    environment: dict[str, str]

    @property
    def question(self) -> str:
        """The first line of the function's docstring."""
        return (self.ask.__doc__ or "").partition("\n")[0]


CASES: dict[str, Case] = {}


def case(
    *, on_cpu: bool = True, devices: int = 1, risky: bool = False, **environment: str
) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Add a function to the questions; a risky one gets a process of its own."""

    def add(ask: Callable[[], str]) -> Callable[[], str]:
        CASES[ask.__name__] = Case(ask, on_cpu, devices, risky, environment)
        return ask

    return add


def address(x: Any) -> int:
    """Where the memory of a tensor or an array begins."""
    return int(x.data_ptr() if isinstance(x, torch.Tensor) else x.unsafe_buffer_pointer())


def settle() -> None:
    """Wait for all that torch has queued."""
    if CUDA:
        torch.cuda.synchronize()


def stall(milliseconds: int = 200) -> None:
    """Keep torch's current stream busy, so that what is queued next is late."""
    if CUDA:
        torch.cuda._sleep(milliseconds * 1_500_000)  # cycles


def busy(x: jax.Array) -> jax.Array:
    """Keep JAX's stream busy; the result is zero, but no compiler can tell."""
    import jax

    return jax.lax.fori_loop(0, 200, lambda _, y: y @ y * 1e-4, x).sum() * 0


def raised(call: Callable[[], Any], wanted: type[Exception]) -> str:
    """The first line of the error that `call` must raise."""
    try:
        call()
    except wanted as error:
        return str(error).partition("\n")[0][:90]
    raise AssertionError(f"no {wanted.__name__}")


def torch_here() -> dict[str, Any]:
    """What the answers depend on, as torch sees it."""
    return {
        "device": torch.cuda.get_device_name() if CUDA else "cpu",
        "devices": torch.cuda.device_count() if CUDA else 1,
        "python": sys.version.partition(" ")[0],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "numpy": np.__version__,
    }


def jax_here() -> dict[str, Any]:
    """What the answers depend on, as JAX sees it."""
    import jax

    devices = jax.devices("gpu" if CUDA else "cpu")
    return {
        "devices": len(devices),
        "platform": devices[0].platform,
        "memory_kinds": [memory.kind for memory in devices[0].addressable_memories()],
        "jax": jax.__version__,
        "tfrt": os.environ.get("XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT", "unset"),
    }


def main(what: str, *arguments: str) -> None:
    """Print as JSON what can be asked of a framework, or a line for each answer."""
    faulthandler.enable()
    if what == "list":
        print(json.dumps(listed(*arguments)))
        return
    module, seconds, *names = arguments
    watched(float(seconds))
    importlib.import_module(module)
    for name in names:
        watched(float(seconds))
        print(json.dumps({"case": name, **answered(name)}), flush=True)
    faulthandler.cancel_dump_traceback_later()


def watched(seconds: float) -> None:
    """End this process after some time, from a separate thread that no call can hold up."""
    faulthandler.dump_traceback_later(seconds, exit=True)


def answered(name: str) -> dict[str, Any]:
    """The answer; an error that is no failed assertion may have harmed the process, and ends it."""
    try:
        return {"verdict": "ok", "finding": CASES[name].ask()}
    except AssertionError as error:
        finding = " ".join(str(error).split())[:200] or "an assertion"
        told = traceback.format_exc().splitlines()[-KEPT:]
        return {"verdict": "FAILS", "finding": finding, "stderr": told}


def listed(framework: str) -> dict[str, Any]:
    """The cases that need a framework, and what it sees here."""
    here = torch_here() if framework == "torch" else jax_here()
    for module in MODULES[framework]:
        importlib.import_module(module)
    cases = {
        name: {
            "question": case.question,
            "module": case.ask.__module__,
            "part": case.ask.__module__.rpartition(".")[2],
            "on_cpu": case.on_cpu,
            "devices": case.devices,
            "alone": case.risky or bool(case.environment),
            "environment": case.environment,
        }
        for name, case in CASES.items()
    }
    return {"cases": cases, "here": here}
