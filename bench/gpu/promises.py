"""What xlayout promises about exchange, checked on the accelerator's own memory."""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np
import torch

from bench.gpu.case import CUDA, DEVICE, LARGE, address, busy, case, raised, settle, stall
from xlayout.bridge import jax_to_shards, shards_to_jax, to_jax, to_numpy, to_torch


@case()
def pointers_both_ways() -> str:
    """Xlayout shares every common dtype, both ways, bit for bit."""
    names = ["bool", "int8", "int32", "uint16", "float16", "bfloat16", "float32", "complex64"]
    names += ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
    for name in names:
        raw = torch.arange(4096, device=DEVICE).to(torch.uint8)
        t = raw > 7 if name == "bool" else raw.view(getattr(torch, name))
        a = to_jax(t, copy=False)
        assert address(a) == address(t), name
        assert a.dtype.name == name
        assert to_numpy(t, copy=True).tobytes() == np.asarray(a).tobytes(), name
        back = to_torch(a, copy=False)
        assert address(back) == address(t), name
        assert back.dtype is t.dtype
    with jax.enable_x64(True):
        for name in ("int64", "float64", "complex128"):
            t = torch.ones(1024, dtype=getattr(torch, name), device=DEVICE)
            assert address(to_torch(to_jax(t, copy=False), copy=False)) == address(t), name
    return f"{len(names) + 3} dtypes on {a.device}"


@case(risky=True)
def copies_are_copies() -> str:
    """copy=True is fresh memory, and jit may not write through it into the source."""
    t = torch.zeros(4096, device=DEVICE)
    a = to_jax(t, copy=True)
    assert address(a) != address(t)
    out = jax.jit(lambda x: x + 1, donate_argnums=0)(a).block_until_ready()
    assert float(out.sum()) == 4096
    assert float(t.sum()) == 0
    j = jnp.zeros(4096)
    assert address(to_torch(j, copy=True)) != address(j)
    return "the source is untouched"


@case()
def layouts_and_alignment() -> str:
    """A transposed or misaligned tensor is copied, or refused with copy=False."""
    t = torch.arange(1024.0, device=DEVICE).view(32, 32)
    assert to_jax(t.t()).tolist() == t.t().tolist()
    shared = to_jax(t.t(), layout="any", copy=False)
    assert address(shared) == address(t)
    assert jax.jit(lambda x: x * 1)(shared).tolist() == t.t().tolist()
    odd = t.view(-1)[1:]
    assert to_jax(odd).tolist() == odd.tolist()
    raised(lambda: to_jax(t.t(), copy=False), BufferError)
    return raised(lambda: to_jax(odd, copy=False), BufferError)


@case()
def donation_hands_over() -> str:
    """donate=True leaves one owner, in both directions."""
    t = torch.ones(LARGE, device=DEVICE)
    where = address(t)
    a = to_jax(t, donate=True)
    assert (t.numel(), address(a)) == (0, where)
    back = to_torch(a, donate=True)
    assert a.is_deleted()
    assert address(back) == where
    assert bool((back == 1).all())
    return "one owner at a time"


@case(risky=True)
def lent_memory_is_read_first() -> str:
    """Memory lent to torch goes back to JAX once torch's kernels have read it, and not before."""
    a = jnp.full(LARGE, 1.0).block_until_ready()
    t = to_torch(a)
    stall()
    late = t.clone()
    del t, a
    noise = [jnp.full(LARGE, 2.0).block_until_ready() for _ in range(4)]
    settle()
    wrong = int((late != 1).sum())
    assert not wrong, f"{wrong} of {LARGE} elements wrong"
    del noise, late
    if not CUDA:
        return "nothing is queued on a CPU"
    device = jax.devices("gpu")[0]
    before = device.memory_stats()["bytes_in_use"]
    for k in range(20):
        stall(1)
        assert int((to_torch(jnp.full(LARGE, k, jnp.int32)) != k).sum()) == 0
    settle()
    time.sleep(0.5)
    kept = device.memory_stats()["bytes_in_use"] - before
    assert kept < 4 * LARGE, f"{kept} bytes were not given back"
    return f"{LARGE} elements right, and 20 arrays given back"


