"""Explain: a plan as text: what moves where, and which source sharding would avoid it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from xlayout.errors import SizeError
from xlayout.shard.collective import remote

if TYPE_CHECKING:
    from xlayout.shard.plan import Plan

__all__ = ["explained"]

_LINES = 12


def explained(plan: Plan) -> str:
    """A plan as a few lines of text."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    layout = plan.layout
    for name, side, shapes in (
        ("from", plan.src, layout.in_shapes), ("to  ", plan.dst, layout.out_shapes)
    ):  # fmt: skip
        for sharding, shape in zip(side, shapes, strict=True):
            yield f"{name} {shape} {sharding}"
    yield f"by   {layout if len(str(layout)) < 80 else f'a layout of {len(layout.pieces)} pieces'}"
    moved = [(src, dst, form.size) for src, dst, _, form in remote(plan)]
    if not moved:
        yield "local: every rank has what it needs"
        return
    total, bound = sum(plan.recv_bytes), sum(plan.lower_bound)
    yield (
        f"{total} B in {len(moved)} messages, at most {max(plan.recv_bytes)} B to one rank; "
        f"{total / bound:.2f}x the {bound} B that ranks need and do not have"
    )
    if plan.collective is not None:
        yield f"in {plan.collective}"
    else:
        padding = sum(r.padding for r in plan.rounds) * plan.itemsize
        yield f"in {len(plan.rounds)} rounds, padded to {(total + padding) / total:.2f}x"
    for src, dst, size in moved[:_LINES]:
        yield f"  {dst} <- {src}: {size * plan.itemsize} B"
    if len(moved) > _LINES:
        yield f"  and {len(moved) - _LINES} more"
    try:
        found = plan.pullback()
    except SizeError as error:
        yield f"never local to that result: {error}"
        return
    for sharding in found if isinstance(found, tuple) else (found,):
        yield f"local if it came from {sharding}"
