"""Relation: pairs of input and output positions as a few affine boxes, and their algebra.

Inputs and outputs are tuples of shapes; each flat space is the concatenation of the arrays in
order, and the shapes only regroup axes. Output positions that no piece writes are holes (padding
is that).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from xlayout.algebra.compose import (
    MAX_PIECES,
    compose,
    disjoint,
    restrict,
    restrict_each,
    same_pairs,
)
from xlayout.algebra.constructors import lift as lift_parts
from xlayout.algebra.fingerprint import fingerprint
from xlayout.algebra.merge import merge
from xlayout.algebra.piece import Parts, Piece
from xlayout.algebra.shapes import Shape, a_type, bounds, each_shape, integer
from xlayout.dynamo import constant
from xlayout.errors import CompositionError, InverseError, ShapeError, SizeError

__all__ = ["Relation"]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Relation:
    """The base class of `Layout`: shapes and pieces, compared by the pairs they describe."""

    in_shapes: tuple[Shape, ...]
    out_shapes: tuple[Shape, ...]
    pieces: tuple[Piece, ...]
    # Elements of all inputs and of all outputs, which are needed often.
    _sizes: tuple[int, int] = field(default=(0, 0), init=False, repr=False)
    _hash: int | None = field(default=None, init=False, repr=False)
    # Functions that run it, cached by `lower`.
    _runs: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        in_shapes = each_shape(self.in_shapes, "in_shapes")
        out_shapes = each_shape(self.out_shapes, "out_shapes")
        pieces = merge(_each_piece(self.pieces))
        _fill(self, in_shapes, out_shapes, pieces)
        for p in pieces:
            if p.in_end > self.in_size or p.out_end > self.out_size:
                raise SizeError(
                    f"pieces: {p} ends at {p.in_end} -> {p.out_end}, outside the index spaces of "
                    f"{self.in_size} -> {self.out_size} elements"
                )
        if len(pieces) > 1 and not disjoint(pieces):
            raise SizeError(
                "pieces: two of them write the same output position; make them disjoint"
            )

    @classmethod
    def _of(cls, parts: Parts) -> Self:
        """From parts that are known to be merged, in bounds and disjoint."""
        if len(parts[2]) > MAX_PIECES:
            raise CompositionError(
                f"layout: {len(parts[2])} pieces, the limit is {MAX_PIECES}; of a table of that "
                "many take the elements by an index, as in x.reshape(-1)[layout.index()]"
            )
        made = object.__new__(cls)
        _fill(made, *parts)
        return made

    @property
    def _parts(self) -> Parts:
        return self.in_shapes, self.out_shapes, self.pieces

    @constant
    def _constant(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(self, *args)` as a constant for Dynamo, which cannot pass it a layout."""
        return function(self, *args)

    # -- sizes ----------------------------------------------------------------------------------

    @property
    def in_shape(self) -> Shape:
        """The shape of the one input."""
        return _only(self.in_shapes, "in_shape", "in_shapes")

    @property
    def out_shape(self) -> Shape:
        """The shape of the one output."""
        return _only(self.out_shapes, "out_shape", "out_shapes")

    @property
    def in_size(self) -> int:
        """Elements of all inputs together."""
        return self._sizes[0]

    @property
    def out_size(self) -> int:
        """Elements of all outputs together."""
        return self._sizes[1]

    @property
    def size(self) -> int:
        """Number of (input, output) pairs: the elements moved."""
        return sum(p.size for p in self.pieces)

    # -- properties of the map --------------------------------------------------------------------

    @property
    def is_identity(self) -> bool:
        """Whether every element stays at its flat position; axes may still be regrouped."""
        return self.in_size == self.out_size == self.size and all(
            p.in_offset == p.out_offset and all(x == z for _, x, z in p.loops) for p in self.pieces
        )

    @property
    def has_holes(self) -> bool:
        """Whether some output position is not written and has to be filled."""
        return self.size < self.out_size

    @property
    def is_bijection(self) -> bool:
        """Whether every input position goes to exactly one output position, and vice versa."""
        return self.size == self.in_size == self.out_size and not self.repeats

    @property
    def repeats(self) -> bool:
        """Whether some input position goes to several output positions: a broadcast."""
        if any(p.repeats for p in self.pieces):
            return True
        if len(self.pieces) < 2:
            return False
        return not disjoint(tuple(p.inverse() for p in self.pieces))

    # -- algebra ----------------------------------------------------------------------------------

    def inverse(self) -> Self:
        """The same pairs with inputs and outputs swapped; always exact.

        Input positions that the layout drops become holes of the inverse.

        Raises:
            InverseError: if an input goes to several outputs (a broadcast).

        >>> from xlayout import Layout
        >>> Layout.permute((2, 3), (1, 0)).inverse() == Layout.permute((3, 2), (1, 0))
        True
        """
        if self.repeats:
            raise InverseError(
                f"inverse: {self} sends one input to several outputs, so it has none; "
                "its gradient is a sum, which autograd of the frameworks gives"
            )
        return self._of((self.out_shapes, self.in_shapes, merge(p.inverse() for p in self.pieces)))

    def __rshift__(self, then: Self) -> Self:
        """`a >> b`: first a, then b. Always exact.

        Raises:
            CompositionError: if the sizes differ, or the result needs more than 4096 pieces.
        """
        if not isinstance(then, Relation):
            return NotImplemented
        if self.out_size != then.in_size:
            raise CompositionError(
                f"layout >> layout: the first makes {self.out_size} elements {self.out_shapes}, "
                f"the second takes {then.in_size} {then.in_shapes}"
            )
        return self._of((self.in_shapes, then.out_shapes, compose(self.pieces, then.pieces)))

    def lift(self, before: Sequence[int] | int = (), after: Sequence[int] | int = ()) -> Self:
        """The same layout on the middle axes of arrays of shape `(*before, *shape, *after)`.

        >>> from xlayout import Layout
        >>> Layout.permute((2, 3), (1, 0)).lift(before=(5,), after=(7,)).out_shape
        (5, 3, 2, 7)
        """
        return self._of(lift_parts(self._parts, before, after))

    def regrouped(
        self,
        in_shapes: Iterable[Sequence[int]] | None = None,
        out_shapes: Iterable[Sequence[int]] | None = None,
    ) -> Self:
        """The same elements with other input or output shapes, as by `reshape`.

        Raises:
            SizeError: if the new shapes hold another number of elements.
            TypeError: for values that are not shapes.
        """
        ins = self.in_shapes if in_shapes is None else each_shape(in_shapes, "in_shapes")
        outs = self.out_shapes if out_shapes is None else each_shape(out_shapes, "out_shapes")
        for name, old, new in (
            ("in_shapes", self.in_shapes, ins),
            ("out_shapes", self.out_shapes, outs),
        ):
            if sum(map(math.prod, old)) != sum(map(math.prod, new)):
                raise SizeError(f"{name}: {new} does not hold the elements of {old}")
        return self._of((ins, outs, self.pieces))

    def between(self, inputs: tuple[int, int], outputs: tuple[int, int]) -> tuple[Piece, ...]:
        """The pieces between a range of input and one of output positions, relative to both."""
        return restrict(self.pieces, inputs, outputs)

    def only(self, output: int) -> Self:
        """The part of the layout that makes one of its outputs.

        Raises:
            TypeError: for a value that is not an int.
            SizeError: for an output that the layout does not make.
        """
        output, count = integer(output, "output", None), len(self.out_shapes)
        if not -count <= output < count:
            raise SizeError(f"output: {output}; the layout makes {count}, from 0")
        part = self.between((0, self.in_size), bounds(self.out_shapes)[output])
        return self._of((self.in_shapes, (self.out_shapes[output],), part))

    def each(self) -> list[Self]:
        """`only` of every output, in linear time.

        >>> from xlayout import Layout
        >>> [part.out_shape for part in Layout.concat([(2,), (3,)]).inverse().each()]
        [(2,), (3,)]
        """
        parts = restrict_each(self.pieces, bounds(self.out_shapes), inputs=False)
        return [
            self._of((self.in_shapes, (shape,), part))
            for shape, part in zip(self.out_shapes, parts, strict=True)
        ]

    # -- equality ---------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """The same shapes and the same pairs, however they are cut into pieces."""
        if not isinstance(other, Relation):
            return NotImplemented
        if (self.in_shapes, self.out_shapes) != (other.in_shapes, other.out_shapes):
            return False
        if self.pieces == other.pieces:
            return True
        alike = fingerprint(self.pieces) == fingerprint(other.pieces)
        return alike and same_pairs(self.pieces, other.pieces)

    def __hash__(self) -> int:
        if self._hash is None:  # layouts are keys of many caches
            mark = hash((self.in_shapes, self.out_shapes, fingerprint(self.pieces)))
            object.__setattr__(self, "_hash", mark)
            return mark
        return self._hash

    def __reduce__(self) -> tuple[type[Self], Parts]:
        # An unpickled layout is checked like any other, and hashed by the Python that loads it.
        return type(self), self._parts


def _fill(
    relation: Relation,
    in_shapes: tuple[Shape, ...],
    out_shapes: tuple[Shape, ...],
    pieces: tuple[Piece, ...],
) -> None:
    sizes = sum(map(math.prod, in_shapes)), sum(map(math.prod, out_shapes))
    values: tuple[object, ...] = (in_shapes, out_shapes, pieces, sizes, None, {})
    for name, value in zip(
        ("in_shapes", "out_shapes", "pieces", "_sizes", "_hash", "_runs"), values, strict=True
    ):
        object.__setattr__(relation, name, value)


def _each_piece(given: Any) -> tuple[Piece, ...]:
    try:
        pieces = tuple(given)  # it may be an iterator
    except TypeError:
        raise TypeError(f"pieces: {given!r}; wanted a sequence of pieces") from None
    for piece in pieces:
        if not isinstance(piece, Piece):
            raise TypeError(f"pieces: {piece!r} is {a_type(piece)}; wanted a Piece")
    return pieces


def _only(shapes: tuple[Shape, ...], name: str, names: str) -> Shape:
    if len(shapes) != 1:
        raise ShapeError(f"{name}: the layout has {len(shapes)} arrays on that side; use `{names}`")
    return shapes[0]
