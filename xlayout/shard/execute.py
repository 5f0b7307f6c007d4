"""Execute: a plan run on arrays that live on many devices; layout and sharding change in one go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xlayout.algebra import Layout
from xlayout.registry import verbs
from xlayout.shard.arrays import Laid, laid, native, target_of
from xlayout.shard.devices import on_devices
from xlayout.shard.plan import Plan, plan_reshard
from xlayout.shard.sharding import Sharding

__all__ = ["all_gather", "reshard", "run_part"]


def reshard(
    x: Any,
    to: Any,
    /,
    *,
    layout: Layout | None = None,
    dtype: Any = None,
    in_sharding: Any = None,
) -> Any:
    """Change sharding and layout in one exchange that moves no byte it need not move.

    Gradients flow: the transpose is the exchange back, along the inverse layout.

    Args:
        x: a DTensor, or a jax.Array under a NamedSharding (inside jit: on explicit axes); a tuple
            of them when the layout has several inputs.
        to: how the result is to lie: a `Sharding` on the mesh of `x`, a NamedSharding on it, or
            placements; a list of them when the layout has several outputs.
        layout: what goes where, on whole arrays; by default everything stays in its place.
        dtype: cast to this before anything travels.
        in_sharding: JAX only: how a tracer lies that does not know it, on automatic axes and
            inside `shard_map`, where `x` and the result are parts of one device and gradients
            add up over copies; a list for several inputs.

    Returns:
        A DTensor or jax.Array on the mesh of `x`, or a tuple of them.

    Raises:
        TypeError: for an array that is not sharded, or does not know its sharding.
        SizeError: for a mesh of another size.
        ShardingError: for a sharding that the framework cannot say, with the nearest that it can.

    >>> import jax, xlayout as xl
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = jax.make_mesh((len(jax.devices()),), ("tp",), (jax.sharding.AxisType.Auto,))
    >>> x = jax.device_put(jax.numpy.arange(64.0), NamedSharding(mesh, P("tp")))
    >>> y = reshard(x, NamedSharding(mesh, P("tp")), layout=xl.interleave.layout((64,)))
    >>> [float(v) for v in y[:4]]
    [0.0, 32.0, 1.0, 33.0]
    """
    arrays = laid(tuple(x) if isinstance(x, (tuple, list)) else (x,), in_sharding)
    if layout is None:
        layout = Layout.identity(arrays[0].shape)
    if dtype is not None:
        arrays = tuple(a.cast(dtype) for a in arrays)
    several = isinstance(to, list)
    targets = tuple(to) if several else (to,) * len(layout.out_shapes)
    made = exchanged(layout, arrays, targets)
    return made if len(made) > 1 or several else made[0]


def all_gather(
    x: Any,
    /,
    *,
    mesh_axis: str | None = None,
    dtype: Any = None,
    reduce_dtype: Any = "float32",
    in_sharding: Any = None,
) -> Any:
    """Take a mesh axis out of the sharding of `x`: cast first, then gather what is narrow.

    Equal, bit for bit, to gathering and then casting; nothing gathered is saved for the gradient,
    which comes back in shards and in the dtype of `x`. A DTensor's is summed on the way, in
    `reduce_dtype`. A jax.Array's is a whole, summed by whoever made it: it is cast to
    `reduce_dtype` before it is cut, and XLA chooses in which dtype it adds what is partial;
    `xlayout.jax.all_gather` is the form that sums it itself.

    Args:
        x: a DTensor, or a jax.Array under a NamedSharding.
        mesh_axis: the mesh axis along which the result is whole; None: all of them.
        dtype: what travels, and the dtype of the result; by default that of `x`.
        reduce_dtype: in which gradients come back.
        in_sharding: JAX only: how a tracer on automatic axes lies, which does not know it.

    Raises:
        TypeError: for an array that is not sharded, or does not know its sharding.
        AxisError: for a mesh axis that is not there.

    >>> import jax
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = jax.make_mesh((len(jax.devices()),), ("fsdp",), (jax.sharding.AxisType.Auto,))
    >>> w = jax.device_put(jax.numpy.ones((64, 4)), NamedSharding(mesh, P("fsdp")))
    >>> full = all_gather(w, mesh_axis="fsdp", dtype="bfloat16")
    >>> full.dtype, full.sharding.is_fully_replicated
    (dtype(bfloat16), True)
    """
    (held,) = laid((x,), in_sharding)
    if held.is_part:
        raise TypeError(f"x: {x.aval} is one device's part; inside shard_map take xlayout.jax")
    framework = verbs(held.framework, "collective")
    source = held.sharding
    gone = source.mesh.names if mesh_axis is None else (mesh_axis,)
    dtype = x.dtype if dtype is None else framework.dtype_named(dtype)
    ends = native(held, source), native(held, source.without(*gone))
    return framework.gather(held.x, *ends, dtype, framework.dtype_named(reduce_dtype))


def exchanged(
    layout: Layout, arrays: tuple[Laid, ...], targets: tuple[Any, ...], fill: Any = 0
) -> tuple[Any, ...]:
    """A layout on sharded arrays, each result as its target says; `fill` for holes."""
    dst = _targets(arrays, layout, targets)
    run = _torch if arrays[0].framework == "torch" else on_devices
    return run(arrays, layout, dst, fill)


def run_part(
    plan: Plan, stores: Sequence[Any], rank: int, mesh: Any = None, fill: Any = 0
) -> tuple[Any, ...]:
    """One rank's part of a plan on what it stores, over torch.distributed."""
    part = plan.part(rank)
    buffer = part.pack(*stores)
    if not plan.is_local:
        exchange = verbs("torch", "collective").exchange
        buffer = exchange(buffer, part.sends, part.receives, mesh)
    made = part.unpack(buffer, *stores, fill=fill)
    return made if isinstance(made, tuple) else (made,)


def _torch(
    arrays: tuple[Laid, ...], layout: Layout, dst: tuple[Sharding, ...], fill: Any
) -> tuple[Any, ...]:
    torch = verbs("torch", "collective")
    mesh = arrays[0].mesh
    src = tuple(a.sharding for a in arrays)
    placements = [native(arrays[0], sharding) for sharding in dst]
    plan = plan_reshard(layout, src, dst, itemsize=arrays[0].x.dtype.itemsize)
    rank = torch.rank_of(mesh)

    def forward(*stores: Any) -> tuple[Any, ...]:
        return run_part(plan, stores, rank, mesh, fill)

    def backward(*gradients: Any) -> tuple[Any, ...]:
        back = plan_reshard(layout.inverse(), dst, src, itemsize=plan.itemsize)
        return run_part(back, gradients, rank, mesh)

    made = torch.linear(forward, backward, [torch.local(a.x) for a in arrays])
    return tuple(
        torch.whole(local, mesh, where, shape)
        for local, where, shape in zip(made, placements, layout.out_shapes, strict=True)
    )


def _targets(
    arrays: tuple[Laid, ...], layout: Layout, targets: tuple[Any, ...]
) -> tuple[Sharding, ...]:
    shapes = layout.out_shapes
    return tuple(target_of(arrays[0], t, len(s)) for t, s in zip(targets, shapes, strict=True))
