"""Execute: plans run on arrays on many devices; layout and sharding change in one exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.layout import check_layout
from xlayout.lower.run import check_shapes
from xlayout.registry import backend_module
from xlayout.shard.arrays import sharded_arrays
from xlayout.shard.devices import on_devices
from xlayout.shard.gather import gathered
from xlayout.shard.mesh import check_axis
from xlayout.shard.ranks import on_ranks
from xlayout.shard.record import recorded
from xlayout.shard.sharded_array import ShardedArray
from xlayout.shard.sharding import Sharding
from xlayout.shard.targets import is_list_of_shardings, targets_of

__all__ = ["all_gather", "exchanged", "reshard"]


def reshard(
    x: Any,
    to: Any,
    *,
    layout: Layout | None = None,
    dtype: Any = None,
    in_sharding: Any = None,
) -> Any:
    """Change sharding and layout in one exchange that moves as few bytes as possible.

    It is differentiable: gradients take the reverse exchange, along the inverse layout.

    Args:
        x: a DTensor, or a jax.Array under a NamedSharding (inside jit: on explicit axes); a tuple
            of them when the layout has several inputs.
        to: sharding of the result: a `Sharding` on the mesh of `x`, a NamedSharding on it, or
            placements; a list or tuple of them when the layout has several outputs.
        layout: layout of the whole arrays; by default every element keeps its position.
        dtype: cast to this before anything is sent.
        in_sharding: JAX only: sharding of a tracer that carries none, on automatic axes and inside
            `shard_map`; there `x` and the result are the parts of one device, and gradients are
            summed over copies. A list or tuple for several inputs.

    Returns:
        A DTensor or jax.Array on the mesh of `x`, or a tuple of them.

    Raises:
        TypeError: for an array that is not sharded, or whose sharding is unknown; for an invalid
            layout or sharding; for a dtype of 64 bits while they are disabled in JAX.
        ValueError: for a jax.Array in host memory, or a result there.
        ShapeError: for arrays of other shapes than the layout takes.
        ShardingError: for a sharding on another mesh than that of `x`, if the numbers of shardings
            and results differ, and for one that the framework cannot express, with the nearest
            that it can.

    >>> import jax, xlayout as xl
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = jax.make_mesh((len(jax.devices()),), ("tp",), (jax.sharding.AxisType.Auto,))
    >>> x = jax.device_put(jax.numpy.arange(64.0), NamedSharding(mesh, P("tp")))
    >>> y = reshard(x, NamedSharding(mesh, P("tp")), layout=xl.interleave.layout((64,)))
    >>> [float(v) for v in y[:4]]
    [0.0, 32.0, 1.0, 33.0]
    """
    if layout is not None:
        check_layout(layout, "layout", "reshard(x, to, layout=layout)")
    given = tuple(x) if isinstance(x, (tuple, list)) else (x,)
    return recorded(_reshard, given, to, layout, dtype, in_sharding)


def _reshard(
    given: Sequence[Any], to: Any, layout: Layout | None, dtype: Any, in_sharding: Any
) -> Any:
    arrays = sharded_arrays(given, in_sharding)
    if layout is None:
        layout = Layout.identity(arrays[0].shape)
    check_shapes(layout, arrays)
    if dtype is not None:
        arrays = tuple(a.cast(dtype) for a in arrays)
    dst = targets_of(arrays[0], to, [len(shape) for shape in layout.out_shapes], "to")
    made = exchanged(layout, arrays, dst)
    return made if len(made) > 1 or is_list_of_shardings(arrays[0].framework, to) else made[0]


def all_gather(
    x: Any,
    /,
    *,
    mesh_axis: str | Sequence[str] | None = None,
    dtype: Any = None,
    reduce_dtype: Any = "float32",
    in_sharding: Any = None,
) -> Any:
    """Remove mesh axes from the sharding of `x`: cast first, then gather the narrower elements.

    The result is bit for bit that of gathering and then casting. Nothing gathered is saved for the
    backward pass; the gradient is sharded as `x` and has its dtype. A DTensor's gradient is
    reduce-scattered in `reduce_dtype`. A jax.Array's arrives complete: it is cast to `reduce_dtype`
    and then cut, and XLA chooses the dtype in which it sums partial gradients before that;
    `xlayout.jax.all_gather` sums them itself.

    Args:
        x: a DTensor, or a jax.Array under a NamedSharding.
        mesh_axis: the mesh axis to gather along, or several; None: all of them.
        dtype: dtype that is sent, and that of the result; by default that of `x`.
        reduce_dtype: dtype in which gradients are sent; float64 and complex ones stay as wide.
        in_sharding: JAX only: sharding of a tracer that carries none, on automatic axes.

    Raises:
        TypeError: for an array that is not sharded, or whose sharding is unknown; for a dtype of 64
            bits while they are disabled in JAX; for a `reduce_dtype` that holds no gradients.
        ValueError: for a jax.Array in host memory.
        AxisError: for a mesh axis that the mesh does not have.

    >>> import jax
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = jax.make_mesh((len(jax.devices()),), ("fsdp",), (jax.sharding.AxisType.Auto,))
    >>> w = jax.device_put(jax.numpy.ones((64, 4)), NamedSharding(mesh, P("fsdp")))
    >>> full = all_gather(w, mesh_axis="fsdp", dtype="bfloat16")
    >>> full.dtype, full.sharding.is_fully_replicated
    (dtype(bfloat16), True)
    """
    return recorded(_all_gather, (x,), mesh_axis, dtype, reduce_dtype, in_sharding)


def _all_gather(
    given: Sequence[Any],
    mesh_axis: str | Sequence[str] | None,
    dtype: Any,
    reduce_dtype: Any,
    in_sharding: Any,
) -> Any:
    (held,) = sharded_arrays(given, in_sharding)
    x = held.x
    if held.is_part:
        raise TypeError(f"x: {x.aval} is one device's part; inside shard_map take xlayout.jax")
    framework = backend_module(held.framework, "collective")
    source = held.sharding
    asked = source.mesh.names if mesh_axis is None else mesh_axis
    gone = tuple(asked) if isinstance(asked, (tuple, list)) else (asked,)
    for axis in gone:
        check_axis(source.mesh, axis, "mesh_axis")
    dtype = x.dtype if dtype is None else framework.dtype_named(dtype)
    reduce_dtype = framework.dtype_of_sum(
        framework.dtype_named(reduce_dtype, "reduce_dtype"), dtype
    )
    target = source.without(*gone)
    if held.framework == "torch":
        return gathered(held, gone, dtype, reduce_dtype)
    return framework.gather(x, held.native(source), held.native(target), dtype, reduce_dtype)


def exchanged(
    layout: Layout, arrays: tuple[ShardedArray, ...], dst: tuple[Sharding, ...], fill: Any = 0
) -> tuple[Any, ...]:
    """A layout on sharded arrays, with results in these shardings; `fill` for holes."""
    run = on_ranks if arrays[0].framework == "torch" else on_devices
    return run(arrays, layout, dst, fill)
