"""Gathering: parameters cast, then gathered; gradients reduced in a dtype of their own.

What travels is pinned as integers: some compilers widen narrow floats on the wire, or gather first
and cast then. Every gather is one linear call, so that it is differentiated in either mode, and so
that a checkpoint policy can tell it from what surrounds it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from xlayout_jax.tracers import is_explicit, is_tracer

__all__ = [
    "automatic",
    "constrained",
    "gather",
    "gather_partial",
    "gather_parts",
    "pinned",
    "regather",
    "unpinned",
]

_NAME = "gather_of_parameters"
# What only moves elements or casts: free to do again, and a copy of what was gathered if saved.
_MOVEMENT = frozenset(
    (
        "bitcast_convert_type", "broadcast_in_dim", "concatenate", "convert_element_type", "copy",
        "pad", "pvary", "reshape", "rev", "slice", "split", "squeeze", "transpose",
    )
)  # fmt: skip


def gather(
    x: Any,
    source: NamedSharding,
    target: NamedSharding,
    dtype: Any,
    reduce_dtype: Any,
    pin: bool = True,
    /,
) -> Any:
    """Cast, then gather in that dtype; backward: `reduce_dtype`, back to shards, dtype of `x`."""
    forward, backward = _whole(source, target, jnp.dtype(dtype), reduce_dtype, x.dtype, pin)
    return _linear(forward, backward, x)


@lru_cache(1024)
def _whole(
    source: NamedSharding,
    target: NamedSharding,
    dtype: Any,
    reduce_dtype: Any,
    own: Any,
    pin: bool,
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    def gather_of_parameters(x: Any) -> Any:
        narrow = pinned(x.astype(dtype)) if pin else x.astype(dtype)
        for at in (source, target):  # both ends, or the compiler gathers before it casts
            narrow = constrained(narrow, at)
        return unpinned(narrow, dtype)

    def scatter_of_gradients(g: Any) -> Any:
        return constrained(g.astype(reduce_dtype), source).astype(own)

    return jax.jit(gather_of_parameters), jax.jit(scatter_of_gradients)


def gather_parts(
    x: Any, names: Sequence[str], axis: int, dtype: Any, reduce_dtype: Any, pin: bool, /
) -> Any:
    """The same inside shard_map, on this device's part; backward: one reduce-scatter."""
    forward, backward = _parts(tuple(names), axis, jnp.dtype(dtype), reduce_dtype, x.dtype, pin)
    return _linear(forward, backward, x)


