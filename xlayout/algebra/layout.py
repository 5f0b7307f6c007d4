"""Layout: a finite relation between two flat row-major index spaces, held as a few affine boxes.

Inputs and outputs are tuples of shapes; each flat space is the concatenation of the arrays in order, and
the shapes only regroup axes. Output positions that no piece writes are holes (padding is that).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from xlayout.algebra import cost as _cost
from xlayout.algebra import jsonable, notation, pattern
from xlayout.algebra.compose import MAX_PIECES, compose, disjoint, restrict, same_pairs
from xlayout.algebra.fingerprint import fingerprint
from xlayout.algebra.merge import merge
from xlayout.algebra.piece import Piece
from xlayout.algebra.shapes import Shape, as_shape, axis_of, ends, permutation
from xlayout.algebra.strided import row_major, view
from xlayout.errors import CompositionError, InverseError, ShapeError, SizeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A finite relation between input positions and output positions.

    Args:
        in_shapes: shapes of the arrays read.
        out_shapes: shapes of the arrays made.
        pieces: affine boxes over the two flat spaces; merged, sorted by output.

    Raises:
        SizeError: for a piece that reaches outside an index space, or two that write one position.

    >>> glu = Layout.permute((2, 3, 4), (1, 0, 2))  # [W | V] in blocks of 4, three of each
    >>> glu
    Layout(in_shapes=((2, 3, 4),), out_shapes=((3, 2, 4),), pieces=(Piece(in_offset=0, out_offset=0, loops=((3, 4, 8), (2, 12, 4), (4, 1, 1))),))
    >>> (glu >> glu.inverse()).is_identity
    True
    """

    in_shapes: tuple[Shape, ...]
    out_shapes: tuple[Shape, ...]
    pieces: tuple[Piece, ...]
    _fingerprint: int | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        in_shapes = tuple(as_shape(s, "in_shapes") for s in self.in_shapes)
        out_shapes = tuple(as_shape(s, "out_shapes") for s in self.out_shapes)
        pieces = merge(self.pieces)
        _fill(self, in_shapes, out_shapes, pieces)
        for p in pieces:
            if p.in_end > self.in_size or p.out_end > self.out_size:
                raise SizeError(
                    f"pieces: {p} ends at {p.in_end} -> {p.out_end}, outside the index spaces of "
                    f"{self.in_size} -> {self.out_size} elements"
                )
        if len(pieces) > 1 and not disjoint(pieces):
            raise SizeError("pieces: two of them write the same output position; make them disjoint")

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
        return sum(math.prod(s) for s in self.in_shapes)

    @property
    def out_size(self) -> int:
        """Elements of all outputs together."""
        return sum(math.prod(s) for s in self.out_shapes)

    @property
    def size(self) -> int:
        """Number of (input, output) pairs: the elements moved."""
        return sum(p.size for p in self.pieces)

    # -- what kind of map it is -------------------------------------------------------------------

    @property
    def is_identity(self) -> bool:
        """Whether every element stays at its flat position; axes may still be regrouped."""
        return (
            self.in_size == self.out_size == self.size
            and len(self.pieces) <= 1
            and all(p == Piece(0, 0, ((self.in_size, 1, 1),)) for p in self.pieces)
        )

    @property
    def has_holes(self) -> bool:
        """Whether some output position is written by no piece."""
        return self.size < self.out_size

    @property
    def is_bijection(self) -> bool:
        """Whether every input goes to exactly one output and back."""
        return self.size == self.in_size == self.out_size and not self._repeats

    @property
    def _repeats(self) -> bool:
        if any(p.repeats for p in self.pieces):
            return True
        if len(self.pieces) < 2:
            return False
        return not disjoint(tuple(p.inverse() for p in self.pieces))

    # -- algebra ----------------------------------------------------------------------------------

    def inverse(self) -> Layout:
        """The same pairs, outputs and inputs swapped. Exact; positions that were dropped become holes.

        Raises:
            InverseError: when an input goes to several outputs (a broadcast).

        >>> Layout.permute((2, 3), (1, 0)).inverse() == Layout.permute((3, 2), (1, 0))
        True
        """
        if self._repeats:
            raise InverseError(
                f"inverse: {self} sends one input to several outputs, so it has none; "
                "its gradient is a sum, which autograd of the frameworks gives"
            )
        return _make(self.out_shapes, self.in_shapes, merge(p.inverse() for p in self.pieces))

    def __rshift__(self, then: Layout) -> Layout:
        """`a >> b`: first a, then b. Always exact.

        Raises:
            CompositionError: when the sizes do not meet, or the result needs more than 4096 pieces.
        """
        if not isinstance(then, Layout):
            return NotImplemented
        if self.out_size != then.in_size:
            raise CompositionError(
                f"layout >> layout: the first makes {self.out_size} elements {self.out_shapes}, "
                f"the second takes {then.in_size} {then.in_shapes}"
            )
        return _make(self.in_shapes, then.out_shapes, compose(self.pieces, then.pieces))

    def lift(self, before: Sequence[int] | int = (), after: Sequence[int] | int = ()) -> Layout:
        """The same layout on the middle axes of arrays of shape `(*before, *shape, *after)`.

        >>> Layout.permute((2, 3), (1, 0)).lift(before=(5,), after=(7,)).out_shape
        (5, 3, 2, 7)
        """
        before, after = as_shape(before, "before"), as_shape(after, "after")
        a, c = math.prod(before), math.prod(after)
        lifted = []
        for (in_start, in_end), (out_start, out_end) in (
            (i, o) for i in ends(self.in_shapes) for o in ends(self.out_shapes)
        ):
            m, n = in_end - in_start, out_end - out_start
            for p in self.between((in_start, in_end), (out_start, out_end)):
                loops = ((a, m * c, n * c), *((k, x * c, z * c) for k, x, z in p.loops), (c, 1, 1))
                lifted.append(
                    Piece(
                        in_start * a * c + p.in_offset * c, out_start * a * c + p.out_offset * c, loops
                    )
                )
        return _make(
            tuple((*before, *s, *after) for s in self.in_shapes),
            tuple((*before, *s, *after) for s in self.out_shapes),
            merge(lifted),
        )

    def regrouped(
        self, in_shapes: Iterable[Sequence[int]] | None = None, out_shapes: Iterable[Sequence[int]] | None = None
    ) -> Layout:
        """The same pairs with other axes on either side.

        Raises:
            SizeError: when the new shapes hold another number of elements.
        """
        ins = self.in_shapes if in_shapes is None else tuple(as_shape(s, "in_shapes") for s in in_shapes)
        outs = self.out_shapes if out_shapes is None else tuple(as_shape(s, "out_shapes") for s in out_shapes)
        for name, old, new in (("in_shapes", self.in_shapes, ins), ("out_shapes", self.out_shapes, outs)):
            if sum(map(math.prod, old)) != sum(map(math.prod, new)):
                raise SizeError(f"{name}: {new} does not hold the elements of {old}")
        return _make(ins, outs, self.pieces)

    def between(self, inputs: tuple[int, int], outputs: tuple[int, int]) -> tuple[Piece, ...]:
        """The pieces from one stretch of the inputs to one stretch of the outputs, counted from their starts."""
        whole_in, whole_out = inputs == (0, self.in_size), outputs == (0, self.out_size)
        return restrict(self.pieces, None if whole_in else inputs, None if whole_out else outputs)

    def only(self, output: int) -> Layout:
        """The part that makes one of several outputs."""
        stretch = ends(self.out_shapes)[output]
        return _make(
            self.in_shapes, (self.out_shapes[output],), self.between((0, self.in_size), stretch)
        )

    # -- equality ---------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        """The same shapes and the same pairs, however they are cut into pieces."""
        if not isinstance(other, Layout):
            return NotImplemented
        if (self.in_shapes, self.out_shapes) != (other.in_shapes, other.out_shapes):
            return False
        if self.pieces == other.pieces:
            return True
        return self._mark() == other._mark() and same_pairs(self.pieces, other.pieces)

    def __hash__(self) -> int:
        return hash((self.in_shapes, self.out_shapes, self._mark()))

    def _mark(self) -> int:
        if self._fingerprint is None:
            object.__setattr__(self, "_fingerprint", fingerprint(self.pieces))
        assert self._fingerprint is not None
        return self._fingerprint

    # -- answers before running -------------------------------------------------------------------

    def index(self) -> NDArray[np.int64]:
        """The table output -> input over the flat spaces, -1 for holes: the brute-force oracle.

        >>> Layout.permute((2, 3), (1, 0)).index().tolist()
        [0, 3, 1, 4, 2, 5]
        """
        import numpy as np

        table = np.full(self.out_size, -1, dtype=np.int64)
        for p in self.pieces:
            ins = np.array([p.in_offset], dtype=np.int64)
            outs = np.array([p.out_offset], dtype=np.int64)
            for n, x, z in p.loops:
                steps = np.arange(n, dtype=np.int64)
                ins = (ins[:, None] + steps * x).ravel()
                outs = (outs[:, None] + steps * z).ravel()
            table[outs] = ins
        return table

    def as_view(self, strides: Sequence[int] | None = None) -> tuple[int, tuple[int, ...]] | None:
        """Whether the output is a strided view of the input: `(offset, strides)` in elements, or None.

        Exact in both directions, for any memory strides (default: row-major). Strides of axes of size 1
        mean nothing and are ignored. None too for layouts of several arrays and for layouts with holes.

        >>> Layout.permute((2, 3), (1, 0)).as_view()
        (0, (1, 3))
        >>> Layout.permute((2, 3), (1, 0)).regrouped(out_shapes=((6,),)).as_view() is None
        True
        """
        if len(self.in_shapes) != 1 or len(self.out_shapes) != 1 or self.has_holes:
            return None
        if strides is None:
            strides = row_major(self.in_shape)
        elif len(strides) != len(self.in_shape):
            raise ShapeError(
                f"strides: {tuple(strides)} has {len(strides)} entries, the input {self.in_shape} "
                f"has {len(self.in_shape)} axes"
            )
        return view(self.pieces, self.in_shape, self.out_shape, strides)

    def cost(self, itemsize: int) -> _cost.Cost:
        """What one run will take, known before it runs; see `Cost`.

        >>> print(Layout.permute((1024, 2, 64), (1, 0, 2)).cost(itemsize=2))
        262144 B read, 262144 B written, contiguous 128 B in, 128 B out; 1 piece, a view; peak 524288 B
        """
        return _cost.estimate(self, itemsize)

    # -- text -------------------------------------------------------------------------------------

    def __str__(self) -> str:
        """The notation: a pattern with its sizes, or the pieces where no pattern can say it."""
        return notation.write(self.in_shapes, self.out_shapes, self.pieces)

    @classmethod
    def parse(cls, text: str, shape: Any = None, /, **sizes: int) -> Layout:
        """Read a pattern such as `"(a b) c -> (b a) c"`, or anything `str(layout)` writes.

        Args:
            text: inputs, `->`, outputs; see `rearrange` for the grammar.
            shape: the input's shape, or one shape per input; not needed when the text has all sizes.
            sizes: sizes of named axes that the shapes do not settle.

        Raises:
            PatternError: with a caret under the place that cannot be read or solved.

        >>> Layout.parse("(g n) -> (n g)", (6,), g=2).index().tolist()
        [0, 3, 1, 4, 2, 5]
        """
        if notation.is_pieces(text):
            return cls(*notation.read(text))
        return _make(*pattern.solve(text, shape, sizes))

    def to_json(self) -> str:
        """A stable JSON text; `Layout.from_json` reads it back."""
        return jsonable.dump(self.in_shapes, self.out_shapes, self.pieces)

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """Read what `to_json` wrote; everything in it is checked."""
        return cls(*jsonable.load(text))

    # -- constructors -----------------------------------------------------------------------------

    @classmethod
    def identity(cls, shape: Sequence[int] | int) -> Layout:
        """Every element stays where it is."""
        shape = as_shape(shape, "shape")
        return _make((shape,), (shape,), merge([Piece(0, 0, ((math.prod(shape), 1, 1),))]))

    @classmethod
    def permute(cls, shape: Sequence[int], axes: Sequence[int]) -> Layout:
        """The axes in another order, as `numpy.transpose` does."""
        shape = as_shape(shape, "shape")
        axes = permutation(axes, len(shape))
        out = tuple(shape[a] for a in axes)
        ins, outs = row_major(shape), row_major(out)
        loops = tuple((shape[a], ins[a], z) for a, z in zip(axes, outs, strict=True))
        return _make((shape,), (out,), merge([Piece(0, 0, loops)] if math.prod(shape) else []))

    @classmethod
    def slice(
        cls, shape: Sequence[int] | int, start: int = 0, stop: int | None = None, axis: int = 0
    ) -> Layout:
        """The stretch `start:stop` of one axis.

        >>> Layout.slice((5, 2), 1, 3).index().tolist()
        [2, 3, 4, 5]
        """
        shape = as_shape(shape, "shape")
        axis = axis_of(axis, len(shape))
        n = shape[axis]
        stop = n if stop is None else stop
        if not 0 <= start <= stop <= n:
            raise SizeError(f"start, stop: {start}:{stop} is not a stretch of axis {axis} = {n}")
        core = _make(((n,),), ((stop - start,),), merge([Piece(start, 0, ((stop - start, 1, 1),))]))
        return core.lift(shape[:axis], shape[axis + 1 :])

    @classmethod
    def concat(cls, shapes: Sequence[Sequence[int]], axis: int = 0) -> Layout:
        """Several arrays, one after the other along an axis.

        >>> Layout.concat([(2, 1), (3, 1)]).out_shape
        (5, 1)
        """
        shapes = [as_shape(s, "shapes") for s in shapes]
        if not shapes:
            raise SizeError("shapes: none given; concatenate at least one array")
        axis = axis_of(axis, len(shapes[0]))
        rest = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
        if len(rest) > 1 or len({len(s) for s in shapes}) > 1:
            raise SizeError(f"shapes: {shapes} differ outside axis {axis}; only that axis may differ")
        lengths = [s[axis] for s in shapes]
        total = sum(lengths)
        core = _make(tuple((n,) for n in lengths), ((total,),), merge([Piece(0, 0, ((total, 1, 1),))]))
        return core.lift(shapes[0][:axis], shapes[0][axis + 1 :])

    @classmethod
    def pad(cls, shape: Sequence[int] | int, to: int, axis: int = 0) -> Layout:
        """One axis lengthened to `to` with holes at its end."""
        shape = as_shape(shape, "shape")
        axis = axis_of(axis, len(shape))
        n = shape[axis]
        if to < n:
            raise SizeError(f"to: {to} is less than axis {axis} = {n}; pad only lengthens, trim shortens")
        core = _make(((n,),), ((to,),), merge([Piece(0, 0, ((n, 1, 1),))]))
        return core.lift(shape[:axis], shape[axis + 1 :])

    # -- set by the package: what needs arrays or drawing lives above the algebra ------------------

    def __call__(self, *arrays: Any, out: Any = None, copy: bool | None = True, fill: Any = 0) -> Any:
        """Run it: one array per input, one array (or a tuple) out. See `xlayout.apply`."""
        return _hooks["call"](self, arrays, out, copy, fill)

    def draw(self) -> str:
        """The layout as an SVG picture: both index spaces, every element in its colour."""
        return str(_hooks["draw"](self))

    def _repr_svg_(self) -> str:
        return self.draw()


_hooks: dict[str, Any] = {}
"""`xlayout/__init__.py` puts the two functions here, so that nothing in the algebra imports upwards."""


def _make(in_shapes: tuple[Shape, ...], out_shapes: tuple[Shape, ...], pieces: tuple[Piece, ...]) -> Layout:
    """A Layout whose parts are known to be right: merged, in bounds and disjoint."""
    if len(pieces) > MAX_PIECES:
        raise CompositionError(f"layout: {len(pieces)} pieces, the limit is {MAX_PIECES}")
    layout = object.__new__(Layout)
    _fill(layout, in_shapes, out_shapes, pieces)
    return layout


def _fill(
    layout: Layout, in_shapes: tuple[Shape, ...], out_shapes: tuple[Shape, ...], pieces: tuple[Piece, ...]
) -> None:
    for name, value in zip(
        ("in_shapes", "out_shapes", "pieces", "_fingerprint"), (in_shapes, out_shapes, pieces, None), strict=True
    ):
        object.__setattr__(layout, name, value)


def _only(shapes: tuple[Shape, ...], name: str, names: str) -> Shape:
    if len(shapes) != 1:
        raise ShapeError(f"{name}: the layout has {len(shapes)} arrays on that side; use `{names}`")
    return shapes[0]
