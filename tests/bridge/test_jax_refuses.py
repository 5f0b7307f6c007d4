"""A jax.Array that is not plain memory on one device is refused, with the way out."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from xlayout.bridge import to_jax, to_numpy, to_torch

NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
OUT_OF_JAX = pytest.mark.parametrize(
    "convert", [pytest.param(to_torch, marks=NEEDS_TORCH), to_numpy]
)


@OUT_OF_JAX
@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
def test_a_traced_array_is_refused_by_name(convert: Any, transform: Any) -> None:
    def inside(x: Any) -> Any:
        with pytest.raises(
            TypeError, match=r"is traced by jax.jit, grad or vmap and has no memory yet"
        ):
            convert(x)
        return (x * 1.0).sum()

    transform(inside)(jnp.ones(()) if transform is jax.grad else jnp.ones(3))


@OUT_OF_JAX
def test_a_deleted_or_donated_array_is_refused(convert: Any) -> None:
    deleted, donated = jnp.ones(3), jnp.ones(3)
    deleted.delete()
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated).block_until_ready()
    for x in (deleted, donated):
        with pytest.raises(ValueError, match=r"x: jax.Array float32\[3\] was deleted or donated"):
            convert(x)
        with pytest.raises(ValueError, match="was deleted or donated"):
            to_jax(x)


@OUT_OF_JAX
@pytest.mark.parametrize("spec", [jax.P("i"), jax.P()])
def test_an_array_over_several_devices_is_never_gathered_in_silence(
    convert: Any, spec: Any
) -> None:
    mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(jnp.ones(16), jax.NamedSharding(mesh, spec))
    with pytest.raises(ValueError, match=r"is spread over 8 devices; exchange it shard by shard"):
        convert(x)


@OUT_OF_JAX
def test_a_random_key_is_refused(convert: Any) -> None:
    with pytest.raises(TypeError, match=r"holds random keys; pass jax.random.key_data\(x\)"):
        convert(jax.random.key(0))


@OUT_OF_JAX
@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "float4_e2m1fn"])
def test_sub_byte_numbers_are_refused_with_a_way_out(convert: Any, dtype: str) -> None:
    x = jnp.arange(0, 2, 0.5).astype(dtype)
    with pytest.raises(TypeError, match=rf"no other framework has {dtype}; cast it to ") as refused:
        convert(x)
    cast = x.astype(str(refused.value).split("cast it to ")[1].split(",")[0])
    assert convert(cast).tolist() == x.tolist()


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "float4_e2m1fn"])
@pytest.mark.parametrize("shape", [(4,), (4, 8)])
def test_the_way_out_for_sub_byte_numbers_packs_them(shape: tuple[int, ...], dtype: str) -> None:
    x = jnp.arange(math.prod(shape)).reshape(shape).astype(dtype)
    with pytest.raises(TypeError, match="or pack it into bytes with") as refused:
        to_numpy(x)
    packed = eval(str(refused.value).rpartition(" with ")[2], {"lax": jax.lax, "jnp": jnp, "x": x})
    assert packed.dtype == jnp.uint8
    assert to_numpy(packed).size == x.size * jnp.iinfo(dtype).bits // 8 if "int" in dtype else 2


@NEEDS_TORCH
@pytest.mark.parametrize("dtype", ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"])
def test_a_float_of_jax_alone_is_refused_by_torch(dtype: str) -> None:
    with pytest.raises(
        TypeError, match=rf"{dtype} has no torch equivalent; cast it, or send its bits"
    ):
        to_torch(jnp.zeros(4, dtype))


NO_ARRAY_OF_JAX = {
    "shape": lambda: jax.ShapeDtypeStruct((3,), jnp.float32),
    "ref": lambda: jax.new_ref(jnp.ones(3)),
    "spec": lambda: jax.P("i"),
}


@OUT_OF_JAX
@pytest.mark.parametrize("make", NO_ARRAY_OF_JAX.values(), ids=NO_ARRAY_OF_JAX)
def test_what_only_looks_like_a_jax_array_is_refused(convert: Any, make: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a (jax.Array|torch.Tensor, jax.Array or numpy)"):
        convert(make())


def test_a_traced_array_stays_traced_in_its_own_framework() -> None:
    assert jax.jit(to_jax)(jnp.ones(2)).tolist() == [1, 1]
    assert jax.jit(lambda x: to_jax(x, copy=True))(jnp.ones(2)).tolist() == [1, 1]
    with pytest.raises(TypeError, match="is traced and has no memory to share; pass copy=None"):
        jax.jit(lambda x: to_jax(x, copy=False))(jnp.ones(2))
