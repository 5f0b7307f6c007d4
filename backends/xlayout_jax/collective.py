"""Collective: what JAX does of an exchange between devices, and how gradients go back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xlayout_jax.gathering import automatic as automatic
from xlayout_jax.gathering import constrained as constrained
from xlayout_jax.gathering import gather as gather
from xlayout_jax.gathering import pinned, unpinned
from xlayout_jax.tracers import is_batched, is_explicit, is_tracer, primal

Step = Callable[..., tuple[Any, ...]]
Exchange = tuple[Any, ...]
"""("all_gather" or "all_to_all", mesh axes), or ((width, (sender, receiver) pairs), ...)."""


def is_sharded(x: Any, /) -> bool:
    return isinstance(x, jax.Array)


def view(x: Any, /) -> tuple[str, Any]:
    """How an array is known to its program, and its mesh.

    "known": an array, or a tracer on explicit axes. "automatic": a tracer whose sharding is up to
    the compiler. "part": one device's part, inside shard_map. "batched": one of many, inside vmap.
    """
    x = primal(x)
    mesh = jax.typeof(x).sharding.mesh
    if not is_tracer(x):
        return "known", mesh
    if mesh.manual_axes:
        return "part", mesh
    if is_batched(x):
        return "batched", mesh
    return "known" if is_explicit(mesh) else "automatic", mesh


def sharding_of(x: Any, /) -> NamedSharding:
    """The sharding of an array that is known."""
    x = primal(x)
    sharding = jax.typeof(x).sharding if is_tracer(x) else x.sharding
    if not isinstance(sharding, NamedSharding):
        raise TypeError(f"x: sharded by {sharding}; wanted a NamedSharding, which names its axes")
    return sharding


def beside(x: Any, many: Any, /) -> Any | None:
    """`x` on every device of another array's mesh; None where JAX would not put it there either."""
    held = primal(x)
    if isinstance(held, jax.Array) and held.committed:
        return None
    whole: Any = PartitionSpec
    return jax.device_put(x, NamedSharding(sharding_of(many).mesh, whole()))


def manual(mesh: Any, /) -> dict[str, int]:
    """The axes over which a shard_map maps, and their sizes."""
    return {name: mesh.shape[name] for name in mesh.manual_axes}


def same_ranks(mesh: Any, other: Any, /) -> bool:
    """Whether positions on two meshes are the same devices, as far as tracers can tell."""
    if mesh is other:
        return True
    if tuple(mesh.shape.items()) != tuple(other.shape.items()):
        return False
    known = isinstance(mesh, Mesh) and isinstance(other, Mesh)
    return not known or mesh.devices.tolist() == other.devices.tolist()


def mesh_said(mesh: Any, /) -> str:
    """A mesh in words: its axes, and its devices in order."""
    axes = " ".join(f"{name}={n}" for name, n in mesh.shape.items())
    if not isinstance(mesh, Mesh):
        return f"({axes})"
    ids = [str(device.id) for device in mesh.devices.flat]
    return f"({axes}) of devices {' '.join(ids[:16])}{' ...' if len(ids) > 16 else ''}"


def named(mesh: Any, given: Any, /) -> Any:
    """A NamedSharding, also of a bare PartitionSpec, which is meant on that mesh."""
    if not isinstance(given, PartitionSpec):
        return given
    if not mesh.axis_names:
        raise TypeError(
            f"sharding: {given} on no mesh; give a NamedSharding, or call it inside jax.set_mesh"
        )
    return NamedSharding(mesh, given)


def spmd(
    packs: Sequence[Step] | None,
    exchange: Exchange,
    unpacks: Sequence[Step],
    names: Sequence[str],
    sources: Sequence[NamedSharding],
    targets: Sequence[NamedSharding],
    /,
) -> Step:
    """One program for all devices: pack, exchange, unpack.

    `packs` and `unpacks` hold one function a rank; the same object is compiled once. Ranks count
    along the mesh axes `names`; those that differ along others do the same.
    """
    return jax.jit(
        jax.shard_map(
            on_parts(packs, exchange, unpacks, names),
            mesh=sources[0].mesh,
            in_specs=tuple(s.spec for s in sources),
            out_specs=tuple(t.spec for t in targets),
            check_vma=False,
        )
    )


def on_parts(
    packs: Sequence[Step] | None,
    exchange: Exchange,
    unpacks: Sequence[Step],
    names: Sequence[str],
    /,
) -> Step:
    """The same for one device, inside a shard_map over these axes."""
    names = tuple(names)

    def run(*parts: Any) -> tuple[Any, ...]:
        if packs is None:
            return _choose(names, unpacks, parts)
        (buffer,) = _choose(names, packs, parts)
        received = unpinned(_exchanged(pinned(buffer), exchange, names), buffer.dtype)
        return _choose(names, unpacks, (received, *parts))

    return run


