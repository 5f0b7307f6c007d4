"""Here: which frameworks start on this machine, what they see, and what there is to ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bench.gpu.ask import ASK, SECONDS, lines_of, rows_of

__all__ = ["ON_CPU", "ON_CUDA", "Here", "here"]

ON_CUDA = {"JAX_PLATFORMS": "cuda,cpu"}
ON_CPU = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}


@dataclass(frozen=True, slots=True)
class Here:
    """What this machine has.

    Args:
        where: what the answers depend on: the device, and the versions.
        cases: name -> case, of the frameworks that start.
        environment: variables with which JAX sees the accelerator, if any, besides the CPU.
        no_torch: why torch does not start; empty if it does.
        no_jax: the same for JAX.
    """

    where: dict[str, Any]
    cases: dict[str, Any]
    environment: dict[str, str]
    no_torch: str = ""
    no_jax: str = ""

    @property
    def cuda(self) -> bool:
        """Whether torch sees an accelerator."""
        return bool(self.where) and self.where["device"] != "cpu"


def here() -> Here:
    """Start each framework once, in a process of its own."""
    torch, no_torch = _listed("torch", {})
    if no_torch:
        return Here({}, {}, {}, no_torch=no_torch)
    where, cases = torch["here"], torch["cases"]
    cuda = where["device"] != "cpu"
    environment = ON_CUDA if cuda else ON_CPU
    jax, no_jax = _listed("jax", environment)
    if no_jax:
        return Here(where, cases, environment, no_jax=no_jax)
    return Here(where | jax["here"], cases | jax["cases"], environment)


def _listed(framework: str, environment: dict[str, str]) -> tuple[dict[str, Any], str]:
    """What a framework lists, or why it could not; allows for a slow first start."""
    lines, how = lines_of(["-c", ASK, "list", framework], environment, 3 * SECONDS)
    found = rows_of(lines)
    if how is None and found:
        return found[-1], ""
    return {}, how["finding"] if how is not None else "no message"
