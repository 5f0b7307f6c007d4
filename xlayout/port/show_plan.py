"""A plan as a table: one row per rule and change of values, with the layers folded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from xlayout.port.fold import fold
from xlayout.port.formats import TensorSpec
from xlayout.port.units import show_bytes, show_count
from xlayout.table import Table

if TYPE_CHECKING:
    from xlayout.port.change import Change
    from xlayout.port.move import Move
    from xlayout.port.value import PortPlan

__all__ = ["plan_table"]

_SHOWN = 8


def plan_table(plan: PortPlan, /) -> Table:
    """Return the plan's table."""
    groups: dict[tuple[str, Change], list[Move]] = {}
    for move in plan.moves:
        groups.setdefault((move.source.rule.name, move.change), []).append(move)
    old, new = plan.dialects
    cuts = (
        _prefix(m.source.tensor for m in plan.moves),
        _prefix(m.target.tensor for m in plan.moves),
    )
    heads = tuple(
        f"{what} {cut}…" if cut else what for what, cut in zip(("from", "to"), cuts, strict=True)
    )
    return Table(
        title=f"{plan.src} ({old}) → {plan.dst} ({new}), family {plan.family}",
        columns=(*heads, "layout", "values", ">bytes"),
        rows=tuple(_row(moves, cuts) for moves in groups.values()),
        notes=tuple(_notes(plan)),
    )


def _prefix(names: Iterable[str]) -> str:
    """Return the folders that all names share, which the heading gives once."""
    shared = os.path.commonprefix(list(names))  # noqa: RUF071 -- the next line ends it at a "/"
    return shared[: shared.rfind("/") + 1]


def _row(moves: Sequence[Move], cuts: tuple[str, str]) -> tuple[str, ...]:
    first = moves[0]
    layout = "as it is" if first.layout().is_identity else str(first.layout())
    for what, axis in first.target.rule.stack_axes.items():
        count = len({getattr(move.target, what) for move in moves})
        layout += f", {count} along axis {axis}"
    if part := first.target.rule.part:
        layout += f", {part}"
    values = str(first.change)
    if (factor := first.change.factor) != 1.0:
        values += f", × {first.power} = {factor:.6g}"
    itemsize = TensorSpec(first.change.target, ()).itemsize
    return (
        _folded((move.source.tensor for move in moves), cuts[0]),
        _folded((move.target.tensor for move in moves), cuts[1]),
        layout,
        values,
        show_bytes(sum(move.layout().size for move in moves) * itemsize),
    )


def _folded(names: Iterable[str], cut: str) -> str:
    return ", ".join(name.removeprefix(cut) for name in fold(dict.fromkeys(names)))


def _files(files: Mapping[str, int]) -> str:
    if len(files) <= _SHOWN:
        return ", ".join(f"{file} {show_bytes(size)}" for file, size in files.items())
    first, *_, last = files
    most = show_bytes(max(files.values()))
    return f"{show_count(len(files), 'file')} of at most {most}, {first} to {last}"


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(repr, names[:_SHOWN])) + more


def _notes(plan: PortPlan) -> list[str]:
    tensors = show_count(len(plan.specs), "tensor")
    held = plan.lanes * max(move.held for move in plan.moves)
    chunks = "a chunk that is" if plan.lanes == 1 else f"{plan.lanes} chunks that are"
    notes = [
        f"reads {show_bytes(plan.read_bytes)}; writes {tensors}, {show_bytes(plan.write_bytes)}; "
        f"holds at most {show_bytes(plan.buffer_bytes)} of {show_bytes(plan.max_ram)} in buffers"
        + (f", and {show_bytes(held)} for {chunks} read whole" if held else ""),
        f"files: {_files(plan.files)}",
    ]
    if plan.mesh is not None:
        read = plan.rank_bytes
        few, most = show_bytes(min(read)), show_bytes(max(read))
        each = most if few == most else f"{few} to {most}"
        notes.append(
            f"cut for {show_count(plan.mesh.size, 'rank')} ({plan.mesh}); each reads {each}"
        )
    notes.append("every source tensor is accounted for")
    if plan.extras:
        notes.append(f"writes beside them: {', '.join(plan.extras)}")
    if plan.companions:
        notes.append(f"copies along: {', '.join(plan.companions)}")
    if plan.strays:
        notes.append(f"not copied from beside the config: {_first(plan.strays)}")
    notes += [f"ignored, as it holds nothing of its own: {name}" for name in fold(plan.ignored)]
    notes += [
        f"!{name} is stored wider than its origin, which makes its factor exactly invertible"
        for name in fold(plan.widened)
    ]
    notes += [f"!lost, as exact=False (--lossy) allows: {loss}" for loss in plan.losses]
    if plan.unkept:
        notes.append(f"!lost, as only a model's weights are carried over: {_first(plan.unkept)}")
    if plan.unplaced:
        notes.append(
            f"!lost, as one file has no place for it: {', '.join(plan.unplaced)}; a directory, a "
            "name that does not end in .safetensors, keeps it"
        )
    if plan.exact or all(move.change.always_exact for move in plan.moves):
        changed = any(not move.change.is_nothing for move in plan.moves)
        checked = any(move.checked for move in plan.moves)
        notes.append(
            "exact: every element comes back bit for bit"
            + (", NaN as NaN" if changed else "")
            + (", checked on each one as it is written" if checked else "")
        )
    elif not plan.losses:
        notes.append(
            "!a sample of each rule's first tensor lost nothing; the rest was not looked at, and "
            "the comparison after the run tells"
        )
    if plan.taken:
        notes.append(f"!a run is refused: {plan.taken}")
    return notes