@lru_cache(1024)
def _parts(
    names: tuple[str, ...], axis: int, dtype: Any, reduce_dtype: Any, own: Any, pin: bool
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    def gather_of_parameters(x: Any) -> Any:
        narrow = pinned(x.astype(dtype)) if pin else x.astype(dtype)
        return unpinned(lax.all_gather(narrow, names, axis=axis, tiled=True), dtype)

    def scatter_of_gradients(g: Any) -> Any:
        wide = g.astype(reduce_dtype)
        return _scattered(wide, names, axis).astype(own)

    return jax.jit(gather_of_parameters), jax.jit(scatter_of_gradients)


def gather_partial(
    x: Any,
    source: NamedSharding,
    target: NamedSharding,
    dtype: Any,
    reduce_dtype: Any,
    pin: bool,
    /,
) -> Any:
    """The same on explicit axes, whole to whole; what comes back is summed here, not before.

    The result is typed as reduced over the axes that were gathered, so that its gradient comes back
    unreduced; any other type would have it summed in the dtype of the result.
    """
    gone, spec = _gone(source, target), _entries(target)
    reduced = NamedSharding(target.mesh, PartitionSpec(*spec, reduced={*sum(gone, ())}))  # type: ignore[no-untyped-call]
    own = x.dtype

    def forward(x: Any) -> Any:
        return jax.sharding.reshard(gather(x, source, target, dtype, reduce_dtype, pin), reduced)  # type: ignore[no-untyped-call]

    def back(_: None, g: Any) -> tuple[Any]:
        g = g.astype(reduce_dtype)
        for axis, names in enumerate(gone):
            if names != _entries(source)[axis][len(_entries(source)[axis]) - len(names) :]:
                return (jax.sharding.reshard(g, source).astype(own),)  # type: ignore[no-untyped-call]

        def scatter(g: Any) -> Any:
            for axis, names in enumerate(gone):
                if names:
                    g = _scattered(g, names, axis)
            return g

        held = PartitionSpec(*spec, unreduced={*sum(gone, ())})  # type: ignore[no-untyped-call]
        sums = jax.shard_map(scatter, mesh=source.mesh, in_specs=held, out_specs=source.spec)
        return (sums(g).astype(own),)

    run = jax.custom_vjp(forward)
    run.defvjp(lambda x: (forward(x), None), back)
    return run(x)


def _gone(source: NamedSharding, target: NamedSharding) -> list[tuple[str, ...]]:
    """For each array axis the mesh axes that cut it before and not after."""
    after = {name for entry in _entries(target) for name in entry}
    return [tuple(n for n in entry if n not in after) for entry in _entries(source)]


def _entries(sharding: NamedSharding) -> list[tuple[str, ...]]:
    return [(e,) if isinstance(e, str) else tuple(e or ()) for e in sharding.spec]


def regather(policy: Callable[..., Any] | None, /) -> Callable[..., Any]:
    """A checkpoint policy that saves nothing gathered, and asks `policy` about the rest."""

    def decide(prim: Any, *avals: Any, **params: Any) -> Any:
        if prim.name in _MOVEMENT or _is_gather(prim.name, params):
            return False
        return True if policy is None else policy(prim, *avals, **params)

    return decide


def _is_gather(name: str, params: dict[str, Any]) -> bool:
    if name == "linear_call":
        return any(e.params.get("name") == _NAME for e in params["callee"].jaxpr.eqns)
    return name == "reshard" and bool(params["dst_sharding"].spec.reduced)


def constrained(x: Any, sharding: NamedSharding, /) -> Any:
    """`x`, lying as told at this place of a program."""
    mesh = sharding.mesh
    if not mesh.explicit_axes:
        return lax.with_sharding_constraint(x, sharding)  # type: ignore[no-untyped-call]
    if is_explicit(mesh):
        return jax.sharding.reshard(x, sharding)  # type: ignore[no-untyped-call]
    # Where there are both kinds, JAX takes a word about either for one about the other.
    (made,) = automatic(lambda x: (x,), (sharding,))(x)
    return made


def automatic(
    run: Callable[..., Sequence[Any]], targets: Sequence[NamedSharding], /
) -> Callable[..., tuple[Any, ...]]:
    """`run` by what XLA makes of it, where explicit axes would have JAX ask about every step."""
    mesh = targets[0].mesh

    def placed(*xs: Any) -> tuple[Any, ...]:
        pairs = zip(run(*xs), targets, strict=True)
        return tuple(lax.with_sharding_constraint(y, to.spec) for y, to in pairs)  # type: ignore[no-untyped-call]

    types = []
    for to in targets:
        entries = (tuple(n for n in entry if n in mesh.explicit_axes) for entry in _entries(to))
        types.append(PartitionSpec(*(entry or None for entry in entries)))  # type: ignore[no-untyped-call]
    return jax.jit(
        jax.sharding.auto_axes(
            placed, axes=mesh.explicit_axes,
            out_sharding=tuple(NamedSharding(mesh, spec) for spec in types),
        )
    )  # fmt: skip


def pinned(x: Any, /) -> Any:
    """Narrow floats as integers: XLA widens bf16 and fp8 collectives on some platforms."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    bits = jnp.finfo(x.dtype).bits  # type: ignore[no-untyped-call]
    return x if bits > 16 else lax.bitcast_convert_type(x, jnp.dtype(f"uint{bits}"))


def unpinned(x: Any, dtype: Any, /) -> Any:
    """What `pinned` was given."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)


def _scattered(x: Any, names: tuple[str, ...], axis: int) -> Any:
    return lax.psum_scatter(x, names, scatter_dimension=axis, tiled=True)  # type: ignore[no-untyped-call]


def _linear(forward: Callable[[Any], Any], backward: Callable[[Any], Any], x: Any) -> Any:
    if not is_tracer(x):
        return forward(x)
    return jax.custom_derivatives.linear_call(
        lambda _, x: forward(x), lambda _, g: backward(g), (), x
    )
