"""Refusals: why an array has no memory to share, or why JAX refuses it, and what would work."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import jax

from xlayout_jax.dtypes import is_key
from xlayout_jax.tracers import is_tracer

P = ParamSpec("P")
R = TypeVar("R")

_SUB_BYTE = ("int2", "uint2", "int4", "uint4", "float4_e2m1fn")


def refuse_abstract(x: Any) -> None:
    if is_tracer(x):
        raise TypeError(
            f"{x.aval} is traced by jax.jit, grad or vmap and has no memory yet; "
            "exchange it outside, or call out with jax.pure_callback"
        )
    if not isinstance(x, jax.Array):
        raise TypeError(f"expected a jax.Array, got {type(x).__module__}.{type(x).__qualname__}")


def deleted(x: jax.Array) -> ValueError:
    return ValueError(f"{described(x)} was deleted or donated; its memory is no longer there")


def refuse_deleted(x: Any) -> None:
    """Refuse an array that is gone as an argument of an op; a tracer is nobody's to delete."""
    if not is_tracer(x) and isinstance(x, jax.Array) and x.is_deleted():
        raise ValueError(f"x: {deleted(x)}; pass what it was given for, or a copy from before")


def worded(step: Callable[P, R]) -> Callable[P, R]:
    """A step of plain ops that says what to do if JAX refuses how its arrays are sharded."""

    @wraps(step)
    def run(*args: P.args, **named: P.kwargs) -> R:
        try:
            return step(*args, **named)
        except Exception as error:
            xs = jax.tree.leaves(args)
            meshes = dict.fromkeys(_mesh(x) for x in xs if is_tracer(x) and _mesh(x).axis_names)
            if len(meshes) > 1:
                several = " and ".join(map(_axes_of, meshes))
                raise ValueError(
                    f"arrays: on several meshes, {several}; wanted one: jax.device_put them on the "
                    "same first"
                ) from error
            # JAX has the first under no public name; of axes of one element 0.10 has the second.
            if type(error).__name__ not in ("ShardingTypeError", "AssertionError"):
                raise
            cut = next((x.aval for x in xs if is_tracer(x)), None)
            why = str(error) or "it fails an assertion of its own"
            raise ValueError(
                f"x: cut along an explicit axis, where JAX's own ops refuse a step of this one, of "
                f"{cut}: {why}; leave out vmap and comm='native', use xlayout.apply(layout, x) for "
                "a layout, say with in_sharding= how x lies inside jit, or make that array axis "
                "whole first, by jax.sharding.reshard"
            ) from error

    return run


def _mesh(x: Any) -> Any:
    return jax.typeof(x).sharding.mesh


def _axes_of(mesh: Any) -> str:
    explicit = mesh.explicit_axes
    said = (f"{'explicit ' * (name in explicit)}{name}={n}" for name, n in mesh.shape.items())
    return f"({' '.join(said)})"


def no_array(x: Any) -> TypeError:
    way = "read the array that it holds, x[...]"
    if isinstance(x, jax.ShapeDtypeStruct):
        way = "it has no values: jax.eval_shape(op, x) says what an op would make of it"
    return TypeError(f"x: {type(x).__name__}; wanted a jax.Array; {way}")


def no_equivalent(x: jax.Array) -> TypeError:
    if is_key(x.dtype):
        return TypeError(f"{described(x)} holds random keys; pass jax.random.key_data(x)")
    hint = "cast it"
    if x.dtype.name in _SUB_BYTE:
        bits = 2 if x.dtype.name.endswith("int2") else 4
        wider = "int8" if "int" in x.dtype.name else "float16"
        call = f"lax.bitcast_convert_type(x.reshape(*x.shape[:-1], -1, {8 // bits}), jnp.uint8)"
        hint = f"cast it to {wider}, or pack it into bytes with {call}"
    return TypeError(f"{described(x)}: no other framework has {x.dtype}; {hint}")


def described(x: Any) -> str:
    return f"jax.Array {x.dtype}{list(x.shape)}"
