"""Collective: an exchange between devices as a program of JAX, and how it is differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from xlayout_jax.dtypes import asked, pinned, unpinned
from xlayout_jax.dtypes import cast as _cast
from xlayout_jax.dtypes import dtype_named as dtype_named
from xlayout_jax.dtypes import dtype_of_sum as dtype_of_sum
from xlayout_jax.dtypes import is_mistaken as is_mistaken
from xlayout_jax.gathering import automatic as automatic
from xlayout_jax.gathering import compiled
from xlayout_jax.gathering import constrained as constrained
from xlayout_jax.gathering import gather as gather
from xlayout_jax.gathering import with_cotangent as with_cotangent
from xlayout_jax.mixed import Shardings, by_twin
from xlayout_jax.mixed import swapped as swapped
from xlayout_jax.refusals import refuse_deleted
from xlayout_jax.tracers import is_batched, is_explicit, is_tracer, primal
from xlayout_jax.transposes import Step
from xlayout_jax.transposes import linear as linear
from xlayout_jax.transposes import transposed as transposed

Exchange = tuple[Any, ...]
"""("all_gather" or "all_to_all", mesh axes), or ((width, (sender, receiver) pairs), ...)."""


def is_sharded(x: Any, /) -> bool:
    return isinstance(x, jax.Array)


def on_one_device(x: Any, /) -> bool:
    return isinstance(getattr(primal(x), "sharding", None), SingleDeviceSharding)


def view(x: Any, /) -> tuple[str, Any]:
    """How an array is known to its program, and its mesh.

    "known": an array, or a tracer on explicit axes. "automatic": a tracer whose sharding is up to
    the compiler. "part": one device's part, inside shard_map. "batched": one of many, inside vmap.

    Raises:
        ValueError: for an array in host memory, or one that was deleted.
    """
    x = primal(x)
    refuse_deleted(x)
    aval = jax.typeof(x)
    if aval.memory_space is not jax.memory.Space.Device:
        raise ValueError(f"x: {aval} is in host memory; wanted device memory: jax.device_put it")
    mesh = aval.sharding.mesh
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


def replicated_beside(x: Any, many: Any, /) -> Any | None:
    """`x` on every device of another array's mesh; None where JAX would not put it there either.

    On a mesh of one device `x` may be whole beside an array that is cut; it then stays as it is.
    """
    held = primal(x)
    if is_tracer(held) or isinstance(getattr(held, "sharding", None), NamedSharding):
        return x
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


def describe_mesh(mesh: Any, /) -> str:
    """A mesh, for error messages: its axes, and its devices in order."""
    axes = " ".join(f"{name}={n}" for name, n in mesh.shape.items())
    if not isinstance(mesh, Mesh):
        return f"({axes})"
    ids = [str(device.id) for device in mesh.devices.flat]
    return f"({axes}) of devices {' '.join(ids[:16])}{' ...' if len(ids) > 16 else ''}"


def named(mesh: Any, given: Any, name: str, /) -> NamedSharding:
    """A NamedSharding, also of a bare PartitionSpec, which is meant on that mesh."""
    if isinstance(given, NamedSharding):
        return given
    if not isinstance(given, PartitionSpec):
        raise TypeError(f"{name}: {given!r}; wanted a Sharding, a NamedSharding or a PartitionSpec")
    if not mesh.axis_names:
        raise TypeError(
            f"{name}: {given} on no mesh; give a NamedSharding, or call it inside jax.set_mesh"
        )
    try:
        return NamedSharding(mesh, given)
    except ValueError as error:
        axes = ", ".join(mesh.axis_names)
        raise ValueError(f"{name}: {given}; the mesh has the axes {axes} ({error})") from error


def spmd(
    packs: Sequence[Step] | None,
    exchange: Exchange,
    unpacks: Sequence[Step],
    names: tuple[str, ...],
    sources: Sequence[NamedSharding],
    targets: Sequence[NamedSharding],
    /,
) -> Step:
    """One program for all devices: pack, exchange, unpack.

    `packs` and `unpacks` hold one function a rank; the same object is compiled once. Ranks count
    along the mesh axes `names`; those that differ along others do the same.
    """
    parts = on_parts(packs, exchange, unpacks, names)
    return by_twin(lambda src, dst: _mapped(parts, src, dst), sources, targets)


def _mapped(parts: Step, sources: Shardings, targets: Shardings) -> Step:
    mesh = sources[0].mesh
    mapped = jax.shard_map(
        parts,
        mesh=mesh,
        in_specs=tuple(s.spec for s in sources),
        out_specs=tuple(t.spec for t in targets),
        check_vma=False,
    )

    def placed(*xs: Any) -> tuple[Any, ...]:
        # A tangent may lie otherwise than its array; those of a Jacobian are whole.
        made: tuple[Any, ...] = mapped(*map(constrained, xs, sources))
        return made

    return _looked_into(compiled(placed if is_explicit(mesh) else mapped, targets))


def _looked_into(run: Step) -> Step:
    """`run`, with JAX's search for NaNs in its results only: in a shard_map it would never end."""

    def call(*xs: Any) -> tuple[Any, ...]:
        if not (jax.config.jax_debug_nans or jax.config.jax_debug_infs):  # type: ignore[attr-defined]
            return run(*xs)
        with jax.debug_nans(False), jax.debug_infs(False):
            made = run(*xs)
        return tuple(map(jnp.copy, made))

    return call


