"""What moves between devices keeps its dtype, be it 64 bits wide, weak, or a random key."""

from __future__ import annotations

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
from tests.house.tree import printed
from xlayout.errors import ShapeError

LARGE = 2**40 + 5  # its low half is 5


def mesh(kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("dp", "tp"), (kind, kind))


def put(x: Any, spec: P, kind: AxisType = AxisType.Auto) -> jax.Array:
    made: jax.Array = jax.device_put(x, NamedSharding(mesh(kind), spec))
    return made


def wide(value: float, dtype: str, kind: AxisType = AxisType.Auto) -> jax.Array:
    with jax.enable_x64(True):
        return put(np.full(8, value, dtype), P("tp"), kind)


def inside(x: Any, dtype: Any = None) -> Any:
    whole = lambda x: xlayout.jax.all_gather(x, "tp", dtype=dtype)  # noqa: E731
    return jax.shard_map(whole, mesh=mesh(), in_specs=P("tp"), out_specs=P(), check_vma=False)(x)


GATHERS: dict[str, tuple[AxisType, Callable[[Any], Any]]] = {
    "whole": (AxisType.Auto, xl.all_gather),
    "whole, named": (AxisType.Auto, lambda x: xl.all_gather(x, dtype=x.dtype)),
    "in shard_map": (AxisType.Auto, inside),
    "explicit": (AxisType.Explicit, lambda x: xlayout.jax.all_gather(x, "tp")),
    "reshard": (AxisType.Auto, lambda x: xl.reshard(x, P(), dtype=x.dtype.name)),
}


@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize(("value", "dtype"), [(LARGE, "int64"), (1 / 3, "float64")])
def test_64_bits_stay_where_jax_makes_no_such_arrays(name: str, value: float, dtype: str) -> None:
    kind, gather = GATHERS[name]
    made = gather(wide(value, dtype, kind))
    assert made.dtype == dtype
    np.testing.assert_array_equal(np.asarray(made), np.full(8, value, dtype))


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_a_gradient_of_64_bits_is_one_too(dtype: str) -> None:
    x = wide(1 / 3, "float64")
    made, back = jax.vjp(lambda x: xl.all_gather(x, dtype=dtype), x)
    (gradient,) = back(made)
    assert gradient.dtype == "float64"
    np.testing.assert_array_equal(gradient, np.asarray(made).astype("float64"))


@pytest.mark.parametrize(("dtype", "narrow"), [("int64", "int32"), ("float64", "float32")])
def test_64_bits_that_jax_would_not_make_are_refused(dtype: str, narrow: str) -> None:
    x = put(np.ones(8, np.float32), P("tp"))
    said = (
        f"dtype: {dtype} of an array of float32 would be narrowed to {narrow}, because "
        f"jax_enable_x64 is off; enable it, or ask for {narrow}"
    )
    for gather in (
        lambda: xl.reshard(x, P(), dtype=dtype),
        lambda: xl.all_gather(x, dtype=dtype),
        lambda: inside(x, dtype),
    ):
        with pytest.raises(TypeError, match=f"^{said}"):
            gather()
    with jax.enable_x64(True):
        assert xl.reshard(x, P(), dtype=dtype).dtype == dtype


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_move_as_what_they_are_made_of(kind: AxisType, impl: str) -> None:
    plain = jax.random.split(jax.random.key(0, impl=impl), 16)
    data, keys = np.asarray(jax.random.key_data(plain)), put(plain, P("tp"), kind)
    zipped = xl.interleave(data)
    for made, wanted in (
        (xl.interleave(keys), zipped),
        (xl.interleave(keys, block=2, out_sharding=P("dp")), xl.interleave(data, block=2)),
        (xl.apply(xl.interleave.layout((16,)), keys), zipped),
        *((xl.reshard(keys, to), data) for to in (P(), P("dp"), P(("dp", "tp")))),
        (xl.all_gather(keys), data),
    ):
        assert made.dtype == keys.dtype
        np.testing.assert_array_equal(jax.random.key_data(made), wanted)
    with pytest.raises(ShapeError, match=r"fill: 0 in an array of key.*; wanted none: random keys"):
        xl.apply(xl.pad.layout((16,), to=20), keys)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_weak_type_stays_weak(kind: AxisType) -> None:
    alone = jnp.broadcast_to(jnp.asarray(2.0), (8, 8))
    assert alone.weak_type
    assert xl.pad(alone, to=12).weak_type
    x = put(alone, P("tp"), kind)
    for made in (
        xl.interleave(x), xl.interleave(x, out_sharding=P("dp")), xl.pad(x, to=12, value=3),
        xl.matrix_transpose(x), xl.reshard(x, P()), xl.reshard(x, P(None, "tp")),
    ):  # fmt: skip
        assert made.weak_type
    assert not xl.interleave(put(np.asarray(alone), P("tp"), kind)).weak_type


@pytest.mark.parametrize("dtype", ["int2", "uint2"])
def test_elements_of_two_bits_end_no_process(dtype: str) -> None:
    code = f"""
        import jax, numpy as np, xlayout as xl
        from jax.sharding import NamedSharding, PartitionSpec as P
        plain = (np.arange(16 * 24).reshape(16, 24) // 3 % 2).astype(jax.numpy.dtype("{dtype}"))
        x = jax.device_put(plain)
        joined = xl.rearrange((x, x[:5]), "a c, b c -> (b + a) c")
        assert np.array_equal(joined, np.concatenate([plain[:5], plain]))
        mesh = jax.make_mesh((4, 2), ("dp", "tp"), (jax.sharding.AxisType.Auto,) * 2)
        spread = jax.device_put(x, NamedSharding(mesh, P("dp", "tp")))
        for spec in (P("tp", "dp"), P("dp"), P(None, "dp"), P()):
            assert np.array_equal(xl.reshard(spread, NamedSharding(mesh, spec)), plain)
        assert np.array_equal(xl.all_gather(spread, mesh_axis="dp"), plain)
        assert np.array_equal(xl.to_tiles(spread, grid=(4, 5))[1][1], plain[4:8, 5:10])
        assert np.array_equal(xl.trim(spread, to=13), plain[:13])
        halved = xl.apply(xl.rearrange.layout((16, 24), "(a b) c -> (b c) a", a=2), spread)
        assert np.array_equal(halved, plain.reshape(2, 8 * 24).T)
        cut = jax.jit(lambda x: xl.trim(x, to=13, in_sharding=spread.sharding))(spread)
        assert np.array_equal(cut, plain[:13])
        try:
            xl.interleave(spread, comm="native")
        except xl.LayoutError as error:
            told = "comm: 'native' with {dtype}, whose bytes XLA mistakes on a CPU and may crash"
            assert str(error) == told + "; take 'auto'"
        else:
            raise AssertionError("it was sent by XLA")
    """
    printed(code, XLA_FLAGS="--xla_force_host_platform_device_count=8")
