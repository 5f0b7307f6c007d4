"""A plan as a table: one row per rule, the layers folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xlayout.port.account import fold
from xlayout.port.table import Table
from xlayout.port.units import show_bytes, show_count

if TYPE_CHECKING:
    from xlayout.port.move import Move
    from xlayout.port.plan import PortPlan

__all__ = ["plan_table"]


def plan_table(plan: PortPlan, /) -> Table:
    """Return the plan's table."""
    groups: dict[str, list[Move]] = {}
    for move in plan.moves:
        groups.setdefault(move.source.rule.name, []).append(move)
    old, new = plan.dialects
    return Table(
        title=f"{plan.src} ({old}) → {plan.dst} ({new}), family {plan.family}",
        columns=("from", "to", "layout", "dtype", ">bytes"),
        rows=tuple(_row(moves, plan) for moves in groups.values()),
        notes=tuple(_notes(plan)),
    )


def _row(moves: Sequence[Move], plan: PortPlan) -> tuple[str, ...]:
    first = moves[0]
    rule = first.target.rule
    stacked = rule.stack_axis is not None
    layout = "as it is" if first.layout().is_identity else str(first.layout())
    if stacked:
        layout += f", {len(moves)} stacked at axis {rule.stack_axis}"
    if (factor := first.change.factor) != 1.0:
        layout += f", × {first.power} = {factor:.6g}"
    names = {move.target.tensor for move in moves}
    return (
        fold(dict.fromkeys(move.source.tensor for move in moves))[0],
        fold(dict.fromkeys(move.target.tensor for move in moves))[0],
        layout,
        str(first.change),
        show_bytes(sum(plan.specs[name].nbytes for name in names)),
    )


def _notes(plan: PortPlan) -> list[str]:
    tensors = show_count(len(plan.specs), "tensor")
    notes = [
        f"reads {show_bytes(plan.read_bytes)}; writes {tensors}, {show_bytes(plan.write_bytes)}; "
        f"holds at most {show_bytes(plan.buffer_bytes)} of {show_bytes(plan.max_ram)} in buffers",
        "every source tensor is accounted for"
        + (
            f"; ignored, as code computes them: {', '.join(fold(plan.ignored))}"
            * bool(plan.ignored)
        ),
    ]
    notes += [
        f"!{name} is stored wider than its origin, which makes its factor exactly invertible"
        for name in fold(plan.widened)
    ]
    notes += [f"!lost, as exact=False allows: {loss}" for loss in plan.losses]
    if not plan.losses:
        checked = any(move.checked for move in plan.moves)
        notes.append(
            "exact: every element comes back bit for bit"
            + (", checked on each one as it is written" if checked else "")
        )
    return notes
