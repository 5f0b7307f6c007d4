"""What accelerators that are not present would put on the wire, and hold at their peak.

`make test-aot` has the wheels that this needs; without them it is skipped.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
import xlayout.jax
from tests.shard.test_wire import RAW, grid, mapped
from xlayout.shard import Sharding, wire_bytes
from xlayout_jax.targets import compiled

WHEELS = {"h100": "jax_cuda12_plugin", "v5e": "libtpu"}
TARGETS = [
    pytest.param(target, marks=pytest.mark.skipif(
        importlib.util.find_spec(wheel) is None, reason=f"{wheel} is not installed"))
    for target, wheel in WHEELS.items()
]  # fmt: skip
pytestmark = pytest.mark.parametrize("target", TARGETS)

IN, OUT, BATCH = 4096, 1024, 512
WIDE = IN * OUT * 4 // 8 * 7
SHARDED = P("fsdp")
NARROW = [("bfloat16", 2), ("float8_e4m3fn", 4)]


def mesh(kind: AxisType) -> jax.sharding.Mesh:
    return jax.make_mesh((8,), ("fsdp",), (kind,))


def arguments(on: jax.sharding.Mesh) -> tuple[Any, Any]:
    """A weight and a batch, without values."""
    at = NamedSharding(on, SHARDED)
    return (
        jax.ShapeDtypeStruct((IN, OUT), np.float32, sharding=at),
        jax.ShapeDtypeStruct((BATCH, IN), jnp.bfloat16, sharding=at),
    )


def net(gather: Callable[[Any], Any], w: Any, x: Any) -> Any:
    """A loss that uses the weight twice."""
    full = gather(w).astype(jnp.bfloat16)
    y = jax.nn.relu(x @ full) @ full.T
    return (y.astype(jnp.float32) ** 2).mean()


def pinned(w: Any, dtype: str = "bfloat16") -> Any:
    return xl.all_gather(w, dtype=dtype, in_sharding=NamedSharding(mesh(AxisType.Auto), SHARDED))


def plain(w: Any) -> Any:
    whole = NamedSharding(mesh(AxisType.Auto), P())
    return jax.lax.with_sharding_constraint(w, whole).astype(jnp.bfloat16)


@pytest.mark.parametrize("op", RAW)
def test_a_collective_is_counted_by_its_model(target: str, op: str) -> None:
    fn, into, wanted = RAW[op]
    w = jax.ShapeDtypeStruct((1024, 1024), np.float32, sharding=NamedSharding(grid(), P("tp")))
    assert wire_bytes(mapped(fn, into), w, target=target) == {op: wanted * (1024 // 64) ** 2}


@pytest.mark.parametrize(("dtype", "times"), NARROW)
def test_a_gather_travels_narrow(target: str, dtype: str, times: int) -> None:
    w, _ = arguments(mesh(AxisType.Auto))
    found = wire_bytes(lambda w: pinned(w, dtype) * 2, w, target=target)
    assert found == {"all_gather": WIDE // times}


def test_left_to_itself_only_the_tpu_compiler_casts_first(target: str) -> None:
    w, x = arguments(mesh(AxisType.Auto))
    found = wire_bytes(lambda w, x: net(plain, w, x), w, x, target=target)
    assert found["all_gather"] == (WIDE if target == "h100" else WIDE // 2)


@pytest.mark.parametrize(("dtype", "times"), NARROW)
def test_a_train_step_gathers_once_and_narrow(target: str, dtype: str, times: int) -> None:
    w, x = arguments(mesh(AxisType.Auto))
    step = jax.grad(lambda w, x: net(lambda w: pinned(w, dtype), w, x))
    assert wire_bytes(step, w, x, target=target)["all_gather"] == WIDE // times


@pytest.mark.parametrize(("dtype", "times"), NARROW)
def test_a_train_step_in_shard_map_sums_in_float32(target: str, dtype: str, times: int) -> None:
    def loss(w: Any, x: Any) -> Any:
        own = net(lambda w: xlayout.jax.all_gather(w, "fsdp", dtype=dtype), w, x)
        return jax.lax.pmean(own, "fsdp")

    on = mesh(AxisType.Auto)
    step = jax.shard_map(loss, mesh=on, in_specs=(SHARDED, SHARDED), out_specs=P())
    found = wire_bytes(jax.grad(step), *arguments(on), target=target)
    assert found == {"all_gather": WIDE // times, "reduce_scatter": WIDE}


@pytest.mark.parametrize(("dtype", "times"), NARROW)
def test_a_train_step_on_explicit_axes_sums_in_float32(target: str, dtype: str, times: int) -> None:
    on = mesh(AxisType.Explicit)

    def loss(w: Any, x: Any) -> Any:
        return net(lambda w: xlayout.jax.all_gather(w, "fsdp", dtype=dtype), w, x)

    with jax.set_mesh(on):
        found = wire_bytes(jax.grad(loss), *arguments(on), target=target)
    assert found == {"all_gather": WIDE // times, "reduce_scatter": WIDE}


def test_at_the_peak_the_full_copy_in_float32_is_missing(target: str) -> None:
    """Except for a device's own eighth, which is there in any case."""
    at = NamedSharding(mesh(AxisType.Auto), SHARDED)
    w = jax.ShapeDtypeStruct((8192, 4096), np.float32, sharding=at)
    x = jax.ShapeDtypeStruct((256, 8192), jnp.bfloat16, sharding=at)

    def peak(gather: Callable[[Any], Any]) -> int:
        step = jax.grad(lambda w, x: net(gather, w, x))
        stats = compiled(step, (w, x), target).memory_analysis()
        return int(stats.peak_memory_in_bytes)

    assert peak(plain) - peak(pinned) > 0.85 * w.size * 4


EXCHANGES = {
    "rows to columns": (xl.Layout.identity((IN, OUT)), P("fsdp"), P(None, "fsdp")),
    "interleaved rows": (xl.interleave.layout((IN, OUT)), P("fsdp"), P("fsdp")),
    "rope of six heads": (xl.rope_halves.layout((384, 64), heads=6), P("fsdp"), P("fsdp")),
}


@pytest.mark.parametrize("case", EXCHANGES)
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2)])
def test_an_exchange_moves_what_its_plan_says(
    target: str, case: str, dtype: str, size: int
) -> None:
    layout, src, dst = EXCHANGES[case]
    on = mesh(AxisType.Explicit)
    source, to = NamedSharding(on, src), NamedSharding(on, dst)
    x = jax.ShapeDtypeStruct(layout.in_shape, np.float32, sharding=source)
    plan = xl.plan_reshard(layout, Sharding.from_jax(source), Sharding.from_jax(to), itemsize=size)
    found = wire_bytes(lambda x: xl.reshard(x, to, layout=layout, dtype=dtype), x, target=target)
    assert sum(found.values()) == sum(plan.recv_bytes) // plan.ranks
