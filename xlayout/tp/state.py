"""State: the weights of a model sharded for one rank, and the shards of all ranks merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xlayout.algebra.layout import Layout
from xlayout.algebra.shapes import Shape, a_type, boolean, integer
from xlayout.bridge import to_numpy
from xlayout.errors import ShapeError, SizeError, about
from xlayout.lower import call
from xlayout.registry import backend_of, submodule
from xlayout.shard.owners import whole
from xlayout.tp.tree import flatten, unflatten
from xlayout.tp.value import Placed, TensorPlan

__all__ = ["check_plan", "check_weights", "merge", "shard"]


def shard(weights: Any, plan: TensorPlan, rank: int, /, *, copy: bool | None = True) -> Any:
    """The part of every weight that one rank holds.

    Args:
        weights: a state dict, or nested dicts of arrays of any framework; or a torch module.
        plan: from `plan`, for weights of these names and shapes.
        rank: the rank.
        copy: as for every op: True for fresh memory, None to share where possible (a part of a
            column-parallel layer is a view), False to share or fail.

    Returns:
        Dicts nested as those given.

    Raises:
        TypeError: for weights of another type, or leaves that are not arrays.
        ShapeError: for names or shapes that do not match the plan, before anything is cut.
        SizeError: for a rank that does not exist.
        BufferError: for `copy=False` where memory cannot be shared.

    >>> import numpy as np
    >>> from xlayout.tp import Rule, plan
    >>> whole = {"mlp.up_proj.weight": np.arange(8).reshape(4, 2)}
    >>> shard(whole, plan(whole, 2, rules="llama"), 1)["mlp.up_proj.weight"].tolist()
    [[4, 5], [6, 7]]
    """
    plan, rank = check_plan(plan), integer(rank, "rank")
    arrays = check_weights(weights, plan, "weights")
    made = {
        name: _run(
            placed.sharding.layout(rank, placed.shape), [arrays[name]], f"weights[{name!r}]", copy
        )
        for name, placed in plan.items()
    }
    return unflatten(weights if isinstance(weights, Mapping) else arrays, made.__getitem__)


def merge(shards: Sequence[Any], plan: TensorPlan, /, *, check: bool = True) -> Any:
    """The whole weights from the parts of all ranks: the inverse of `shard`.

    Args:
        shards: what `shard` gave for rank 0, 1, …; or the state dicts of trained modules.
        plan: the plan that they were cut by.
        check: whether copies that several ranks hold must be equal, bit for bit.

    Returns:
        Dicts nested as those given.

    Raises:
        TypeError: for shards of another type, leaves that are not arrays, or a `check` that is no
            bool.
        ShapeError: for names or shapes that do not match the plan, before anything is merged; for
            copies that differ.
        SizeError: for another number of shards than the plan has ranks.

    >>> import numpy as np
    >>> from xlayout.tp import plan
    >>> x = {"mlp.down_proj.weight": np.arange(6).reshape(2, 3)}
    >>> made = plan(x, 2, rules="llama")
    >>> merge([shard(x, made, rank) for rank in range(2)], made)["mlp.down_proj.weight"].tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    plan = check_plan(plan)
    boolean(check, "check")
    if isinstance(shards, (str, Mapping)) or not isinstance(shards, Sequence):
        raise TypeError(f"shards: {a_type(shards)}; wanted one dict for each rank")
    if len(shards) != plan.parts:
        raise SizeError(f"shards: {len(shards)}; the plan has {plan.parts} ranks")
    arrays = [flatten(part, f"shards[{rank}]") for rank, part in enumerate(shards)]
    for rank, part in enumerate(arrays):
        _check(part, {name: plan.local_shape(name, rank) for name in plan}, f"shards[{rank}]")
    made = {
        name: _merged(name, placed, [part[name] for part in arrays], check)
        for name, placed in plan.items()
    }
    first = shards[0] if isinstance(shards[0], Mapping) else arrays[0]
    return unflatten(first, made.__getitem__)


def check_weights(weights: Any, plan: TensorPlan, argument: str) -> dict[str, Any]:
    """The weights by their dotted names; names and shapes must match the plan.

    Raises:
        TypeError: for weights of another type, or leaves that are not arrays.
        ShapeError: for other names or shapes.
    """
    arrays = flatten(weights, argument)
    _check(arrays, {name: placed.shape for name, placed in plan.items()}, argument)
    return arrays


def _merged(name: str, placed: Placed, parts: Sequence[Any], check: bool) -> Any:
    made = _run(whole(placed.sharding, placed.shape), parts, f"shards, {name!r}", True)
    if not check or not (placed.axis is None or placed.overlaps):
        return made
    for rank, part in enumerate(parts):
        layout = placed.sharding.layout(rank, placed.shape)
        try:
            equal = bool((_bits(call(layout, made, copy=None)) == _bits(part)).all())
        except TypeError as error:
            raise TypeError(
                f"shards[{rank}][{name!r}]: cannot be compared with the copies that other ranks "
                f"hold; check=False takes the first. {error}"
            ) from error
        if not equal:
            raise ShapeError(
                f"shards[{rank}][{name!r}]: differs from the copy that another rank holds; they "
                "were trained apart, or cut by another plan. check=False takes the first"
            )
    return made


def _run(layout: Layout, arrays: Sequence[Any], what: str, copy: bool | None) -> Any:
    """Run a layout; errors name what it was run on."""
    with about(what, TypeError, BufferError):
        return call(layout, *arrays, copy=copy)


def _bits(x: Any) -> Any:
    """The bytes of an array, to compare NaNs, and dtypes that have no comparison."""
    backend = backend_of(x, "")
    if backend.name == "torch":  # where numpy need not be, nor have the dtype
        return submodule(backend, "exchange").offer(x, detach=True).values()
    try:
        array = to_numpy(x)
    except TypeError:  # JAX's sub-byte dtypes, which come from ml_dtypes
        array = x.__array__()
    if array.dtype.hasobject:
        raise TypeError("they are objects of Python")
    return array.ravel().view("u1")  # in one piece, which `reshape` would not make of it


def check_plan(plan: Any) -> TensorPlan:
    """A plan, or a TypeError."""
    if not isinstance(plan, TensorPlan):
        raise TypeError(f"plan: {a_type(plan)}; wanted what xlayout.tp.plan returns")
    return plan


def _check(arrays: Mapping[str, Any], shapes: Mapping[str, Shape], argument: str) -> None:
    for what, names, but in (
        ("has no", shapes.keys() - arrays.keys(), ""),
        ("has", arrays.keys() - shapes.keys(), ", of which the plan knows nothing"),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ShapeError(f"{argument}: {what} {min(names)!r}{more}{but}")
    for name, shape in shapes.items():
        found = getattr(arrays[name], "shape", None)
        if found is None:
            raise TypeError(f"{argument}[{name!r}]: {a_type(arrays[name])}; wanted an array")
        if tuple(found) != shape:
            raise ShapeError(
                f"{argument}[{name!r}]: shape {tuple(found)}; the plan has {shape} there"
            )
