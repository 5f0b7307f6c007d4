"""Collective: what JAX does of an exchange between devices, and how gradients go back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import AxisType, NamedSharding

from xlayout_jax.gathering import constrained, pinned, unpinned
from xlayout_jax.gathering import gather as gather

Step = Callable[..., tuple[Any, ...]]


def is_sharded(x: Any, /) -> bool:
    return isinstance(x, jax.Array)


def sharding_of(x: Any, /) -> NamedSharding:
    """The sharding of an array, or of a tracer on a mesh of explicit axes."""
    while isinstance(x, jax.core.Tracer) and hasattr(x, "primal"):
        x = x.primal  # differentiating knows its values; only jit does not
    sharding = jax.typeof(x).sharding if isinstance(x, jax.core.Tracer) else x.sharding
    if not isinstance(sharding, NamedSharding):
        raise TypeError(f"x: sharded by {sharding}; wanted a NamedSharding, which names its axes")
    if isinstance(x, jax.core.Tracer):
        types = sharding.mesh.axis_types
        if not types or any(t != AxisType.Explicit for t in types):
            raise TypeError(
                f"x: {x.aval} is traced on {sharding.mesh}, where a tracer does not know its "
                "sharding; give the mesh explicit axes, or call it outside jit"
            )
    return sharding


def spmd(
    packs: Sequence[Step] | None,
    rounds: Sequence[tuple[int, Sequence[tuple[int, int]]]],
    unpacks: Sequence[Step],
    sources: Sequence[NamedSharding],
    targets: Sequence[NamedSharding],
    /,
) -> Step:
    """One program for all devices: pack, a permutation for each round, unpack.

    `packs` and `unpacks` hold one function a rank; the same object is compiled once.
    """
    mesh = sources[0].mesh
    names = mesh.axis_names

    def run(*locals_: Any) -> tuple[Any, ...]:
        rank = lax.axis_index(names)
        if packs is None:
            return _choose(rank, unpacks, locals_)
        (buffer,) = _choose(rank, packs, locals_)
        bits, dtype = pinned(buffer), buffer.dtype
        parts, at = [], 0
        for width, pairs in rounds:
            part = lax.slice_in_dim(bits, at, at + width)
            parts.append(lax.ppermute(part, names, list(pairs)))  # type: ignore[no-untyped-call]
            at += width
        received = unpinned(lax.concatenate(parts, 0), dtype)
        return _choose(rank, unpacks, (received, *locals_))

    return jax.jit(
        jax.shard_map(
            run,
            mesh=mesh,
            in_specs=tuple(s.spec for s in sources),
            out_specs=tuple(t.spec for t in targets),
            check_vma=False,
        )
    )


def _choose(rank: Any, steps: Sequence[Step], arrays: Sequence[Any]) -> tuple[Any, ...]:
    """The step of this rank; what all ranks share needs no switch."""
    unique = list(dict.fromkeys(steps))
    if len(unique) == 1:
        return unique[0](*arrays)
    which = jnp.asarray([unique.index(step) for step in steps])[rank]
    made: tuple[Any, ...] = lax.switch(which, unique, *arrays)
    return made


def linear(forward: Step, backward: Step, arrays: Sequence[Any], /) -> tuple[Any, ...]:
    """`forward(*arrays)`, with `backward` as its transpose; `backward` has `forward` as its own."""

    def transposed(_: Any, cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        return linear(backward, forward, cotangents)

    made: tuple[Any, ...] = jax.custom_derivatives.linear_call(
        lambda _, xs: forward(*xs), transposed, (), tuple(arrays)
    )
    return made


def lay(x: Any, sharding: NamedSharding, /) -> Any:
    """`x` under another sharding, by the collectives that XLA chooses."""
    return jax.jit(lambda x: constrained(x, sharding))(x)


def dtype_named(name: Any, /) -> Any:
    """A dtype, or the one of that name."""
    return jnp.dtype(name)


def cast(x: Any, dtype: Any, /) -> Any:
    return x.astype(dtype)
