"""What xlayout promises of Triton in JAX: XLA's bits, and XLA's ops where those are as fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

import xlayout as xl
from bench.gpu.case import CUDA, busy, case
from bench.gpu.jax import raw
from xlayout_jax import cuda
from xlayout_triton.words import TRIED

DTYPES = ("bool", "int8", "float8_e4m3fn", "bfloat16", "float32", "complex64")
OPS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "zip": (lambda x: xl.interleave(x, axis=1), ((1300, 768),)),
    "unzip": (lambda x: xl.deinterleave(x, axis=1), ((1300, 768),)),
    "transpose": (xl.matrix_transpose, ((1300, 771),)),
    "rope": (lambda x: xl.rope_halves(x, heads=4, axis=1), ((1300, 512),)),
    "regroup": (lambda x: xl.regroup(x, sizes=(8, 16, 24), groups=2, axis=1), ((13_100, 48),)),
    "fuse": (
        lambda *xs: xl.fuse_qkv(*xs, heads=4, kv_heads=1), ((1024, 130), (256, 130), (256, 130)),
    ),
    "split": (lambda x: xl.split_qkv(x, heads=4, kv_heads=1), ((1536, 130),)),
    "stack": (lambda *xs: xl.stack(xs), ((33, 130),) * 40),
}  # fmt: skip


@contextmanager
def counted(*, always: bool) -> Iterator[list[bool]]:
    """Record for each program made inside the block whether it calls the kernel."""
    for kind in TRIED:  # or these programs might be recorded too
        assert not CUDA or not cuda.is_wrong(*kind), kind
    found, called, gates = [], cuda.called, dict(cuda.GATES)

    def counting(*args: Any) -> Any:
        made = called(*args)
        found.append(made is not None)
        return made

    cuda.called = counting
    if always:
        for name in ("small", "by XLA"):
            del cuda.GATES[name]
    try:
        yield found
    finally:
        cuda.called = called
        cuda.GATES |= gates


def filled(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Random bytes, but without NaNs, whose bits XLA may change; zeros and ones for bool."""
    kind = jnp.dtype(dtype)
    bits = np.random.default_rng(seed).integers(0, 64, (*shape, kind.itemsize), np.uint8)
    return jnp.asarray(bits[..., 0] > 31 if dtype == "bool" else bits.view(kind)[..., 0])


def same(made: Any, wanted: Any) -> bool:
    """Whether arrays have the same shapes and bits."""
    shapes = [[x.shape for x in jax.tree.leaves(arrays)] for arrays in (made, wanted)]
    return shapes[0] == shapes[1] and np.array_equal(raw(made), raw(wanted))


def plain(op: Callable[..., Any], *xs: Any) -> Any:
    """The op as XLA makes it, without the kernel."""
    with xl.native(False):
        return jax.jit(lambda *xs: op(*xs))(*xs)


@case(on_cpu=False)
def calls_are_at_work() -> str:
    """The kernel passes its trials in JAX and runs large ops on arrays; XLA runs those in jit."""
    status = cuda.status()
    assert status.startswith("Triton"), status
    x = filled((8192, 4096), "int8").astype("bfloat16")
    with counted(always=False) as found:
        assert same(xl.interleave(x, axis=1), plain(lambda x: xl.interleave(x, axis=1), x))
        jax.jit(lambda x: xl.interleave(x, axis=1))(x)
        xl.interleave(x.astype("float32"), axis=1)
    assert found == [True, False], found
    return status


@case()
def calls_move_any_layout() -> str:
    """One array or several, in and out, with elements of 1 to 8 bytes, move as XLA moves them."""
    with counted(always=True) as found:
        for name, (op, shapes) in OPS.items():
            for dtype in DTYPES:
                xs = [filled(shape, dtype, seed) for seed, shape in enumerate(shapes)]
                assert same(op(*xs), plain(op, *xs)), f"{name}, {dtype}"
    assert found == [True] * len(OPS) * len(DTYPES) or not CUDA, found
    return f"{len(OPS)} ops, {len(DTYPES)} dtypes"


@case()
def calls_read_memory_as_it_lies() -> str:
    """A transposed array from torch is read where it is."""
    t = torch.arange(770 * 512, device="cuda" if CUDA else "cpu", dtype=torch.int32).view(770, 512)
    x = xl.to_jax(t.t(), layout="any", copy=False)
    with counted(always=True) as found:
        assert same(xl.interleave(x, axis=1), plain(lambda x: xl.interleave(x, axis=1), x))
    assert True in found or not CUDA  # on a CPU there is no kernel to call
    return "as numpy has it"


@case()
def calls_have_derivatives() -> str:
    """Gradients are the inverse movement, and a batch is one call, also without jit."""
    op, ((rows, columns),) = OPS["regroup"]
    x = jnp.arange(float(rows * columns)).reshape(rows, columns)
    with counted(always=True) as found:
        y, back = jax.vjp(op, x)
        assert same(back(y)[0], x)
        batch = jnp.stack([x, 2 * x, 3 * x])
        assert same(jax.vmap(op)(batch), jnp.stack([plain(op, each) for each in batch]))
        assert same(jax.grad(lambda x: (op(x) ** 2).sum())(x), 2 * x)
    assert found.count(True) >= 3 or not CUDA, found
    return f"{len(found)} programs"


@case()
def calls_are_ordered() -> str:
    """A call reads after earlier writes and is read after it wrote, without the host waiting."""
    op, ((rows, columns),) = OPS["transpose"]
    slow, x = jnp.eye(2048 if CUDA else 64), filled((rows, columns), "int8").astype("float32")
    with counted(always=True):
        for k in range(8):
            y = op(x + busy(slow) + k)
            assert same(y - k, plain(op, x)), k
            del y  # its memory goes to the next result
    return "8 times, behind a busy stream"
