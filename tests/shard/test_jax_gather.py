"""A gather in JAX casts first, and sums gradients in the dtype it is given."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
import xlayout.jax
from tests.shard.train import (
    AUTO,
    EXPLICIT,
    IN,
    OUT,
    SHARDED,
    WIDE,
    arrays,
    mapped,
    mesh,
    net,
)  # fmt: skip
from xlayout.errors import AxisError, LayoutError, ShardingError
from xlayout.shard import wire_bytes

# -- bytes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "times"), [("bfloat16", 2), ("float8_e4m3fn", 4)])
def test_a_weight_that_is_used_twice_travels_once_and_narrow(dtype: str, times: int) -> None:
    """XLA by itself gathers float32 here, however the cast is written."""
    on = mesh(AUTO)
    source, whole = NamedSharding(on, P("fsdp")), NamedSharding(on, P())

    def plain(w: Any) -> Any:
        return jax.lax.with_sharding_constraint(w, whole).astype(dtype)

    def ours(w: Any) -> Any:
        return xl.all_gather(w, dtype=dtype, in_sharding=source)

    found = [wire_bytes(jax.grad(lambda w, x, g=g: net(g, w, x)), *arrays(on))["all_gather"]
             for g in (plain, ours)]  # fmt: skip
    assert found == [WIDE, WIDE // times]


@pytest.mark.parametrize(("dtype", "times"), [("bfloat16", 2), ("float8_e4m3fn", 4)])
@pytest.mark.parametrize("check", [True, False])
def test_in_shard_map_the_gradient_is_scattered_in_float32(
    dtype: str, times: int, check: bool
) -> None:
    def ours(w: Any) -> Any:
        return xlayout.jax.all_gather(w, "fsdp", dtype=dtype)

    found = wire_bytes(jax.grad(mapped(ours, check)), *arrays(mesh(AUTO)))
    assert found.pop("all_gather") == WIDE // times
    assert found.pop("reduce_scatter") == WIDE
    assert sum(found.values()) < 8  # the mean of the loss


def test_on_explicit_axes_the_gradient_is_scattered_in_float32() -> None:
    with jax.set_mesh(mesh(EXPLICIT)) as _:
        w, x = arrays(mesh(EXPLICIT))

        def loss(w: Any, x: Any) -> Any:
            return net(lambda w: xlayout.jax.all_gather(w, "fsdp", dtype="bfloat16"), w, x)

        found = wire_bytes(jax.grad(loss), w, x)
    assert found == {"all_gather": WIDE // 2, "reduce_scatter": WIDE}


def test_another_dtype_to_sum_in_is_what_travels_back() -> None:
    def ours(w: Any) -> Any:
        return xlayout.jax.all_gather(w, "fsdp", dtype="bfloat16", reduce_dtype="bfloat16")

    found = wire_bytes(jax.grad(mapped(ours)), *arrays(mesh(AUTO)))
    assert found["reduce_scatter"] == WIDE // 2


def test_what_is_as_wide_as_float64_is_what_was_gathered() -> None:
    w, x = arrays(mesh(AUTO))
    with jax.enable_x64(True):
        wide = w.astype("float64")

        def ours(w: Any) -> Any:
            return xlayout.jax.all_gather(w, "fsdp", dtype="float32")

        assert wire_bytes(jax.grad(mapped(ours)), wide, x)["reduce_scatter"] == WIDE


def test_what_is_not_pinned_is_what_it_is() -> None:
    def wired(wire: Any) -> str:
        def ours(w: Any) -> Any:
            return xlayout.jax.all_gather(w, "fsdp", dtype="bfloat16", wire=wire)

        return jax.jit(mapped(ours)).lower(*arrays(mesh(AUTO))).as_text()

    for wire, kind in (("pinned", "ui16"), ("native", "bf16")):
        (line,) = [line for line in wired(wire).splitlines() if "all_gather" in line]
        assert f"{IN}x{OUT}x{kind}" in line
        with jax.set_mesh(mesh(EXPLICIT)):
            whole = jax.jit(lambda w, wire=wire: xlayout.jax.all_gather(
                w, "fsdp", dtype="bfloat16", wire=wire))  # fmt: skip
            assert ("ui16" in whole.lower(arrays(mesh(EXPLICIT))[0]).as_text()) == (kind == "ui16")


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "float4_e2m1fn"])
def test_it_equals_gathering_and_then_casting_to_the_bit(dtype: str) -> None:
    w, _ = arrays(mesh(AUTO))
    on = mesh(EXPLICIT)
    whole = jax.shard_map(
        lambda w: xlayout.jax.all_gather(w, "fsdp", dtype=dtype),
        mesh=mesh(AUTO), in_specs=P("fsdp"), out_specs=P(), check_vma=False,
    )  # fmt: skip
    told = jax.jit(lambda w: xl.all_gather(w, dtype=dtype, in_sharding=w0.sharding))
    w0 = w
    with jax.set_mesh(on):
        explicit = xlayout.jax.all_gather(arrays(on)[0], "fsdp", dtype=dtype)
    for made in (jax.jit(whole)(w), told(w), explicit):
        assert np.asarray(made).tobytes() == np.asarray(w).astype(dtype).tobytes()


def test_the_other_axis_and_several_mesh_axes() -> None:
    on = mesh(AUTO, (2, 4))
    for spec, axis, names in ((P(None, ("fsdp", "tp")), 1, ("fsdp", "tp")), (P("tp"), 0, "tp")):
        w, _ = arrays(on, spec)

        def run(w: Any, names: Any = names, axis: int = axis) -> Any:
            return xlayout.jax.all_gather(w, names, axis=axis)

        made = jax.shard_map(run, mesh=on, in_specs=spec, out_specs=P(), check_vma=False)(w)
        np.testing.assert_array_equal(made, w)


def test_gradients_are_summed_in_float32() -> None:
    """Device 0 adds 256 and the others 1 each; bfloat16 would round the sum to 256 or 264."""
    x = np.ones((8, IN), jnp.bfloat16)
    x[0] = 256

    def rows(w: Any, x: Any) -> Any:
        return (x @ xlayout.jax.all_gather(w, "fsdp", dtype="bfloat16")).astype(np.float32).sum()

    def loss(w: Any, x: Any) -> Any:
        return jax.lax.psum(rows(w, x), "fsdp")

    w, _ = arrays(mesh(AUTO))
    parts = jax.shard_map(loss, mesh=mesh(AUTO), in_specs=(SHARDED, SHARDED), out_specs=P())
    g = jax.jit(jax.grad(parts))(w, x)
    assert g.dtype == w.dtype
    assert g.sharding.is_equivalent_to(w.sharding, 2)
    np.testing.assert_array_equal(g, np.full((IN, OUT), 263, np.float32))
    with jax.set_mesh(mesh(EXPLICIT)):
        w, _ = arrays(mesh(EXPLICIT))
        batch = jax.device_put(x, NamedSharding(mesh(EXPLICIT), SHARDED))
        g = jax.jit(jax.grad(rows))(w, batch)
    np.testing.assert_array_equal(g, np.full((IN, OUT), 263, np.float32))


def test_complex_gradients_keep_both_parts_and_float64_its_digits() -> None:
    on = mesh(AUTO)
    given = NamedSharding(on, P("fsdp"))

    def gradients(x: Any, weight: Any) -> list[Any]:
        def loss(gathered: Any) -> Any:
            return jnp.real(gathered * weight).sum()

        def within(x: Any) -> Any:
            return jax.lax.pmean(loss(xlayout.jax.all_gather(x, "fsdp")), "fsdp")

        mapped = jax.shard_map(within, mesh=on, in_specs=P("fsdp"), out_specs=P())
        sharded = jax.device_put(x, given)
        forms = (loss, lambda x: loss(xl.all_gather(x)), mapped)
        return [jax.grad(form)(sharded) for form in forms]

    with jax.enable_x64(True):
        for x, weight in (
            (jnp.ones(8, jnp.complex64), 3 - 4j),
            (jnp.ones(8, jnp.complex128), 1 / 3 - 1j / 7),
            (jnp.ones(8, jnp.float64), 1 / 3),
        ):
            plain, gathered, within = gradients(x, weight)
            assert plain.dtype == gathered.dtype == within.dtype == x.dtype
            np.testing.assert_array_equal(gathered, plain)
            np.testing.assert_allclose(within, plain, rtol=1e-15 if x.real.dtype == "f8" else 1e-6)


@pytest.mark.parametrize("spec", [P(("tp", "fsdp")), P(("fsdp", "tp")), P("tp", "fsdp")], ids=str)
def test_one_of_two_mesh_axes_on_explicit_axes(spec: P) -> None:
    on = mesh(EXPLICIT, (2, 4))
    with jax.set_mesh(on):
        w, x = arrays(on, spec)

        def loss(w: Any) -> Any:
            full = xlayout.jax.all_gather(w, "fsdp")
            rows = jnp.einsum("bi,io->bo", x.astype(w.dtype), full, out_sharding=P("fsdp", None))
            return (rows**2).sum()

        g = jax.jit(jax.grad(loss))(w)
    assert g.sharding.is_equivalent_to(w.sharding, 2)
    plain = np.asarray(x).astype(np.float32)
    np.testing.assert_allclose(g, 2 * plain.T @ (plain @ np.asarray(w)), rtol=1e-5, atol=1e-4)


def test_it_is_differentiated_forward_too() -> None:
    w, x = arrays(mesh(AUTO))

    def ours(w: Any) -> Any:
        return xlayout.jax.all_gather(w, "fsdp", dtype="bfloat16")

    _, tangent = jax.jit(lambda w: jax.jvp(lambda w: mapped(ours)(w, x), (w,), (w,)))(w)
    grad = jax.jit(jax.grad(mapped(ours)))(w, x)
    np.testing.assert_allclose(tangent, (grad * w).sum(), rtol=2e-2)
    _, whole = jax.jvp(lambda w: xl.all_gather(w, dtype="bfloat16"), (w,), (w,))
    np.testing.assert_array_equal(whole, np.asarray(w).astype(jnp.bfloat16))


def test_ops_leave_what_is_reduced_to_jax() -> None:
    on = mesh(EXPLICIT)
    with jax.set_mesh(on):
        w, x = arrays(on)

        def whole(w: Any) -> Any:
            return xlayout.jax.all_gather(w, "fsdp")

        def turned(w: Any) -> Any:
            return xl.matrix_transpose(whole(w))

        for made in (turned(w), jax.jit(turned)(w)):
            assert jax.typeof(made).sharding.spec.reduced == {"fsdp"}
            np.testing.assert_array_equal(made, np.asarray(w).T)
        losses = (lambda w: (x @ turned(w).T).sum()), (lambda w: (x @ whole(w)).sum())
        np.testing.assert_array_equal(*(jax.jit(jax.grad(loss))(w) for loss in losses))
        with pytest.raises(ValueError, match="has the gradient unreduced; take the array to the"):
            xl.interleave(whole(w), out_sharding=P("fsdp"))


def test_on_explicit_axes_nothing_is_compiled_twice(caplog: pytest.LogCaptureFixture) -> None:
    found = []
    with jax.set_mesh(mesh(EXPLICIT)):
        w, x = arrays(mesh(EXPLICIT))
        for _ in range(2):
            caplog.clear()
            with jax.log_compiles():
                jax.grad(lambda w: (x @ xlayout.jax.all_gather(w, "fsdp")).sum())(w)
            found.append("XLA compilation" in caplog.text)
    assert found == [True, False]


def test_the_gradient_of_a_whole_array_lies_as_the_array() -> None:
    w, _ = arrays(mesh(AUTO))
    g = jax.grad(lambda w: (xl.all_gather(w, dtype="bfloat16") * jnp.bfloat16(2)).sum())(w)
    assert (g.dtype, g.sharding.is_equivalent_to(w.sharding, 2)) == (w.dtype, True)
    np.testing.assert_array_equal(g, np.full(w.shape, 2))


# -- refusals --------------------------------------------------------------------------------------


def test_where_xla_sums_by_itself_it_says_what_to_do() -> None:
    w, _ = arrays(mesh(AUTO))
    with pytest.raises(ShardingError, match=r"sums the gradient over fsdp in the dtype of the res"):
        xlayout.jax.all_gather(w, "fsdp")


def test_inside_shard_map_the_whole_form_names_the_other() -> None:
    with pytest.raises(TypeError, match=r"one device's part; inside shard_map take xlayout.jax"):
        mapped(lambda w: xl.all_gather(w, in_sharding=P("fsdp")))(*arrays(mesh(AUTO)))


def test_a_mesh_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(AxisError, match="mesh_axis: 'tp'; the mesh of x has fsdp"):
        xlayout.jax.all_gather(arrays(mesh(AUTO))[0], "tp")
    with pytest.raises(AxisError, match=r"mesh_axis: \{'fsdp'\}; the mesh of x has fsdp"):
        xlayout.jax.all_gather(arrays(mesh(AUTO))[0], {"fsdp"})  # type: ignore[arg-type]


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(AxisError, match="axis: 2"):
        mapped(lambda w: xlayout.jax.all_gather(w, "fsdp", axis=2))(*arrays(mesh(AUTO)))


def test_a_wire_that_is_not_known_is_refused() -> None:
    with pytest.raises(LayoutError, match="wire: 'fast'; wanted one of 'pinned', 'native'"):
        xlayout.jax.all_gather(arrays(mesh(AUTO))[0], "fsdp", wire="fast")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "given"), [("dtype", "bfloat17"), ("reduce_dtype", "bfloat17"), ("reduce_dtype", None)]
)
def test_a_dtype_that_is_none_is_refused(name: str, given: Any) -> None:
    said = f"^{name}: {given!r}; wanted a dtype of JAX or its name$"
    with pytest.raises(TypeError, match=said):
        xlayout.jax.all_gather(arrays(mesh(AUTO))[0], "fsdp", **{name: given})
