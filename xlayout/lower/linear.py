"""Linear: a layout as one value, for backends that have an operation for it.

Its transpose is its inverse, and its batched form is its lift: differentiation and vmap need no
other rules. Its holes are zeros, and what it drops is a hole of its transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape
from xlayout.backend import Backend, Moves
from xlayout.lower.bound import bound, tables_of
from xlayout.lower.fill import is_zero
from xlayout.lower.holes import copied_holes
from xlayout.lower.moves import moves_of, views_of
from xlayout.lower.relayout import program_of
from xlayout_native.strided import ZEROS

__all__ = ["Linear", "as_linear", "form_of", "linear_of"]


@dataclass(frozen=True, slots=True, repr=False)
class Linear:
    """A layout without broadcasts, with zeros in its holes, and the backend that runs it."""

    layout: Layout
    backend: Backend

    def __repr__(self) -> str:
        return str(self.layout)

    @property
    def out_shapes(self) -> tuple[Shape, ...]:
        """The shapes of the results."""
        return self.layout.out_shapes

    def moves(self, strides: Sequence[tuple[int, ...]], /) -> Moves | None:
        """Strided copies from inputs with these strides to row-major outputs.

        What no input goes to is copied from one more, a row of zeros. None if that is no box.
        """
        holes = copied_holes(self.layout, ZEROS)
        return None if holes is None else (*moves_of(self.layout, tuple(strides)), *holes)

    def plain(self, arrays: Sequence[Any], /) -> list[Any]:
        """The results by plain ops."""
        program = program_of(self.layout)
        tables = tables_of(self.layout, program)
        made = bound(self.backend, program.steps, program.outputs, tables, 0)(*arrays)
        return list(made) if len(self.out_shapes) > 1 else [made]

    def inverse(self) -> Self:
        """The inverse, which is also the transpose."""
        return type(self)(self.layout.inverse(), self.backend)

    def lifted(self, count: int, /) -> Self:
        """The same layout on `count` arrays at once, along a new first axis."""
        return type(self)(self.layout.lift((count,)), self.backend)


def as_linear(make: Callable[[], Any], backend: Backend, arrays: Sequence[Any]) -> Any | None:
    """The results by the backend's own operation, or None if plain ops should run.

    `make` describes the layout, as `Backend.linear` wants it.
    """
    made = backend.linear(make, arrays)
    if made is None:
        return None
    return made[0] if len(made) == 1 else tuple(made)


def linear_of(layout: Layout, backend: Backend, fill: Any) -> Linear | None:
    """A layout as one value; None if it is not linear."""
    return Linear(layout, backend) if _is_linear(layout, is_zero(fill)) else None


def form_of(layout: Layout, views: bool, zero: bool = True) -> str | None:
    """A layout as text: (moves, input shapes, output shapes, dropped), all row-major.

    Moves are those of `Linear`; `dropped` are the moves of the inverse that only fill its holes.
    None for what is not linear, as with holes unless they are `zero`; for what moves nothing; for
    holes that are no boxes; and if `views` are allowed, for one whose outputs are all views.
    """
    if not _is_linear(layout, zero) or (views and None not in views_of(layout)):
        return None
    holes, dropped = copied_holes(layout, ZEROS), copied_holes(layout.inverse(), ZEROS)
    if holes is None or dropped is None:
        return None
    return repr(((*moves_of(layout), *holes), layout.in_shapes, layout.out_shapes, dropped))


def _is_linear(layout: Layout, zero: bool) -> bool:
    regroups = layout.is_identity and len(layout.in_shapes) == len(layout.out_shapes) == 1
    return not (regroups or layout.repeats) and (zero or not layout.has_holes)
