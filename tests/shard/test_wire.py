"""Bytes on the wire are read off XLA's program as it would run on an accelerator."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
import xlayout_jax.collective as collective
from tests.house.tree import printed
from xlayout.shard.wire import wire_bytes

N = 64 * 64 * 4  # bytes of the array


def grid(kind: AxisType = AxisType.Explicit) -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("dp", "tp"), (kind, kind))


def array(spec: P, mesh: jax.sharding.Mesh) -> jax.Array:
    x: jax.Array = jax.device_put(np.ones((64, 64), np.float32), NamedSharding(mesh, spec))
    return x


def mapped(fn: Callable[[Any], Any], into: P) -> Callable[[Any], Any]:
    made: Callable[[Any], Any] = jax.shard_map(
        fn, mesh=grid(), in_specs=P("tp"), out_specs=into, check_vma=False
    )
    return made


SHIFT = [(k, (k + 1) % 4) for k in range(4)]
RAW = {
    "all_gather": (lambda w: lax.all_gather(w, "tp", tiled=True), P(), N * 3 // 4),
    "all_reduce": (lambda w: lax.psum(w, "tp"), P(), 2 * N // 4 * 3 // 4),
    "reduce_scatter": (lambda w: lax.psum_scatter(w, "tp", tiled=True), P("tp"), N // 16 * 3),
    "all_to_all": (lambda w: lax.all_to_all(w, "tp", 1, 0, tiled=True), P(None, "tp"),
                   N // 4 * 3 // 4),
    "collective_permute": (lambda w: lax.ppermute(w, "tp", SHIFT), P("tp"), N // 4),
}  # fmt: skip


@pytest.mark.parametrize("op", RAW)
def test_a_collective_is_counted_by_its_model(op: str) -> None:
    fn, into, wanted = RAW[op]
    assert wire_bytes(mapped(fn, into), array(P("tp"), grid())) == {op: wanted}


@pytest.mark.parametrize(("dtype", "size"), [("bfloat16", 2), ("float8_e4m3fn", 1)])
def test_narrow_floats_are_counted_narrow(dtype: str, size: int) -> None:
    def gather(w: Any) -> Any:
        return lax.all_gather(w.astype(dtype), "tp", tiled=True)

    found = wire_bytes(mapped(gather, P()), array(P("tp"), grid()))
    assert found == {"all_gather": N * size // 4 * 3 // 4}
    assert wire_bytes(lambda w: xl.all_gather(w, dtype=dtype), array(P("tp"), grid())) == found


def test_on_automatic_axes_both_ends_of_a_gather_are_pinned() -> None:
    mesh = grid(AxisType.Auto)
    source, target = NamedSharding(mesh, P("tp")), NamedSharding(mesh, P())

    def twice(w: Any) -> Any:
        full = collective.gather(w, source, target, "bfloat16", "float32")
        return full @ full, full * 2

    assert wire_bytes(twice, array(P("tp"), mesh)) == {"all_gather": N // 2 * 3 // 4}


def test_what_the_compiler_adds_is_counted_too() -> None:
    mesh = grid(AxisType.Auto)
    to = NamedSharding(mesh, P(None, "tp"))
    found = wire_bytes(lambda x: lax.with_sharding_constraint(x, to), array(P("tp"), mesh))
    assert found == {"all_to_all": N // 4 * 3 // 4}


def test_what_stays_at_home_is_nothing() -> None:
    assert wire_bytes(lambda x: x + 1, array(P("tp"), grid())) == {}


@pytest.mark.parametrize(("steps", "wanted"), [(1, 1), (4, 1), (5, 2)])
def test_an_average_is_rounded_up_and_only_once(steps: int, wanted: int) -> None:
    def one_way(w: Any) -> Any:  # two of the eight devices receive a byte in every step
        return [lax.ppermute(w + k, "tp", [(0, 1)]) for k in range(steps)]

    x = jax.device_put(np.zeros(4, np.int8), NamedSharding(grid(), P("tp")))
    assert wire_bytes(mapped(one_way, P("tp")), x) == {"collective_permute": wanted}


def test_without_an_array_there_is_nothing_to_count() -> None:
    with pytest.raises(TypeError, match=r"args: no torch\.Tensor or jax\.Array among them; wanted"):
        wire_bytes(lambda: None)


# -- accelerators that are not there ---------------------------------------------------------------


@pytest.mark.parametrize(("target", "wheel"), [("h100", "jax-cuda12-plugin"), ("v5e", "libtpu")])
def test_a_compiler_that_is_missing_is_named(target: str, wheel: str) -> None:
    if importlib.util.find_spec(wheel.replace("-", "_")) is not None:
        pytest.skip(f"{wheel} is installed")
    with pytest.raises(RuntimeError, match=rf"target: '{target}' cannot be .*; install {wheel}"):
        wire_bytes(lambda x: x, array(P("tp"), grid()), target=target)


def test_a_target_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="target: 'a100'; wanted one of h100, v5e"):
        wire_bytes(lambda x: x, array(P("tp"), grid()), target="a100")


def test_a_number_of_devices_that_does_not_come_is_refused() -> None:
    two = jax.make_mesh((2,), ("tp",), (AxisType.Auto,), devices=jax.devices()[:2])
    with pytest.raises(ValueError, match="target: 2 devices of 'v5e'; wanted one of 1, 4, 8"):
        wire_bytes(lambda x: x, array(P("tp"), two), target="v5e")


def test_arrays_in_containers_count_as_arrays() -> None:
    x = array(P("tp"), grid())
    assert wire_bytes(lambda tree: tree["w"][0] + 1, {"w": [x]}) == {}


def test_what_a_persistent_cache_holds_is_compiled_all_the_same(tmp_path: Path) -> None:
    code = """
        import jax, xlayout as xl
        lies = jax.NamedSharding(jax.make_mesh((8,), "d"), jax.P("d"))
        x = jax.device_put(jax.numpy.ones((64, 8)), lies)
        gather = lambda x: xl.all_gather(x)
        for _ in range(2):
            assert xl.wire_bytes(gather, x) == {"all_gather": 1792}
        """
    printed(
        code,
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
        JAX_COMPILATION_CACHE_DIR=str(tmp_path),
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    )
    assert [*tmp_path.iterdir()]
