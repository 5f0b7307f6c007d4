"""What the frameworks themselves do with each other's memory, as only an accelerator can tell."""

from __future__ import annotations

import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from bench.gpu.case import CUDA, DEVICE, LARGE, address, busy, case, raised, settle
from xlayout.bridge import shards_to_jax, to_jax, to_torch
from xlayout_jax.exchange import adopt
from xlayout_torch.exchange import offer


@case(risky=True)
def donating_an_imported_buffer() -> str:
    """What does jit do when it is given an imported buffer to write into?"""
    t = torch.zeros(LARGE, device=DEVICE)
    a = to_jax(t)
    out = jax.jit(lambda x: x + 1, donate_argnums=0)(a).block_until_ready()
    settle()
    assert bool((out == 1).all())
    taken = "took torch's memory" if address(out) == address(t) else "made a new buffer"
    written = "torch sees the result" if float(t.sum()) else "torch's values are untouched"
    return f"jit {taken}; {written}; deleted: {a.is_deleted()}"


@case()
def jax_copy_true() -> str:
    """What does jax.dlpack.from_dlpack(copy=True) do with this memory?"""
    t = torch.zeros(4096, device=DEVICE)
    try:
        a = jax.dlpack.from_dlpack(t, copy=True).block_until_ready()
    except Exception as error:  # noqa: BLE001 -- the kind of error is the finding
        return f"{type(error).__name__}: {str(error)[:120]}"
    return "aliases the source" if address(a) == address(t) else "a real copy"


@case(risky=True)
def jax_reads_what_torch_frees() -> str:
    """Is torch's memory reused while a JAX kernel still reads it?"""
    work = jnp.full((4096, 4096) if CUDA else (256, 256), 1e-3)
    late = jax.jit(lambda x, w: x + busy(w))
    t = torch.ones(LARGE, device=DEVICE)
    late(to_jax(t), work).block_until_ready()
    a = to_jax(t)
    out = late(a, work)
    del t, a
    noise = [torch.full((LARGE,), 2.0, device=DEVICE) for _ in range(4)]
    settle()
    wrong = int((np.asarray(out) != 1).sum())
    return f"{wrong} of {LARGE} elements wrong, {len(noise)} tensors allocated meanwhile"


@case(on_cpu=False, risky=True)
def alignment_at_execution() -> str:
    """From which byte offsets does XLA run on an imported buffer?"""
    raw, runs, errors = torch.zeros(8192, dtype=torch.uint8, device=DEVICE), [], []
    for offset in (1, 2, 4, 8, 16, 32, 64, 128):
        t = raw[offset : offset + 4096]
        try:
            a = jax.dlpack.from_dlpack(t, copy=False)
            jax.jit(lambda x: x + 1)(a).block_until_ready()
        except Exception as error:  # noqa: BLE001 -- which offsets fail is the finding
            errors.append(f"{offset}: {type(error).__name__}")
        else:
            runs.append(offset)
    assert {16, 32, 64, 128} <= set(runs), f"16 bytes are not enough: {errors}"
    return f"runs at {runs}; refuses {errors}"


@case(on_cpu=False, risky=True)
def pinned_memory_to_jax() -> str:
    """Where does a pinned host tensor land in JAX?"""
    t = torch.arange(4096.0).pin_memory()
    a = to_jax(t)
    assert a.tolist() == t.tolist()
    shared = "shared" if address(a) == address(t) else "copied"
    return f"{shared}, on {a.device}, memory kind {a.sharding.memory_kind}"


@case(risky=True)
def torch_inside_jit() -> str:
    """Does a buffer_callback run torch on XLA's own stream, without a copy?"""
    from jax.experimental.buffer_callback import buffer_callback

    def double(ctx: Any, out: Any, x: Any) -> None:
        stream = torch.cuda.ExternalStream(ctx.stream) if CUDA else None
        with torch.cuda.stream(stream):
            torch.mul(torch.from_dlpack(x), 2, out=torch.from_dlpack(out))

    call = buffer_callback(double, jax.ShapeDtypeStruct((4096,), jnp.float32))
    out = jax.jit(lambda x: call(x + 1) + 1)(jnp.arange(4096.0))
    assert out.tolist() == [2 * (i + 1) + 1 for i in range(4096)]
    return "values right, on ctx.stream"


@case(devices=2, risky=True)
def shards_of_two_memory_orders() -> str:
    """What does jit do with shards in different memory orders? xlayout refuses them."""
    devices = jax.devices("gpu" if CUDA else "cpu")[:2]
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    rows = torch.arange(512.0).view(2, 16, 16)
    first, second = (rows[i].to(f"cuda:{i}") if CUDA else rows[i].clone() for i in range(2))
    columns = second.t().contiguous().t()
    raised(lambda: shards_to_jax([first, columns], sharding, (32, 16)), BufferError)
    parts = [
        adopt(offer(t), layout="any", copy=False, device=device)
        for t, device in zip((first, columns), devices, strict=True)
    ]
    a = jax.make_array_from_single_device_arrays((32, 16), sharding, parts)
    same = np.array_equal(np.asarray(jax.jit(lambda x: x + 0)(a)), rows.view(32, 16).numpy())
    return f"refused; by hand, jit is {'right' if same else 'wrong'}"


@case()
def cost_of_a_state_dict() -> str:
    """What do 1000 tensors cost, compared with the frameworks' own from_dlpack?"""
    state = {f"w{i}": torch.ones(256, device=DEVICE) for i in range(1000)}
    arrays = to_jax(state, copy=True)
    into, out = jax.dlpack.from_dlpack, torch.from_dlpack
    return "; ".join(
        (
            compared("to_jax", state, lambda: {k: into(t) for k, t in state.items()}, to_jax),
            compared("to_torch", arrays, lambda: {k: out(a) for k, a in arrays.items()}, to_torch),
        )
    )


def compared(name: str, source: dict[str, Any], own: Any, ours: Any) -> str:
    """Median time of both contenders in alternating rounds, if their results share the memory."""
    spent: tuple[list[float], list[float]] = ([], [])
    for _ in range(9):
        for times, call in zip(spent, (own, lambda: ours(source)), strict=True):
            start = time.perf_counter()
            result = call()
            times.append(time.perf_counter() - start)
            assert all(address(result[k]) == address(source[k]) for k in source), name
    theirs, mine = (statistics.median(times) for times in spent)
    return f"{name} {mine * 1e3:.1f} ms, {mine / theirs:.2f} times"
