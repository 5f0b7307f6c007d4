"""Launches: a plan for the Triton kernel as calls in a program of XLA's for CUDA.

Triton compiles the kernel, and jaxlib has the call that starts it, on XLA's stream and its buffers:
the one that `jax_triton` makes too. What a launch reads beside the arrays is a constant.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from xlayout_triton.plan import ALONE, Launch, Moves, Plan, planned
from xlayout_triton.tile import VECTOR
from xlayout_triton.uncompiled import CompileError, reason_of

__all__ = ["TARGET", "capability", "launched", "numbered"]

TARGET = "triton_kernel_call"

PTX = 87
"""The version, 8.7, of the code that is asked of Triton. By itself it writes the latest one that
its own assembler reads, but XLA's has to read it, which may be older."""

LATER = {103: 88, 121: 88}
"""Compute capability -> the same, where that version does not have it."""


@lru_cache(1024)
def numbered(moves: Moves, itemsize: int, inputs: int, outputs: int) -> Plan | None:
    """The plan of some moves, or None if one has too many axes for the kernel.

    Args:
        moves: the copies.
        itemsize: bytes of an element.
        inputs: how many arrays are read; each begins at a vector, XLA's own or adopted.
        outputs: how many are written.
    """
    return planned((moves, itemsize, [VECTOR] * inputs, [VECTOR] * outputs))


def launched(
    context: Any, operands: Sequence[Any], orders: Sequence[Sequence[int]], made: Plan
) -> Sequence[Any]:
    """The results of a plan, in what JAX lowers a program to.

    Args:
        context: JAX's, with what is known of operands and results.
        operands: what is read.
        orders: the axes of each operand, fastest first.
        made: the plan; each of its launches is a call that writes on into the results so far.

    Raises:
        CompileError: there is no kernel for one of its launches; the program has no calls yet.
    """
    outputs = len(context.avals_out)
    calls = [
        described(one, len(operands) + (outputs if place else 0), outputs, capability() or 0)
        for place, one in enumerate(made.launches)
    ]
    # The ends are numbers of arrays. The one that nobody reads keeps them a constant: numbers that
    # are all the same, or count from 0, XLA computes in a kernel of its own.
    ends = made.ends([*range(len(operands)), *range(len(context.avals_out))])
    ends.append(-1)
    numbers = [np.frombuffer(words, np.int64) for words in (made.words, ends)]
    constants = [mlir.ir_constant(some) for some in numbers]
    kinds = [jax.core.ShapedArray(some.shape, some.dtype) for some in numbers]
    rows = [tuple(reversed(range(aval.ndim))) for aval in context.avals_out]
    results: Sequence[Any] = ()
    for call in calls:
        before = len(results)
        given = [*constants, *operands, *results]
        known = [*kinds, *context.avals_in, *context.avals_out[:before]]
        rule = jax.ffi.ffi_lowering(
            TARGET,
            api_version=2,
            backend_config=call,
            operand_layouts=[(0,), (0,), *orders, *rows[:before]],
            result_layouts=rows,
            operand_output_aliases={2 + len(operands) + k: k for k in range(before)},
        )
        results = rule(context.replace(avals_in=known), *given)
    return results


@lru_cache(1024)
def described(launch: Launch, inputs: int, outputs: int, capability: int) -> Any:
    """A launch and its kernel, as the call reads them."""
    from jaxlib import gpu_triton

    kernel = _kernel(launch, inputs, outputs, capability)
    arrays = [gpu_triton.create_array_parameter(0, VECTOR) for _ in range(2 + inputs + outputs)]
    numbers = launch.first, launch.jobs or 0, launch.group
    scalars = [gpu_triton.create_scalar_parameter(n, "i32") for n in numbers]
    call = gpu_triton.TritonKernelCall(kernel, launch.programs, 1, 1, [*arrays, *scalars])
    return zlib.compress(call.to_proto("xlayout", b""))


def _kernel(launch: Launch, inputs: int, outputs: int, capability: int) -> Any:
    import triton
    from jaxlib import gpu_triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from xlayout_triton.copy import copy_arrays

    tile = launch.tile
    kinds: dict[str, Any] = {
        "table": "*i64", "ends": "*i64",
        "sources": ("i64",) * inputs, "targets": ("i64",) * outputs,
        "first": "i32", "jobs": "i32", "group": "i32",
    }  # fmt: skip
    # jaxlib's calls start when what came before them has ended.
    values = {"SEVERAL": launch.jobs is not None, "LINK": ALONE, "TILE": tile}
    kinds |= dict.fromkeys(values, "constexpr")
    aligned = {(k,): [["tt.divisibility", VECTOR]] for k in range(2)}
    source = ASTSource(copy_arrays, kinds, values, aligned)
    target = GPUTarget("cuda", capability, 32)
    version = LATER.get(capability, PTX)
    try:
        made = triton.compile(source, target, {**tile.options, "ptx_version": version})
    except Exception as error:
        raise CompileError(reason_of(error)) from error
    name, shared = made.metadata.name, made.metadata.shared
    ptx, ttir = made.asm["ptx"], made.asm["ttir"]
    return gpu_triton.TritonKernel(name, tile.warps, 1, shared, ptx, ttir, capability)


@cache
def capability() -> int | None:
    """What all CUDA devices can run, as 90 for 9.0; None where they differ, or there are none."""
    try:
        found = {device.compute_capability for device in jax.devices("cuda")}
    except RuntimeError:
        return None
    return int(found.pop().replace(".", "")) if len(found) == 1 else None
