"""Seconds of resharding on gloo ranks: xlayout by pairs and by one all-to-all, and DTensor.

Over gloo DTensor gathers and cuts where it would exchange over NCCL, so the figures hold only for
CPUs. Each is the median of several rounds on the slowest rank; every answer is checked.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xlayout as xl

__all__ = ["CASES", "SHAPES", "measured"]

RANKS, ROUNDS = 4, 7
SHAPES = ((8192, 4096), (1024, 1024), (64, 256))  # of float32: 128 MiB, 4 MiB, 64 KiB

# name: layout, source, target, segments of the source, dtype on the wire
CASES: dict[str, tuple[Any, Any, Any, int | None, str | None]] = {
    "rows to columns": (None, ("tp",), (None, "tp"), None, None),
    "fused to rows": (None, ("tp",), ("tp",), 2, None),
    "interleave, rows to rows": ("interleave", ("tp",), ("tp",), None, None),
    "one row further": ("roll", ("tp",), ("tp",), None, None),
    "gather rows": (None, ("tp",), (), None, None),
    "gather rows in bfloat16": (None, ("tp",), (), None, "bfloat16"),
}


def measured(shape: tuple[int, int]) -> list[dict[str, Any]]:
    """A row for each case."""
    context = multiprocessing.get_context("forkserver")
    with tempfile.TemporaryDirectory() as folder:
        answers = context.Queue()
        given = (str(Path(folder) / "store"), answers, shape)
        ranks = [context.Process(target=_rank, args=(rank, *given)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        found = []
        for _ in ranks:
            found.append(answers.get(timeout=600))
            if isinstance(found[-1], str):  # the other ranks would wait for the one that failed
                for process in ranks:
                    process.kill()
                raise AssertionError(found[-1])
        for process in ranks:
            process.join()
    rows = []
    for case in CASES:
        slowest = {name: max(times[case][name] for times in found) for name in found[0][case]}
        size = {"case": case, "bytes": shape[0] * shape[1] * 4}
        rows.append(size | {name: round(t, 5) for name, t in slowest.items()})
    return rows


def _rank(rank: int, store: str, answers: Any, shape: tuple[int, int]) -> None:
    try:
        _measure(rank, store, answers, shape)
    except Exception:  # noqa: BLE001 -- it is the other process that reports it
        answers.put(f"rank {rank}:\n{traceback.format_exc()}")


def _measure(rank: int, store: str, answers: Any, shape: tuple[int, int]) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    mesh = DeviceMesh("cpu", torch.arange(RANKS), mesh_dim_names=("tp",))
    tp, found = xl.Mesh(RANKS, "tp"), {}
    for name, (op, source, target, segments, dtype) in CASES.items():
        splits = {0: xl.Split(segments=segments)} if segments else None
        src, dst = xl.Sharding(tp, source, splits=splits), xl.Sharding(tp, target)
        layout = _layout(op, shape)
        whole = torch.arange(shape[0] * shape[1], dtype=torch.float32).reshape(shape)
        x = DTensor.from_local(src.layout(rank, shape)(whole), mesh, src.to_torch(mesh))
        expected = dst.layout(rank, shape)(layout(whole))
        expected = expected.to(getattr(torch, dtype)) if dtype else expected
        del whole
        runs = _contenders(x, mesh, dst, layout, dtype, op)
        for who, run in runs.items():
            assert torch.equal(run().to_local(), expected), f"{name}, {who}: wrong answer"
        del expected
        found[name] = {who: _median(run, dist) for who, run in runs.items()}
    answers.put(found)
    dist.barrier()
    dist.destroy_process_group()


def _layout(op: str | None, shape: tuple[int, int]) -> xl.Layout:
    if op == "interleave":
        return xl.interleave.layout(shape)
    if op == "roll":  # each rank sends one row to one other
        return xl.Layout.parse("(a + b) c -> (b + a) c", shape, a=1)
    return xl.Layout.identity(shape)


def _contenders(
    x: Any, mesh: Any, dst: xl.Sharding, layout: xl.Layout, dtype: str | None, op: str | None
) -> dict[str, Callable[[], Any]]:
    import torch

    import xlayout_torch.transport as transport

    in_pairs = transport._in_pairs

    def pairs() -> Any:
        return xl.all_gather(x, dtype=dtype) if dtype else xl.reshard(x, dst, layout=layout)

    def at_once() -> Any:
        transport._in_pairs = lambda *_: False
        try:
            return pairs()
        finally:
            transport._in_pairs = in_pairs

    def theirs() -> Any:
        made = x.redistribute(mesh, dst.to_torch(mesh))
        return made.to(getattr(torch, dtype)) if dtype else made

    runs = {"xlayout": pairs, "xlayout, collective": at_once}
    return runs if op else {**runs, "DTensor": theirs}


def _median(fn: Callable[[], Any], dist: Any) -> float:
    times = []
    for _ in range(ROUNDS):
        dist.barrier()
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
