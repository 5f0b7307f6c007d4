"""Gathering: parameters cast, then gathered; gradients reduced in a dtype of their own.

What travels is pinned as integers: some compilers widen narrow floats on the wire, or cast only
after the gather. Every gather is one operation, so that it is differentiated in either mode, and so
that a checkpoint policy can tell it from what surrounds it. `gather_partial` alone has no forward
mode: its gradient is of another type than its result, which takes a `custom_vjp`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from xlayout_jax.dtypes import asked, cast, pinned, unpinned
from xlayout_jax.mixed import Shardings, by_twin
from xlayout_jax.placement import entries_of
from xlayout_jax.tracers import is_explicit, is_tracer
from xlayout_jax.transposes import Step, exchange_p, linear

__all__ = [
    "automatic",
    "compiled",
    "constrained",
    "gather",
    "gather_partial",
    "gather_parts",
    "regather",
    "with_cotangent",
]

_NAME = "gather_of_parameters"
# What only moves elements or casts: free to do again, and a copy of what was gathered if saved.
_MOVEMENT = frozenset(
    (
        "bitcast_convert_type", "broadcast_in_dim", "concatenate", "convert_element_type", "copy",
        "pad", "pvary", "reshape", "rev", "slice", "split", "squeeze", "transpose",
    )
)  # fmt: skip


class _Wire(NamedTuple):
    """What travels: parameters in `dtype`, as integers if pinned; gradients in `reduce_dtype`."""

    dtype: Any
    reduce_dtype: Any
    own: Any
    pin: bool

    def there(self, x: Any, move: Callable[[Any], Any]) -> Any:
        narrow = cast(x, self.dtype)
        return unpinned(move(pinned(narrow) if self.pin else narrow), narrow)

    def back(self, g: Any, move: Callable[[Any], Any]) -> Any:
        return cast(move(cast(g, self.reduce_dtype)), self.own)


def _wire(x: Any, dtype: Any, reduce_dtype: Any, *, pin: bool) -> _Wire:
    return _Wire(asked(dtype, x.dtype), reduce_dtype, x.dtype, pin)


def gather(
    x: Any,
    source: NamedSharding,
    target: NamedSharding,
    dtype: Any,
    reduce_dtype: Any,
    /,
) -> Any:
    """Cast, then gather in that dtype; backward: `reduce_dtype`, back to shards, dtype of `x`."""
    return _gathered(x, source, target, _wire(x, dtype, reduce_dtype, pin=True))


def _gathered(x: Any, source: NamedSharding, target: NamedSharding, wire: _Wire) -> Any:
    return linear(*_whole(source, target, wire), (x,))[0]


@lru_cache(1024)
def _whole(source: NamedSharding, target: NamedSharding, wire: _Wire) -> tuple[Step, Step]:
    def there(ends: Shardings, targets: Shardings) -> Step:
        return _cast_and_moved(wire, *ends, *targets)

    def back(ends: Shardings, targets: Shardings) -> Step:
        return _reduced_and_moved(wire, *targets)

    return by_twin(there, (source,), (target,)), by_twin(back, (target,), (source,))


def _cast_and_moved(wire: _Wire, source: NamedSharding, target: NamedSharding) -> Step:
    def both_ends(x: Any) -> Any:  # or the compiler gathers before it casts
        return constrained(constrained(x, source), target)

    def gather_of_parameters(x: Any) -> tuple[Any]:
        return (wire.there(x, both_ends),)

    return compiled(gather_of_parameters, (target,))


def _reduced_and_moved(wire: _Wire, source: NamedSharding) -> Step:
    def scatter_of_gradients(g: Any) -> tuple[Any]:
        return (wire.back(g, lambda wide: constrained(wide, source)),)

    return compiled(scatter_of_gradients, (source,))


def gather_parts(
    x: Any, names: Sequence[str], axis: int, dtype: Any, reduce_dtype: Any, pin: bool, /
) -> Any:
    """The same inside shard_map, on this device's part; backward: one reduce-scatter."""
    for name in names:
        with suppress(ValueError):  # it varies over this one, which only private names would tell
            x = lax.pcast(x, name, to="varying")  # the gradient is then summed over it
    return linear(*_parts(tuple(names), axis, _wire(x, dtype, reduce_dtype, pin=pin)), (x,))[0]


@lru_cache(1024)
def _parts(names: tuple[str, ...], axis: int, wire: _Wire) -> tuple[Step, Step]:
    def gather_of_parameters(x: Any) -> tuple[Any]:
        return (wire.there(x, lambda part: lax.all_gather(part, names, axis=axis, tiled=True)),)

    def scatter_of_gradients(g: Any) -> tuple[Any]:
        return (wire.back(g, lambda wide: _scattered(wide, names, axis)),)

    return jax.jit(gather_of_parameters), jax.jit(scatter_of_gradients)


def gather_partial(
    x: Any,
    source: NamedSharding,
    target: NamedSharding,
    names: Sequence[str],
    dtype: Any,
    reduce_dtype: Any,
    pin: bool,
    /,
) -> Any:
    """The same on explicit axes, whole to whole; what comes back is summed here, not before.

    The result is typed as reduced over all named axes, also those that do not cut `x`, so that its
    gradient comes back unreduced; any other type would have it summed in the dtype of the result.
    """
    run: Any = _partial(source, target, tuple(names), _wire(x, dtype, reduce_dtype, pin=pin))
    return run(x)


