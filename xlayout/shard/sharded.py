"""Sharded: layouts on sharded arrays, with control over result shardings and communication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, get_args

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape, one_of
from xlayout.errors import LayoutError, ShardingError
from xlayout.lower.calls import Comm
from xlayout.lower.fill import check_fill
from xlayout.lower.named import function_named
from xlayout.lower.run import check_shapes
from xlayout.registry import backend_module, backend_of
from xlayout.shard.arrays import are_batched, on_one_device, sharded_arrays
from xlayout.shard.execute import exchanged
from xlayout.shard.part import results_of
from xlayout.shard.plan import plan_reshard
from xlayout.shard.record import recorded
from xlayout.shard.sharded_array import ShardedArray
from xlayout.shard.sharding import Sharding
from xlayout.shard.targets import by_framework, can_hold, chooses, targets_of

__all__ = ["propagated", "run_layout", "run_op", "run_sharded"]


def run_sharded(
    layout: Layout | Callable[[tuple[Shape, ...]], Layout],
    arrays: Sequence[Any],
    /,
    *,
    comm: Comm = "auto",
    out_sharding: Any = None,
    in_sharding: Any = None,
    fill: Any = 0,
) -> Any:
    """Run a layout on arrays on many devices.

    Args:
        layout: the layout of whole arrays; or a function from their shapes to it, since parts
            inside `shard_map` are smaller.
        arrays: DTensors, or jax.Arrays under a NamedSharding; one per input.
        comm: "auto": move what must move, in one exchange; like "native" if the result has no
            evident sharding (other axes, or parts that the framework cannot hold). "local": move
            nothing, or raise an error that names a source sharding that would need no move.
            "native": the framework's own ops, and its own collectives; on DTensors without elements
            like "auto", as DTensor's reshapes of those may not return.
        out_sharding: the sharding of the result, as for `reshard`. By default where the data falls,
            if that is a sharding; else that of the first input, if the result can have it; else,
            on JAX's explicit axes, which refuse to choose, without the mesh axes that cannot cut.
        in_sharding: the sharding of tracers that carry none, as for `reshard`.
        fill: value for holes.

    Raises:
        ShardingError: for "local" if something would have to move, or if the result has other axes
            than the input and no evident sharding; for an `out_sharding` that the framework cannot
            hold.
        ShapeError: for arrays of other shapes than the layout takes; for a `fill` that their dtype
            cannot hold.
        TypeError: for arrays that are not sharded, or whose sharding is unknown.
        LayoutError: for "native" inside `shard_map`, or with elements of two bits.

    >>> import jax, xlayout as xl
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = jax.make_mesh((len(jax.devices()),), ("tp",), (jax.sharding.AxisType.Auto,))
    >>> x = jax.device_put(jax.numpy.ones((64, 8)), NamedSharding(mesh, P("tp")))
    >>> run_sharded(xl.Layout.permute(x.shape, (1, 0)), [x], comm="local").sharding.spec
    P(None, 'tp')
    """
    one_of("comm", comm, get_args(Comm))
    for name, given in (("out_sharding", out_sharding), ("in_sharding", in_sharding)):
        if given is not None and all(map(on_one_device, arrays)):
            raise TypeError(
                f"{name}: {given}, but the {backend_of(arrays[0]).name} array is on one device; "
                "leave it out, or put the array on a mesh first"
            )
    if comm == "native" and out_sharding is None and are_batched(arrays):
        layout = layout if isinstance(layout, Layout) else layout(tuple(x.shape for x in arrays))
        return layout(*arrays, fill=fill)
    held = sharded_arrays(arrays, in_sharding)
    if not isinstance(layout, Layout):
        layout = layout(tuple(a.shape for a in held))
    check_shapes(layout, held)
    if layout.has_holes:
        check_fill(held[0].x.dtype, fill)
    src = tuple(a.sharding for a in held)
    dst = _targets(layout, held, src, out_sharding, local=comm == "local")
    if dst is None or (comm == "native" and not _is_endless(layout, held[0])):
        try:
            return _by_framework(layout, held, dst, fill)
        except RuntimeError as error:
            if comm == "native" or not _is_refusal(held[0], error):
                raise
        dst = _nearest(layout, held[0], src)
    if comm == "local" and not plan_reshard(layout, src, dst).is_local:
        why = plan_reshard(layout, src, dst, itemsize=held[0].x.dtype.itemsize).explain()
        raise ShardingError(f"comm: 'local', but something would have to move:\n{why}")
    made = exchanged(layout, held, dst, fill)
    return made if len(made) > 1 else made[0]


def run_layout(layout: Layout, arrays: Sequence[Any], /, **sharding: Any) -> Any:
    """`run_sharded`, as one call in a graph that a compiler records."""
    return recorded(_run_layout, tuple(arrays), layout, tuple(sharding.items()))


def _run_layout(
    arrays: Sequence[Any], layout: Layout, sharding: tuple[tuple[str, Any], ...]
) -> Any:
    return run_sharded(layout, arrays, **dict(sharding))


def run_op(
    named: str,
    packed: bool,
    options: dict[str, Any],
    arrays: Sequence[Any],
    /,
    **sharding: Any,
) -> Any:
    """`run_sharded` of an op; its layout function is found by the name `named`.

    That function takes shapes, as one tuple if `packed`, and options. It is called late, so that a
    compiler records the whole as one call.
    """
    return recorded(
        _run_op, tuple(arrays), named, packed, tuple(options.items()), tuple(sharding.items())
    )


def _run_op(
    arrays: Sequence[Any],
    named: str,
    packed: bool,
    options: tuple[tuple[str, Any], ...],
    sharding: tuple[tuple[str, Any], ...],
) -> Any:
    def layout(shapes: tuple[Shape, ...]) -> Layout:
        args = (shapes,) if packed else shapes
        made: Layout = function_named(named)(*args, **dict(options))
        return made

    return run_sharded(layout, arrays, **dict(sharding))


def _by_framework(
    layout: Layout, held: tuple[ShardedArray, ...], dst: tuple[Sharding, ...] | None, fill: Any
) -> Any:
    if held[0].is_part:
        raise LayoutError(
            "comm: 'native' inside shard_map, where XLA moves nothing by itself; take 'auto'"
        )
    if _is_mistaken(held[0]):
        raise LayoutError(
            f"comm: 'native' with {held[0].x.dtype}, whose bytes XLA mistakes on a CPU and may "
            "crash; take 'auto'"
        )

    run = _plain(layout, fill, repr(fill))
    xs = tuple(a.x for a in held)
    several = run(*xs) if dst is None else by_framework(run, xs, held[0], dst, layout.out_shapes)
    return several if len(several) > 1 else several[0]


@lru_cache(1024)
def _plain(layout: Layout, fill: Any, _fill_repr: str) -> Callable[..., tuple[Any, ...]]:
    """A cached function, for compilers; `_fill_repr` keeps the equal 0 and -0.0 apart."""
    return lambda *xs: results_of(layout, xs, fill)


def propagated(layout: Layout, src: Sequence[Sharding]) -> tuple[Sharding, ...] | None:
    """The result shardings under which nothing moves: where the data falls; None if none exist."""
    nowhere = Sharding(src[0].mesh, ())
    try:
        found = plan_reshard(layout.inverse(), nowhere, tuple(src)).pullback()
        dst = found if isinstance(found, tuple) else (found,)
        return dst if plan_reshard(layout, tuple(src), dst).is_local else None
    except LayoutError:
        return None


def _targets(
    layout: Layout,
    arrays: tuple[ShardedArray, ...],
    src: tuple[Sharding, ...],
    out_sharding: Any,
    *,
    local: bool,
) -> tuple[Sharding, ...] | None:
    """The shardings of the results; None to let the framework choose."""
    if out_sharding is not None:
        axes = [len(shape) for shape in layout.out_shapes]
        return targets_of(arrays[0], out_sharding, axes, "out_sharding")
    first = arrays[0]
    found = _evident(layout, first, src)
    if found is not None:
        return found
    if local and _keeps_axes(layout):
        return (src[0],) * len(layout.out_shapes)  # the plan for it says what would move
    if local or first.is_part:
        raise ShardingError(
            f"out_sharding: the data does not fall into a sharding of {layout.out_shapes}, which "
            f"has other axes than the input {layout.in_shapes[0]}; say how the result is to lie"
        )
    if chooses(first) and not _is_endless(layout, first) and not any(map(_misread, arrays)):
        return None
    return _nearest(layout, first, src)


def _evident(
    layout: Layout, first: ShardedArray, src: tuple[Sharding, ...]
) -> tuple[Sharding, ...] | None:
    """Where the data falls, else the first input's sharding; None if neither is possible."""
    found = propagated(layout, src)
    if found is not None and _hold(first, found, layout.out_shapes):
        return found
    same = (src[0],) * len(layout.out_shapes)
    return same if _keeps_axes(layout) and _hold(first, same, layout.out_shapes) else None


