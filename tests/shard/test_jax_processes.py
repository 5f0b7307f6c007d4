"""Two processes of two devices each, which see half of every array, do what one process does."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from multiprocessing.connection import Connection
from typing import Any

import pytest

pytest.importorskip("jax")

pytestmark = pytest.mark.distributed
SECONDS = 60


def test_an_exchange_and_a_gather_between_two_processes() -> None:
    context = multiprocessing.get_context("forkserver")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    pipes, processes = [], []
    for rank in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(rank, address, theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        for rank, pipe in enumerate(pipes):
            assert pipe.poll(SECONDS), f"process {rank} has not answered for {SECONDS} s"
            assert pipe.recv() is None
    finally:
        for process in processes:
            process.join(timeout=5)
            process.kill()


def _serve(rank: int, address: str, pipe: Connection) -> None:
    try:
        pipe.send(_run(rank, address))
    except BaseException:  # noqa: BLE001 -- it is the other process that reports it
        pipe.send(traceback.format_exc())


def _run(rank: int, address: str) -> None:
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, rank)
    try:
        _check(rank)
    finally:
        jax.distributed.shutdown()


def _check(rank: int) -> None:
    import jax
    import numpy as np
    from jax.sharding import AxisType, NamedSharding
    from jax.sharding import PartitionSpec as P

    import xlayout as xl
    import xlayout.jax

    mesh = jax.make_mesh((4,), ("tp",), (AxisType.Auto,))
    assert jax.process_index() == rank
    assert {d.process_index for d in mesh.devices.flat} == {0, 1}
    rows, columns, whole = (NamedSharding(mesh, s) for s in (P("tp"), P(None, "tp"), P()))
    values = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)
    x = jax.make_array_from_callback(values.shape, rows, lambda index: values[index])

    def same(made: Any, wanted: Any) -> None:
        assert len(made.addressable_shards) == 2
        for shard in made.addressable_shards:
            np.testing.assert_array_equal(shard.data, wanted[shard.index])

    six = xl.interleave.layout(values.shape, block=2)
    same(xl.reshard(x, columns, layout=six), six(values))  # one all-to-all
    same(xl.interleave(x, block=2, out_sharding=rows), six(values))  # rounds
    same(xl.reshard(x, whole), values)  # left to XLA
    same(xl.all_gather(x, dtype="bfloat16"), values.astype("bfloat16"))
    g = jax.grad(lambda x: (xl.reshard(x, columns, layout=six) ** 2).sum())(x)
    same(g, 2 * values)

    def loss(w: Any) -> Any:
        full = xlayout.jax.all_gather(w, "tp", dtype="bfloat16").astype("float32")
        return jax.lax.psum((full * (jax.lax.axis_index("tp") + 1)).sum(), "tp")

    parts = jax.shard_map(loss, mesh=mesh, in_specs=P("tp"), out_specs=P())
    same(jax.jit(jax.grad(parts))(x), np.full(values.shape, 10, np.float32))