def on_parts(
    packs: Sequence[Step] | None,
    exchange: Exchange,
    unpacks: Sequence[Step],
    names: tuple[str, ...],
    /,
) -> Step:
    """The same for one device, inside a shard_map over these axes."""

    def run(*parts: Any) -> tuple[Any, ...]:
        if packs is None:
            return _choose(names, unpacks, parts)
        (buffer,) = _choose(names, packs, parts)
        received = _sent(buffer, exchange, names)
        return _choose(names, unpacks, (received, *parts))

    return run


def _sent(buffer: Any, exchange: Exchange, names: tuple[str, ...]) -> Any:
    """What a rank receives; narrow floats travel as integers, which have no derivative."""

    def there(x: Any) -> tuple[Any]:
        return (unpinned(_exchanged(pinned(x), exchange, names), x),)

    def back(g: Any) -> tuple[Any]:
        if exchange[0] == "all_gather":  # what went to many is summed
            return (lax.psum_scatter(g, exchange[1], tiled=True),)  # type: ignore[no-untyped-call]
        return (_sent(g, _reversed(exchange), names),)

    return linear(there, back, (buffer,))[0]


def _reversed(exchange: Exchange) -> Exchange:
    """The way back of permutations; an all-to-all is its own."""
    if isinstance(exchange[0], str):
        return exchange
    return tuple((width, tuple((to, of) for of, to in pairs)) for width, pairs in exchange)


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
        """A step whose results have the types of all others, even if they depend on no input."""
        return lambda *xs: tuple(_vary(y, varying) for y in step(*xs))

    # Typed before the switch: the transpose of this is a sum over ranks, which must not be inside
    # a step that only some of them take.
    given = [_vary(x, varying) for x in arrays]
    made: tuple[Any, ...] = lax.switch(which, [alike(step) for step in unique], *given)
    return made


def _varying(x: Any) -> frozenset[str]:
    """The mesh axes along which devices are known to hold different values, inside shard_map."""
    return frozenset(jax.typeof(x).mat.varying)


def _vary(x: Any, names: frozenset[str]) -> Any:
    missing = tuple(sorted(names - _varying(x)))
    return lax.pcast(x, missing, to="varying") if missing else x


def moved(source: NamedSharding, target: NamedSharding, /) -> Step:
    """One array from one sharding to another, by what XLA makes of it; narrow floats pinned."""

    def make(sources: Shardings, targets: Shardings) -> Step:
        def run(x: Any) -> tuple[Any]:
            bits = constrained(constrained(pinned(x), *sources), *targets)
            return (unpinned(bits, x),)

        return compiled(run, targets)

    return by_twin(make, (source,), (target,))


def redistributed(x: Any, sharding: NamedSharding, /) -> Any:
    """`x` under another sharding, by the collectives that XLA chooses."""
    return _redistribution(sharding)(x)


@lru_cache(1024)
def _redistribution(sharding: NamedSharding) -> Callable[[Any], Any]:
    there = compiled(lambda x: (constrained(x, sharding),), (sharding,))
    back = jax.jit(lambda g: (g,))  # JAX's own takes no cotangent that lies otherwise
    return lambda x: linear(there, back, (x,))[0]


def cast(x: Any, dtype: Any, /) -> Any:
    """`x` in a dtype; TypeError if JAX would narrow that."""
    wanted = asked(dtype, x.dtype)
    lies = (sharding_of(x),)
    (made,) = by_twin(lambda _, __: lambda y: (_cast(y, wanted),), lies, lies)(x)
    return made