def _nearest(
    layout: Layout, first: ShardedArray, src: tuple[Sharding, ...]
) -> tuple[Sharding, ...]:
    """The evident shardings after dropping mesh axes that cannot cut the results."""
    gone = list(src[0].used)
    found = (src[0].without(*gone),) * len(layout.out_shapes)
    for name in tuple(gone):
        fewer = [other for other in gone if other != name]
        cut = _evident(layout, first, (src[0].without(*fewer),) * len(src))
        if cut is not None:
            gone, found = fewer, cut
    return found


def _misread(x: ShardedArray) -> bool:
    """Whether the framework's own ops fail on an array, or mix up its parts.

    Torch's ops cannot regroup a cut axis of one element, and miscount the parts of an axis that
    several mesh axes cut, or that is cut in segments; they assume that ranks ascend; and they
    cannot send some dtypes. XLA sends garbage for some.
    """
    if x.framework == "jax":
        return _is_mistaken(x)
    entries = zip(x.sharding.spec, x.shape, strict=False)
    miscounts = any(entry and (n == 1 or len(entry) > 1) for entry, n in entries)
    miscounts |= any(split.segments for _, split in x.sharding.splits)
    torch = backend_module("torch", "collective")
    return miscounts or not torch.in_order(x.mesh) or not torch.is_carried(x.x.dtype)


def _is_endless(layout: Layout, x: ShardedArray) -> bool:
    """Whether DTensor may never return: it regroups (0, 3) into (0,) in a loop without an end."""
    empty = any(0 in shape for shape in (*layout.in_shapes, *layout.out_shapes))
    return empty and x.framework == "torch"


def _is_mistaken(x: ShardedArray) -> bool:
    """Whether XLA itself sends garbage for the array's dtype."""
    return x.framework == "jax" and bool(backend_module("jax", "collective").is_mistaken(x.x.dtype))


def _is_refusal(x: ShardedArray, error: RuntimeError) -> bool:
    """Whether the framework refused the result: DTensor does not regroup uneven axes."""
    return x.framework == "torch" and bool(backend_module("torch", "collective").is_refusal(error))


def _keeps_axes(layout: Layout) -> bool:
    """Whether every result has as many axes as the first input."""
    return all(len(shape) == len(layout.in_shapes[0]) for shape in layout.out_shapes)


def _hold(x: ShardedArray, shardings: Sequence[Sharding], shapes: Sequence[Shape]) -> bool:
    """Whether the framework can express all of these; see `can_hold`."""
    return all(can_hold(x, to, shape) for to, shape in zip(shardings, shapes, strict=True))