@lru_cache(1024)
def _partial(
    source: NamedSharding, target: NamedSharding, over: tuple[str, ...], wire: _Wire
) -> Callable[[Any], Any]:
    gone, spec = _gone(source, target), entries_of(target)
    whole = tuple(name for name in over if name not in sum(gone, ()))
    reduced = NamedSharding(target.mesh, PartitionSpec(*spec, reduced={*over}))  # type: ignore[no-untyped-call]

    def forward(x: Any) -> Any:
        return jax.sharding.reshard(_gathered(x, source, target, wire), reduced)  # type: ignore[no-untyped-call]

    def scatter(g: Any) -> Any:
        for axis, names in enumerate(gone):
            if names:
                g = _scattered(g, names, axis)
        return lax.psum(g, whole) if whole else g  # type: ignore[no-untyped-call]

    held = PartitionSpec(*spec, unreduced={*over})  # type: ignore[no-untyped-call]
    sums = jax.shard_map(scatter, mesh=source.mesh, in_specs=held, out_specs=source.spec)
    minor = all(
        names == entry[len(entry) - len(names) :]
        for entry, names in zip(entries_of(source), gone, strict=True)
    )

    def to_shards(g: Any) -> Any:
        return sums(g) if minor else jax.sharding.reshard(g, source)  # type: ignore[no-untyped-call]

    @jax.jit
    def scatter_of_gradients(g: Any) -> Any:
        return wire.back(g, to_shards)

    def back(_: None, g: Any) -> tuple[Any]:
        return (scatter_of_gradients(g),)

    run = jax.custom_vjp(forward)
    run.defvjp(lambda x: (forward(x), None), back)
    return run


def _gone(source: NamedSharding, target: NamedSharding) -> list[tuple[str, ...]]:
    """For each array axis the mesh axes that cut it before and not after."""
    after = {name for entry in entries_of(target) for name in entry}
    return [tuple(n for n in entry if n not in after) for entry in entries_of(source)]


def regather(policy: Callable[..., Any] | None, /) -> Callable[..., Any]:
    """A checkpoint policy that saves nothing gathered, and asks `policy` about the rest."""

    def decide(prim: Any, *avals: Any, **params: Any) -> Any:
        if prim.name in _MOVEMENT or _is_gather(prim.name, params):
            return False
        return True if policy is None else policy(prim, *avals, **params)

    return decide


def _is_gather(name: str, params: dict[str, Any]) -> bool:
    if name == exchange_p.name:
        return getattr(params["forward"], "__name__", "") == _NAME
    return name == "reshard" and bool(params["dst_sharding"].spec.reduced)


def constrained(x: Any, sharding: NamedSharding, /) -> Any:
    """`x`, lying as told at this place of a program."""
    mesh = sharding.mesh
    if not mesh.explicit_axes:
        return lax.with_sharding_constraint(x, sharding)  # type: ignore[no-untyped-call]
    if is_explicit(mesh):
        return jax.sharding.reshard(x, sharding)  # type: ignore[no-untyped-call]
    # Where there are both kinds, JAX takes a word about either for one about the other.
    (made,) = automatic(_same, (sharding,))(x)
    return made


def compiled(run: Step, targets: Shardings, /) -> Step:
    """`run` as a program whose results lie as `targets` say, as do those of no elements.

    A constraint inside a program does not do for these: XLA drops it.
    """
    if targets[0].mesh.explicit_axes:  # where the type of an array tells how it lies
        return jax.jit(run)
    return jax.jit(run, out_shardings=tuple(targets))


def _same(x: Any) -> tuple[Any]:
    return (x,)


@lru_cache(1024)
def automatic(
    run: Callable[..., Sequence[Any]], targets: tuple[NamedSharding, ...], /
) -> Callable[..., tuple[Any, ...]]:
    """`run` with its shardings left to XLA; on explicit axes JAX would ask about every step.

    It is compiled once for the same `run` and `targets`.
    """
    return by_twin(lambda _, to: _automatic(run, to), None, targets)


def _automatic(run: Callable[..., Sequence[Any]], targets: Shardings) -> Step:
    mesh = targets[0].mesh
    if not mesh.explicit_axes:
        return compiled(lambda *xs: tuple(map(constrained, run(*xs), targets)), targets)

    def placed(*xs: Any) -> tuple[Any, ...]:
        pairs = zip(run(*xs), targets, strict=True)
        return tuple(lax.with_sharding_constraint(y, to.spec) for y, to in pairs)  # type: ignore[no-untyped-call]

    types = []
    for to in targets:
        entries = (tuple(n for n in entry if n in mesh.explicit_axes) for entry in entries_of(to))
        types.append(PartitionSpec(*(entry or None for entry in entries)))  # type: ignore[no-untyped-call]
    return jax.jit(
        jax.sharding.auto_axes(
            placed, axes=mesh.explicit_axes,
            out_sharding=tuple(NamedSharding(mesh, spec) for spec in types),
        )
    )  # fmt: skip


def with_cotangent(x: Any, sharding: NamedSharding, /) -> Any:
    """`x`, which lies so; its cotangent is taken there too, wherever JAX made it."""
    return linear(_same, _there(sharding), (x,))[0]


@lru_cache(1024)
def _there(sharding: NamedSharding) -> Step:
    def there(g: Any) -> tuple[Any]:
        return (constrained(g, sharding) if is_tracer(g) else jax.device_put(g, sharding),)

    return there


def _scattered(x: Any, names: tuple[str, ...], axis: int) -> Any:
    return lax.psum_scatter(x, names, scatter_dimension=axis, tiled=True)  # type: ignore[no-untyped-call]
