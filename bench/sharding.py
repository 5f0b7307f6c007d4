"""Bytes and seconds of resharding, beside the lower bound, XLA and DTensor.

    PYTHONPATH=.:backends python bench/sharding.py

Bytes: all reshards between specs of a (2, 4) grid; XLA's are read from its compiled program.
Seconds: 128 MiB of float32 on four gloo ranks, the median of several, slowest rank; over gloo
DTensor gathers and cuts where it would exchange over NCCL.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.devices import request_host_devices

request_host_devices()
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # XLA warns of each reshard that it does badly

import xlayout as xl  # noqa: E402 -- JAX reads the environment once

RANKS, ROUNDS = 4, 5
SHAPE = (8192, 4096)
CASES = {
    "rows to columns": (None, ("tp",), (None, "tp"), None),
    "fused to rows": (None, ("tp",), ("tp",), 2),
    "interleave, rows to rows": ("interleave", ("tp",), ("tp",), None),
}


def bytes_table() -> None:
    """Ratios of bytes received to the lower bound, over all pairs of specs."""
    import jax
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    mesh = jax.make_mesh((2, 4), ("fsdp", "tp"), (AxisType.Auto, AxisType.Auto))
    grid = xl.Mesh((2, 4), ("fsdp", "tp"))
    entries = [(), ("fsdp",), ("tp",), ("fsdp", "tp"), ("tp", "fsdp")]
    specs = [s for s in itertools.product(entries, repeat=2) if not {*s[0]} & {*s[1]}]
    ours = theirs = bound = 0
    ratios, free = [], 0
    for a, b in itertools.permutations(specs, 2):
        plan = xl.plan_reshard(
            xl.Layout.identity((64, 64)), xl.Sharding(grid, a), xl.Sharding(grid, b), itemsize=4
        )
        source, target = (
            NamedSharding(mesh, PartitionSpec(*(e or None for e in s))) for s in (a, b)
        )
        x = jax.device_put(jax.numpy.ones((64, 64)), source)
        moved = sum(xl.wire_bytes(jax.jit(lambda x: x, out_shardings=target), x).values())
        padding = sum(r.padding for r in plan.rounds) * 4
        least = sum(plan.lower_bound) / 8
        ours, theirs, bound = (
            ours + (sum(plan.recv_bytes) + padding) / 8,
            theirs + moved,
            bound + least,
        )
        if least:
            ratios.append(moved / least)
        else:
            free += moved > 0
    print(f"{len(specs) * (len(specs) - 1)} reshards between specs of a (2, 4) grid, in all")
    print(f"  lower bound 1.00   xlayout {ours / bound:.2f}   XLA {theirs / bound:.2f}")
    print(f"  XLA: median {statistics.median(ratios):.2f}, worst {max(ratios):.2f}, "
          f"needless traffic in {free}")  # fmt: skip


def seconds_table() -> None:
    """Median seconds of each case on four ranks."""
    context = multiprocessing.get_context("forkserver")
    with tempfile.TemporaryDirectory() as folder:
        answers = context.Queue()
        given = (str(Path(folder) / "store"), answers)
        ranks = [context.Process(target=_rank, args=(rank, *given)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        found = [answers.get(timeout=600) for _ in ranks]
        for process in ranks:
            process.join()
    print(f"{SHAPE[0] * SHAPE[1] * 4 >> 20} MiB on {RANKS} gloo ranks, milliseconds")
    for case in CASES:
        ours, theirs = (max(times[case][k] for times in found) for k in (0, 1))
        other = (
            f"DTensor {theirs * 1e3:6.0f}   {theirs / ours:.1f}x" if theirs else "DTensor cannot"
        )
        print(f"  {case:26} xlayout {ours * 1e3:6.0f}   {other}")


def _rank(rank: int, store: str, answers: Any) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    mesh = DeviceMesh("cpu", torch.arange(RANKS), mesh_dim_names=("tp",))
    tp = xl.Mesh(RANKS, "tp")
    found = {}
    for name, (op, source, target, segments) in CASES.items():
        splits = {0: xl.Split(segments=segments)} if segments else None
        src, dst = xl.Sharding(tp, source, splits=splits), xl.Sharding(tp, target)
        layout = xl.interleave.layout(SHAPE) if op else xl.Layout.identity(SHAPE)
        whole = torch.arange(SHAPE[0] * SHAPE[1], dtype=torch.float32).reshape(SHAPE)
        x = DTensor.from_local(src.layout(rank, SHAPE)(whole), mesh, src.to_torch(mesh))

        def ours(x: Any = x, dst: Any = dst, layout: Any = layout) -> Any:
            return xl.reshard(x, dst, layout=layout)

        def theirs(x: Any = x, dst: Any = dst) -> Any:
            return x.redistribute(mesh, dst.to_torch(mesh))

        expected = dst.layout(rank, SHAPE)(layout(whole))
        assert torch.equal(ours().to_local(), expected)
        if op is None:
            assert torch.equal(theirs().to_local(), expected)
        del whole, expected
        found[name] = (_median(ours, dist), _median(theirs, dist) if op is None else 0.0)
    answers.put(found)
    dist.barrier()
    dist.destroy_process_group()


def _median(fn: Callable[[], Any], dist: Any) -> float:
    times = []
    for _ in range(ROUNDS):
        dist.barrier()
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    bytes_table()
    seconds_table()
