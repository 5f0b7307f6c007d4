"""Gather: parameters in a train step, cast before the gather; gradients summed in a chosen dtype.

When XLA partitions a program itself, it sums partial results where they arise: a gradient of
bfloat16 weights in bfloat16, whatever it is cast to afterwards. Two modes of JAX let a program keep
partial results and sum them in another dtype: `jax.shard_map`, and explicit axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import jax
from jax.sharding import AxisType

from xlayout.algebra.shapes import a_type, axis_of, one_of
from xlayout.errors import AxisError, ShardingError
from xlayout.registry import backend_module, backend_of
from xlayout.shard.arrays import sharded_arrays

__all__ = ["all_gather", "regather"]

Wire = Literal["pinned", "native"]


def all_gather(
    x: Any,
    mesh_axis: str | Sequence[str],
    /,
    *,
    axis: int = 0,
    dtype: Any = None,
    reduce_dtype: Any = "float32",
    wire: Wire = "pinned",
) -> Any:
    """Gather parameters: cast first; gradients are cast to `reduce_dtype`, then reduce-scattered.

    Inside `jax.shard_map`, `x` is this device's part and `axis` is the array axis along which the
    parts are joined. On explicit axes `x` is the whole array; the result has the type of an array
    reduced over `mesh_axis`, so that matrix products leave its gradient unreduced: the batch must
    be cut by exactly these mesh axes; and it has no derivative in forward mode (`jax.jvp`). In all
    other cases use `xlayout.all_gather`.

    Args:
        x: an array inside `shard_map` over `mesh_axis`, or one on explicit axes.
        mesh_axis: the mesh axis to gather, or several of them, major to minor.
        axis: the array axis that they cut; only inside shard_map.
        dtype: dtype that is sent, and that of the result; by default that of `x`.
        reduce_dtype: dtype in which gradients are summed (float64 and complex ones stay as wide)
            before they are cast to that of `x`.
        wire: "pinned" sends narrow floats as integers of the same width, which no compiler widens;
            "native" sends them as they are.

    Raises:
        ShardingError: on automatic axes, where the compiler would sum the gradient.
        AxisError: for a mesh axis or an array axis that does not exist, or no mesh axis at all.
        TypeError: for another array or none; for a dtype of 64 bits while they are disabled in JAX,
            and a `reduce_dtype` that holds no gradients.

    >>> import jax, jax.numpy as jnp
    >>> from jax.sharding import PartitionSpec as P
    >>> mesh = jax.make_mesh((len(jax.devices()),), ("fsdp",), (jax.sharding.AxisType.Auto,))
    >>> def loss(w, x):
    ...     w = all_gather(w, "fsdp", dtype="bfloat16")
    ...     return jax.lax.pmean(((x.astype(w.dtype) @ w) ** 2).mean(), "fsdp")
    >>> step = jax.shard_map(loss, mesh=mesh, in_specs=(P("fsdp"), P("fsdp")), out_specs=P())
    >>> jax.grad(step)(jnp.ones((8, 4)), jnp.ones((16, 8))).dtype
    dtype('float32')
    """
    if backend_of(x).name not in ("jax", "numpy"):
        raise TypeError(f"x: {a_type(x)}; wanted a jax.Array")
    one_of("wire", wire, get_args(Wire))
    names = tuple(mesh_axis) if isinstance(mesh_axis, (tuple, list)) else (mesh_axis,)
    collective, own = backend_module("jax", "collective"), backend_module("jax", "gathering")
    dtype = x.dtype if dtype is None else collective.dtype_named(dtype)
    asked = collective.dtype_named(reduce_dtype, "reduce_dtype")
    dtypes = dtype, collective.dtype_of_sum(asked, dtype)
    mesh = jax.typeof(x).sharding.mesh
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    if not names:
        raise AxisError(f"mesh_axis: {mesh_axis!r}; wanted at least one")
    for name in names:
        if name not in mesh.axis_names:
            there = ", ".join(map(str, kinds)) or "no axes"
            raise AxisError(f"mesh_axis: {name!r}; the mesh of x has {there}")
    found = {kinds[name] for name in names}
    if found == {AxisType.Manual}:
        return own.gather_parts(x, names, axis_of(axis, x.ndim), *dtypes, wire == "pinned")
    if found == {AxisType.Explicit}:
        (held,) = sharded_arrays((x,))
        ends = (
            held.native(held.sharding),
            held.native(held.sharding.without(*names)),
        )
        return own.gather_partial(x, *ends, names, *dtypes, wire == "pinned")
    raise ShardingError(
        f"x: on {mesh}, where XLA sums the gradient over {', '.join(names)} in the dtype of the "
        "result; call it inside jax.shard_map, or give the mesh explicit axes, or take "
        "xlayout.all_gather, which leaves the sum to XLA"
    )


def regather(policy: Callable[..., Any] | None = None, /) -> Callable[..., Any]:
    """A policy for `jax.checkpoint` that saves nothing gathered: the backward pass gathers again.

    Without it, JAX saves what the gradients of matrix products need, including gathered parameters.
    Results of casts and of ops that only move elements are not saved either, since they may be a
    gathered array in another form; `policy` decides about results of arithmetic on one.

    Args:
        policy: decides about all other results, such as `jax.checkpoint_policies.dots_saveable`; by
            default they are saved.

    >>> import jax
    >>> def layer(w, x):
    ...     return x @ w
    >>> forward = jax.checkpoint(layer, policy=regather())
    """
    decide: Callable[..., Any] = backend_module("jax", "gathering").regather(policy)
    return decide