def _exchanged(buffer: Any, exchange: Exchange, names: tuple[str, ...]) -> Any:
    if isinstance(exchange[0], str):
        kind, along = exchange
        if kind == "all_gather":
            return lax.all_gather(buffer, along, tiled=True)
        return lax.all_to_all(buffer, along, 0, 0, tiled=True)  # type: ignore[no-untyped-call]
    received, at = [], 0
    for width, pairs in exchange:
        stretch = lax.slice_in_dim(buffer, at, at + width)
        received.append(lax.ppermute(stretch, names, list(pairs)))  # type: ignore[no-untyped-call]
        at += width
    return lax.concatenate(received, 0)


def _choose(
    names: tuple[str, ...], steps: Sequence[Step], arrays: Sequence[Any]
) -> tuple[Any, ...]:
    """The step of this rank; what all ranks share needs no switch."""
    unique = list(dict.fromkeys(steps))
    if len(unique) == 1:
        return unique[0](*arrays)
    which = jnp.asarray([unique.index(step) for step in steps])[lax.axis_index(names)]
    varying = frozenset().union(*(_varying(x) for x in (which, *arrays)))

    def alike(step: Step) -> Step:
        """A step whose results are typed as those of any other, made of nothing that varies too."""
        return lambda *xs: tuple(_vary(y, varying) for y in step(*xs))

    # Typed before the switch, for the gradient of that is a sum over ranks, and within a step a sum
    # would be over what ranks do in different ones.
    given = [_vary(x, varying) for x in arrays]
    made: tuple[Any, ...] = lax.switch(which, [alike(step) for step in unique], *given)
    return made


def _varying(x: Any) -> frozenset[str]:
    """The mesh axes along which devices are known to hold different values, inside shard_map."""
    return frozenset(jax.typeof(x).mat.varying)


def _vary(x: Any, names: frozenset[str]) -> Any:
    missing = tuple(sorted(names - _varying(x)))
    return lax.pcast(x, missing, to="varying") if missing else x


def linear(
    forward: Step, backward: Step, arrays: Sequence[Any], /, primal: Step | None = None
) -> tuple[Any, ...]:
    """`forward(*arrays)`, with `backward` as its transpose; `backward` has `forward` as its own.

    primal: what makes the results, where they are those of `forward` and a constant.
    """
    if not any(is_tracer(x) for x in arrays):
        # Nobody will ask for a gradient, and a call that has one is slow.
        return (primal or forward)(*arrays)
    if len(arrays) == 1 and primal is None:
        return _linear_in(range(1), forward, backward, arrays)
    run = jax.custom_jvp(lambda *xs: (primal or forward)(*xs))

    def tangents_of(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        # JAX's linear_call knows no operand that does not change: so it is given those that do.
        still = [isinstance(t, SymbolicZero) for t in tangents]
        given = [
            jnp.zeros_like(x) if zero else t
            for x, t, zero in zip(primals, tangents, still, strict=True)
        ]
        moving = [k for k, zero in enumerate(still) if not zero]
        return run(*primals), _linear_in(moving, forward, backward, given)

    run.defjvp(tangents_of, symbolic_zeros=True)
    made: tuple[Any, ...] = run(*arrays)
    return made


def _linear_in(
    moving: Sequence[int], forward: Step, backward: Step, arrays: Sequence[Any]
) -> tuple[Any, ...]:
    """The same for gradients with respect to these operands alone."""

    def whole(still: Sequence[Any], changing: Sequence[Any]) -> tuple[Any, ...]:
        both = iter(still), iter(changing)
        return forward(*[next(both[k in moving]) for k in range(len(arrays))])

    def transposed(_still: Any, cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        back = linear(backward, forward, cotangents)
        return tuple([back[k] for k in moving])

    still = tuple([x for k, x in enumerate(arrays) if k not in moving])
    changing = tuple([arrays[k] for k in moving])
    made: tuple[Any, ...] = jax.custom_derivatives.linear_call(whole, transposed, still, changing)
    return made


def moved(source: NamedSharding, target: NamedSharding, /) -> Step:
    """One array from one sharding to another, by what XLA makes of it; narrow floats pinned."""

    def run(x: Any) -> tuple[Any]:
        bits = constrained(constrained(pinned(x), source), target)
        return (unpinned(bits, x.dtype),)

    return jax.jit(run)


def lay(x: Any, sharding: NamedSharding, /) -> Any:
    """`x` under another sharding, by the collectives that XLA chooses."""
    return jax.jit(lambda x: constrained(x, sharding))(x)


def dtype_named(name: Any, /) -> Any:
    """A dtype, or the one of that name."""
    try:
        return jnp.dtype(name)
    except TypeError:
        raise TypeError(f"dtype: {name!r}; wanted a dtype of JAX or its name") from None


def dtype_of_sum(asked: Any, dtype: Any, /) -> Any:
    """In which dtype gradients are added up: the one asked for, but nothing complex as if real."""
    kept = any(jnp.issubdtype(dtype, kind) for kind in (jnp.complexfloating, jnp.float64))
    return jnp.promote_types(asked, dtype) if kept else asked


def cast(x: Any, dtype: Any, /) -> Any:
    return x.astype(dtype)
