"""Axes of both kinds, with an automatic one before an explicit one on the same array axis."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
import xlayout.jax
from xlayout.errors import ShardingError
from xlayout.shard import wire_bytes
from xlayout_jax import collective

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
ALL, PART, ACROSS = P(("dp", "tp", "fsdp")), P(("dp", "tp")), P(None, ("dp", "tp"))


def on(spec: P) -> NamedSharding:
    kinds = (AUTO, EXPLICIT, AUTO)
    return NamedSharding(jax.make_mesh((2, 2, 2), ("dp", "tp", "fsdp"), kinds), spec)


def put(spec: P) -> jax.Array:
    x: jax.Array = jax.device_put(np.arange(512, dtype="f4").reshape(64, 8), on(spec))
    return x


# name: (op, spec of its input, spec wanted for its result)
CASES: dict[str, tuple[Callable[[Any], Any], P, P]] = {
    "reshard": (lambda x: xl.reshard(x, on(PART)), P(), PART),
    "reshard, swapped": (lambda x: xl.reshard(x, on(PART)), P(("tp", "dp")), PART),
    "reshard, cast": (lambda x: xl.reshard(x, on(PART), dtype="float16"), ALL, PART),
    "op": (lambda x: xl.interleave(x, out_sharding=on(PART)), PART, PART),
    "op, native": (lambda x: xl.interleave(x, out_sharding=on(PART), comm="native"), PART, PART),
    "op, local": (lambda x: xl.matrix_transpose(x, comm="local"), PART, ACROSS),
    "all_gather": (lambda x: xl.all_gather(x, mesh_axis="fsdp"), ALL, PART),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("inside", [False, True], ids=["no mesh", "set_mesh"])
def test_outside_jit_a_result_lies_as_asked(name: str, inside: bool) -> None:
    op, before, after = CASES[name]
    x = put(before)
    with jax.set_mesh(x.sharding.mesh) if inside else nullcontext():
        y = op(x)
    assert y.sharding.mesh == x.sharding.mesh
    assert y.sharding.is_equivalent_to(on(after), 2), y.sharding
    whole = np.asarray(x)
    plain = {"op": xl.interleave, "op, native": xl.interleave, "op, local": xl.matrix_transpose}
    np.testing.assert_array_equal(y, plain.get(name, lambda x: x)(whole).astype(y.dtype))


def test_outside_jit_a_cast_moves_nothing() -> None:
    made = collective.cast(put(ALL), "float16")
    assert made.dtype == "float16"
    assert made.sharding.is_equivalent_to(on(ALL), 2), made.sharding


@pytest.mark.parametrize("name", ["reshard", "reshard, swapped", "op", "op, local", "all_gather"])
def test_outside_jit_a_gradient_lies_as_its_input(name: str) -> None:
    op, before, _ = CASES[name]
    x = put(before)
    with jax.set_mesh(x.sharding.mesh):
        y, back = jax.vjp(op, x)
        (g,) = back(y)
    np.testing.assert_array_equal(g, x)
    assert g.sharding.is_equivalent_to(x.sharding, 2), g.sharding


@pytest.mark.parametrize(
    ("name", "run"),
    {
        "in_sharding": lambda x, _: xl.matrix_transpose(x, in_sharding=on(PART), comm="local"),
        "out_sharding": lambda x, _: xl.interleave(x, in_sharding=on(P()), out_sharding=on(PART)),
        "to": lambda x, _: xl.reshard(x, on(PART), in_sharding=on(P())),
        "x": lambda x, held: x + xl.interleave(held),
    }.items(),
)
def test_inside_jit_what_jax_would_lay_otherwise_is_refused(
    name: str, run: Callable[[Any, Any], Any]
) -> None:
    x = put(PART)
    wanted = (
        f"{name}: (dp+tp) on dp=2 tp=2 fsdp=2 is cut by 'dp', an automatic axis, before 'tp', an "
        "explicit one; inside jit JAX cuts by explicit axes first, and would move the data: put "
        "'tp' before 'dp', make both axes of one kind, or call it outside jit"
    )
    with jax.set_mesh(x.sharding.mesh), pytest.raises(ShardingError, match=f"^{re.escape(wanted)}"):
        jax.jit(lambda y: run(y, x))(x)


def test_inside_jit_explicit_axes_first_stay_in_their_place() -> None:
    lies = on(P(("tp", "dp")))
    x = put(lies.spec)

    def op(x: Any) -> Any:
        return xl.matrix_transpose(x, in_sharding=lies, comm="local")

    with jax.set_mesh(lies.mesh):
        assert wire_bytes(op, x) == {}
        np.testing.assert_array_equal(jax.jit(op)(x), np.asarray(x).T)


def test_inside_jit_an_axis_of_one_device_is_before_nothing() -> None:
    mesh = jax.make_mesh((1, 8), ("dp", "tp"), (AUTO, EXPLICIT))
    x = jax.device_put(np.arange(64.0, dtype="f4"), NamedSharding(mesh, PART))
    made = jax.jit(lambda y: xl.reshard(y, x.sharding, in_sharding=x.sharding))(x)
    np.testing.assert_array_equal(made, x)


def test_axes_of_two_kinds_are_gathered_one_kind_at_a_time() -> None:
    kinds = (EXPLICIT, AUTO)
    on = jax.make_mesh((2, 4), ("fsdp", "tp"), kinds)
    w = jax.device_put(np.ones((8, 8), "f4"), NamedSharding(on, P("fsdp", "tp")))

    def both(w: Any) -> Any:
        return xlayout.jax.all_gather(w, ("fsdp", "tp"))

    part = jax.shard_map(both, mesh=on, in_specs=P("fsdp"), out_specs=P(), axis_names={"fsdp"})
    for run in (both, part):
        with jax.set_mesh(on), pytest.raises(ShardingError, match=r"over fsdp, tp in the dtype of"):
            jax.jit(run)(w)