def ordered() -> str:
    """Values that are still being written when they are exchanged arrive complete."""
    t = torch.zeros(LARGE, device=DEVICE)
    stream = torch.cuda.Stream() if CUDA else None
    settle()
    with torch.cuda.stream(stream):
        stall()
        t.fill_(1)
        a = to_jax(t)
    assert bool((a == 1).all()), "JAX read before torch had written"
    work = jnp.full((4096, 4096) if CUDA else (256, 256), 1e-3)
    late = jax.jit(lambda w: jnp.ones(LARGE) + busy(w))(work)
    assert bool((to_torch(late) == 1).all()), "torch read before JAX had written"
    return "each waits for the other's last write"


@case(risky=True)
def streams_are_ordered() -> str:
    """An exchange waits for the kernels that still write, both ways."""
    return ordered()


@case(on_cpu=False, XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT="1")
def streams_are_ordered_under_tfrt() -> str:
    """The same with XLA's other GPU client, which ignores the stream of an import."""
    return ordered()


@case(on_cpu=False, risky=True)
def pinned_memory_to_torch() -> str:
    """A pinned_host array of JAX reaches torch as a copy, never through a wrong pointer."""
    device = jax.devices("gpu")[0]
    pinned = jax.sharding.SingleDeviceSharding(device, memory_kind="pinned_host")
    a = jax.device_put(jnp.arange(4096.0), pinned)
    assert to_torch(a).tolist() == list(range(4096))
    assert to_numpy(a).tolist() == list(range(4096))
    return raised(lambda: to_torch(a, copy=False), BufferError)


@case()
def shards_keep_their_pointers() -> str:
    """A sharded array crosses with one pointer per device, and computes correctly."""
    devices = jax.devices("gpu" if CUDA else "cpu")
    mesh = jax.sharding.Mesh(np.array(devices), ("x",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    shards = {}
    for i, device in enumerate(devices):
        place = f"cuda:{device.local_hardware_id}" if CUDA else "cpu"
        shards[device] = torch.full((64, 32), float(i), device=place)
    a = shards_to_jax(shards, sharding, (64 * len(devices), 32))
    for device, t in jax_to_shards(a).items():
        assert address(t) == address(shards[device]), device
    assert float(jax.jit(jnp.sum)(a)) == 64 * 32 * sum(range(len(devices)))
    return f"{len(devices)} device(s)"


@case(on_cpu=False, devices=2)
def another_device_than_the_current() -> str:
    """A tensor on cuda:1 crosses while cuda:0 is current."""
    t = torch.ones(4096, device="cuda:1")
    a = to_jax(t, copy=False)
    assert address(a) == address(t)
    assert to_torch(a).device == t.device
    return f"on {a.device}"


@case()
def no_null_pointers() -> str:
    """Fake tensors are refused before anything reads their null pointer."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(4, device=DEVICE)
    raised(lambda: to_jax(torch.ones(4, device="meta")), TypeError)
    return raised(lambda: to_jax(fake), TypeError)


@case(on_cpu=False, risky=True)
def graph_capture_is_refused() -> str:
    """No exchange enters a CUDA graph that is being captured."""
    t = torch.ones(4096, device=DEVICE)
    to_jax(t)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        t.add_(1)
        message = raised(lambda: to_jax(t), TypeError)
    graph.replay()
    settle()
    assert float(t[0]) == 2
    return message


@case(on_cpu=False)
def numpy_gets_a_host_copy() -> str:
    """to_numpy copies from the device, or with copy=False says that it would have to."""
    t, a = torch.arange(16.0, device=DEVICE), jnp.arange(16.0)
    assert to_numpy(t).tolist() == to_numpy(a).tolist() == list(range(16))
    raised(lambda: to_numpy(a, copy=False), BufferError)
    return raised(lambda: to_numpy(t, copy=False), BufferError)
