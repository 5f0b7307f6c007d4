"""Frameworks: those that are installed, and the contest of each, imported only when it is held."""

from __future__ import annotations

from importlib.util import find_spec

from xlayout.bench.answers import Bits
from xlayout.bench.cases import Case
from xlayout.bench.contest import Contest

__all__ = ["FRAMEWORKS", "contest", "installed"]

FRAMEWORKS = ("torch", "jax", "numpy")


def installed() -> tuple[str, ...]:
    """The frameworks that are installed.

    >>> "numpy" in installed()
    True
    """
    return tuple(name for name in FRAMEWORKS if find_spec(name))


def contest(
    framework: str, case: Case, content: Bits, dtype: str, *, threads: int, compiled: bool = True
) -> Contest:
    """The calls of a case on a framework's arrays that hold `content`.

    Args:
        framework: "torch", "jax" or "numpy".
        case: the op at its size.
        content: the elements of all inputs, one after another, as bits.
        dtype: how to read the bits: "bfloat16", "float32" or "uint8" (numpy gets integers).
        threads: how many a memcpy may use.
        compiled: whether `torch.compile` takes part, which needs seconds to compile.
    """
    match framework:
        case "torch":
            from xlayout.bench.by_torch import torch_contest

            return torch_contest(case, content, dtype, threads=threads, compiled=compiled)
        case "jax":
            from xlayout.bench.by_jax import jax_contest

            return jax_contest(case, content, dtype, threads=threads)
        case _:
            from xlayout.bench.by_numpy import numpy_contest

            return numpy_contest(case, content, threads=threads)
