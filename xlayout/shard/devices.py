"""Devices: a plan run on JAX's devices, as one program for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from xlayout.algebra import Layout
from xlayout.errors import ShardingError
from xlayout.registry import verbs
from xlayout.shard.arrays import Laid, native
from xlayout.shard.plan import Plan, plan_reshard
from xlayout.shard.sharding import Sharding
from xlayout.shard.spmd import program

__all__ = ["on_devices"]

Step = Callable[..., tuple[Any, ...]]


def on_devices(
    arrays: tuple[Laid, ...], layout: Layout, dst: tuple[Sharding, ...], fill: Any
) -> tuple[Any, ...]:
    """A layout on JAX arrays; on one device's parts where they are inside `shard_map`."""
    own = verbs("jax", "collective")
    src = tuple(a.sharding for a in arrays)
    itemsize = arrays[0].x.dtype.itemsize
    plan = plan_reshard(layout, src, dst, itemsize=itemsize)
    xs = tuple(a.x for a in arrays)
    made: tuple[Any, ...]
    if arrays[0].is_part:
        made = _on_parts(plan, fill, repr(fill))(*xs)
        return made
    sources = tuple(native(a, a.sharding) for a in arrays)
    targets = tuple(native(arrays[0], sharding) for sharding in dst)

    def forward(*xs: Any) -> tuple[Any, ...]:
        return _on_arrays(plan, sources, targets, fill, repr(fill))(*xs)  # type: ignore[no-any-return]

    def backward(*gradients: Any) -> tuple[Any, ...]:
        back = plan_reshard(layout.inverse(), dst, src, itemsize=itemsize)
        return _on_arrays(back, targets, sources, 0, "0")(*gradients)  # type: ignore[no-any-return]

    made = own.linear(forward, backward, xs)
    return made


@lru_cache(1024)
def _on_arrays(
    plan: Plan, sources: tuple[Any, ...], targets: tuple[Any, ...], fill: Any, _said: str
) -> Any:
    """The program on whole arrays; `_said` tells 0 from -0.0 and False, which are equal."""
    return verbs("jax", "collective").spmd(*_steps(plan, fill), sources, targets)


@lru_cache(1024)
def _on_parts(plan: Plan, fill: Any, _said: str) -> Any:
    """The program of one device."""
    return verbs("jax", "collective").on_parts(*_steps(plan, fill), plan.src[0].mesh.names)


def _steps(plan: Plan, fill: Any) -> tuple[Any, ...]:
    """What each rank packs, the rounds, and what each rank unpacks."""
    layout = plan.layout
    for side, shapes, held in (
        (plan.src, layout.in_shapes, plan.stores), (plan.dst, layout.out_shapes, plan.makes)
    ):  # fmt: skip
        if len({held(rank) for rank in range(plan.ranks)}) > 1:
            parts = ", ".join(str(held(rank)[0]) for rank in range(min(plan.ranks, 4)))
            raise ShardingError(
                f"cannot shard {shapes} by {', '.join(map(str, side))} in JAX, which holds equal "
                f"parts only; these are {parts}, ...; pad the array until it divides (xlayout.pad)"
            )
    run = program(plan)
    steps: dict[Layout, Step] = {}

    def each(layouts: Sequence[Layout], value: Any) -> list[Step]:
        return [steps.setdefault(one, _step(one, value)) for one in layouts]

    return (
        None if run.pack is None else each(run.pack, 0),
        run.rounds,
        each(run.unpack, fill),
    )


def _step(layout: Layout, fill: Any) -> Step:
    def run(*arrays: Any) -> tuple[Any, ...]:
        made = layout(*arrays, fill=fill)
        return made if isinstance(made, tuple) else (made,)

    return run
