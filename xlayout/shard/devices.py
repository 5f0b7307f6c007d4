"""Devices: a plan run on JAX's devices, as one program for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import zip_longest
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.piece import Parts
from xlayout.errors import InverseError, ShardingError
from xlayout.registry import backend_module
from xlayout.shard.mesh import Mesh
from xlayout.shard.part import results_of
from xlayout.shard.plan import Plan, plan_reshard
from xlayout.shard.sharded_array import ShardedArray
from xlayout.shard.sharding import Sharding
from xlayout.shard.spmd import program

__all__ = ["least_by_xla", "on_devices"]

Step = Callable[..., tuple[Any, ...]]


def on_devices(
    arrays: tuple[ShardedArray, ...], layout: Layout, dst: tuple[Sharding, ...], fill: Any
) -> tuple[Any, ...]:
    """A layout on JAX arrays; inside `shard_map`, on the parts of one device."""
    jax = backend_module("jax", "collective")
    src = tuple(a.sharding for a in arrays)
    xs = tuple(a.x for a in arrays)
    made: tuple[Any, ...]
    parts = layout._parts
    if arrays[0].is_part:
        made = _on_parts(parts, src, dst, fill, repr(fill))(*xs)
        return made
    sources = tuple(a.native(a.sharding) for a in arrays)
    targets = tuple(arrays[0].native(sharding) for sharding in dst)

    def forward(*xs: Any, fill: Any = 0) -> tuple[Any, ...]:
        run = _on_arrays(parts, src, dst, sources, targets, fill, repr(fill))
        return run(*xs)  # type: ignore[no-any-return]

    def backward(*gradients: Any) -> tuple[Any, ...]:
        try:
            back = layout.inverse()
        except InverseError:  # an element that went to several places gets a sum
            return _sums(parts, sources)(*gradients)  # type: ignore[no-any-return]
        run = _on_arrays(back._parts, dst, src, targets, sources, 0, "0")
        return run(*gradients)  # type: ignore[no-any-return]

    filled = partial(forward, fill=fill) if layout.has_holes else None
    made = jax.linear(forward, backward, xs, filled)
    return made


@lru_cache(1024)
def _on_arrays(
    parts: Parts,
    src: tuple[Sharding, ...],
    dst: tuple[Sharding, ...],
    sources: tuple[Any, ...],
    targets: tuple[Any, ...],
    fill: Any,
    _fill_repr: str,
) -> Any:
    """The program on whole arrays; `_fill_repr` keeps equal fills apart: 0, -0.0 and False."""
    jax = backend_module("jax", "collective")
    plan = _plan(parts, src, dst)
    stays = plan.layout.is_identity and parts[0] == parts[1] and len(src) == 1
    if stays and least_by_xla(src[0], dst[0]):
        return jax.moved(*sources, *targets)
    return jax.spmd(*_steps(plan, fill), sources, targets)


@lru_cache(1024)
def _sums(parts: Parts, sources: tuple[Any, ...]) -> Any:
    """The transpose of a layout that repeats elements: XLA works out the sums."""
    jax = backend_module("jax", "collective")
    back = jax.transposed(_step(Layout._of(parts), 0), parts[0])
    return jax.automatic(back, sources)


@lru_cache(1024)
def _on_parts(
    parts: Parts, src: tuple[Sharding, ...], dst: tuple[Sharding, ...], fill: Any, _fill_repr: str
) -> Any:
    """The program of one device."""
    return backend_module("jax", "collective").on_parts(*_steps(_plan(parts, src, dst), fill))


def _plan(parts: Parts, src: tuple[Sharding, ...], dst: tuple[Sharding, ...]) -> Plan:
    """The plan on the mesh axes that cut something; along the others all ranks do the same."""
    mesh = src[0].mesh
    used = {name for s in (*src, *dst) for name in s.used} or set(mesh.names[:1])
    kept = [(name, n) for name, n in zip(mesh.names, mesh.shape, strict=True) if name in used]
    on = Mesh([n for _, n in kept], [name for name, _ in kept])
    sides = (tuple(replace(sharding, mesh=on) for sharding in side) for side in (src, dst))
    plan = plan_reshard(Layout._of(parts), *sides)
    for side, shapes, held in ((src, parts[0], plan.stores), (dst, parts[1], plan.makes)):
        by_array = zip(*map(held, range(plan.ranks)), strict=True)
        unequal = next((found for found in by_array if len({*found}) > 1), None)
        if unequal is not None:
            several = [*map(str, unequal[:4]), *["..."] * (plan.ranks > 4)]
            raise ShardingError(
                f"cannot shard {shapes} by {', '.join(map(str, side))} in JAX, which holds equal "
                f"parts only; these are {', '.join(several)}; pad the array until it divides "
                "(xlayout.pad)"
            )
    return plan


def least_by_xla(src: Sharding, dst: Sharding) -> bool:
    """Whether XLA moves no more than the lower bound when only the sharding changes.

    It does so when it gathers the minor part of a cut, or moves that from one array axis to the
    minor end of another: each is one collective. A test compares its bytes with the plan's.
    """
    gone, come = [], []
    for axis, (before, after) in enumerate(zip_longest(src.spec, dst.spec, fillvalue=())):
        same = 0
        while same < min(len(before), len(after)) and before[same] == after[same]:
            same += 1
        gone += [(axis, before[same:])] if before[same:] else []
        come += [(axis, after[same:])] if after[same:] else []
    if not gone or not come:
        return True
    ((out, moving), *more), ((into, ends), *others) = gone, come
    return not more and not others and out != into and ends[-len(moving) :] == moving


def _steps(plan: Plan, fill: Any) -> tuple[Any, ...]:
    """What each rank packs, how it is exchanged, what each unpacks, and along which mesh axes."""
    run = program(plan)
    steps: dict[Layout, Step] = {}

    def each(layouts: Sequence[Layout], value: Any) -> list[Step]:
        return [steps.setdefault(one, _step(one, value)) for one in layouts]

    return (
        None if run.pack is None else each(run.pack, 0),
        run.collective or run.rounds,
        each(run.unpack, fill),
        plan.src[0].mesh.names,
    )


def _step(layout: Layout, fill: Any) -> Step:
    return lambda *arrays: results_of(layout, arrays, fill)
