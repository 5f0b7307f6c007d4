"""Layout: a finite relation between two flat row-major index spaces, with its operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from xlayout.algebra import constructors, jsonable, notation, pattern
from xlayout.algebra.cost import Cost, estimate
from xlayout.algebra.index import index_table
from xlayout.algebra.relation import Relation
from xlayout.algebra.shapes import a_type, integers
from xlayout.algebra.strided import row_major, view
from xlayout.errors import ShapeError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Layout", "check_layout"]


class Layout(Relation):
    """Which output position is read from which input position: a finite relation.

    Args:
        in_shapes: shapes of the inputs.
        out_shapes: shapes of the outputs.
        pieces: affine boxes over the two flat spaces; merged, sorted by output.

    Raises:
        SizeError: for a piece that leaves an index space, or two that write the same position.

    >>> glu = Layout.permute((2, 3, 4), (1, 0, 2))  # [W | V] in blocks of 4, three of each
    >>> glu.pieces
    (Piece(in_offset=0, out_offset=0, loops=((3, 4, 8), (2, 12, 4), (4, 1, 1))),)
    >>> print(glu)
    a=2 b=3 c=4 -> b a c
    >>> (glu >> glu.inverse()).is_identity
    True
    """

    __slots__ = ()

    # -- analysis ---------------------------------------------------------------------------------

    def index(self) -> NDArray[np.int64]:
        """The layout as a table: for each flat output position its input position, -1 for holes.

        >>> Layout.permute((2, 3), (1, 0)).index().tolist()
        [0, 3, 1, 4, 2, 5]
        """
        return index_table(self.pieces, self.out_size)

    def as_view(self, strides: Sequence[int] | None = None) -> tuple[int, tuple[int, ...]] | None:
        """The output as a strided view of the input: `(offset, strides)` in elements, or None.

        It finds the view if there is one, for any memory strides (default: row-major). Strides of
        axes of size 1 are ignored. Layouts of several arrays or with holes have none.

        Raises:
            ShapeError: for another number of strides than the input has axes.
            TypeError: for strides that are not ints.

        >>> Layout.permute((2, 3), (1, 0)).as_view()
        (0, (1, 3))
        >>> Layout.permute((2, 3), (1, 0)).regrouped(out_shapes=((6,),)).as_view() is None
        True
        """
        given = None if strides is None else integers(strides, "strides", None)
        if len(self.in_shapes) != 1 or len(self.out_shapes) != 1 or self.has_holes:
            return None
        if given is None:
            given = row_major(self.in_shape)
        elif len(given) != len(self.in_shape):
            raise ShapeError(
                f"strides: {given} has {len(given)} entries, the input {self.in_shape} "
                f"has {len(self.in_shape)} axes"
            )
        return view(self.pieces, self.in_shape, self.out_shape, given)

    def cost(self, itemsize: int) -> Cost:
        """What one run costs, computed without running it; see `Cost`.

        Raises:
            SizeError: for an itemsize below 1.

        >>> cost = Layout.permute((1024, 2, 64), (1, 0, 2)).cost(itemsize=2)
        >>> cost.lowering, cost.run, cost.bytes_written
        ('view', 128, 262144)
        """
        return estimate(self, itemsize)

    # -- text -------------------------------------------------------------------------------------

    def __str__(self) -> str:
        """The notation: a pattern with its sizes, or the pieces if no pattern describes them."""
        return notation.write(*self._parts)

    @classmethod
    def parse(cls, text: str, shape: Any = None, /, **sizes: int) -> Layout:
        """Read a pattern such as `"(a b) c -> (b a) c"`, or anything `str(layout)` writes.

        Args:
            text: inputs, `->`, outputs; see `rearrange` for the grammar.
            shape: the input's shape, or one shape per input; not needed when the text has all
                sizes.
            sizes: sizes of named axes that the shapes do not determine.

        Raises:
            PatternError: with a caret at the position that cannot be read or solved, or that the
                shape does not fit.
            SizeError: for a size below 0.

        >>> Layout.parse("(g n) -> (n g)", (6,), g=2).index().tolist()
        [0, 3, 1, 4, 2, 5]
        """
        if notation.is_pieces(text):
            return cls(*notation.read(text, shape, sizes))
        return cls._of(pattern.solve(text, shape, sizes))

    def to_json(self) -> str:
        """A stable JSON text; `Layout.from_json` reads it back."""
        return jsonable.dump(*self._parts)

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """Read what `to_json` wrote, checking everything in it.

        Raises:
            TypeError: for a value that is not text.
            LayoutError: for any other text.

        >>> layout = Layout.permute((2, 3), (1, 0))
        >>> Layout.from_json(layout.to_json()) == layout
        True
        """
        return cls(*jsonable.load(text))

    # -- constructors -----------------------------------------------------------------------------

    @classmethod
    def identity(cls, shape: Sequence[int] | int) -> Layout:
        """Every element stays where it is.

        >>> Layout.identity((2, 3)).index().tolist()
        [0, 1, 2, 3, 4, 5]
        """
        return cls._of(constructors.identity(shape))

    @classmethod
    def permute(cls, shape: Sequence[int], axes: Sequence[int]) -> Layout:
        """The axes in another order, as `numpy.transpose` does.

        Raises:
            AxisError: if `axes` is not every axis once.

        >>> Layout.permute((2, 3, 4), (1, 2, 0)).out_shape
        (3, 4, 2)
        """
        return cls._of(constructors.permute(shape, axes))

    @classmethod
    def slice(
        cls, shape: Sequence[int] | int, start: int = 0, stop: int | None = None, axis: int = 0
    ) -> Layout:
        """The elements `start:stop` of one axis.

        Raises:
            SizeError: for a range that leaves the axis.
            AxisError: for an axis that the array does not have.

        >>> Layout.slice((5, 2), 1, 3).index().tolist()
        [2, 3, 4, 5]
        """
        return cls._of(constructors.slice_(shape, start, stop, axis))

    @classmethod
    def concat(cls, shapes: Sequence[Sequence[int]], axis: int = 0) -> Layout:
        """Several arrays, one after the other along an axis.

        Raises:
            SizeError: for no arrays, or shapes that differ along another axis.
            AxisError: for an axis that the arrays do not have.

        >>> Layout.concat([(2, 1), (3, 1)]).out_shape
        (5, 1)
        """
        return cls._of(constructors.concat(shapes, axis))

    @classmethod
    def pad(cls, shape: Sequence[int] | int, to: int, axis: int = 0) -> Layout:
        """One axis lengthened to `to`, with holes at its end.

        Raises:
            SizeError: if `to` is less than the size of the axis.
            AxisError: for an axis that the array does not have.

        >>> Layout.pad((2,), to=4).index().tolist()
        [0, 1, -1, -1]
        """
        return cls._of(constructors.pad(shape, to, axis))

    # What needs arrays or drawing lives above the algebra; `xlayout/__init__.py` puts it here.
    if TYPE_CHECKING:

        def __call__(
            self, /, *arrays: Any, out: Any = None, copy: bool | None = True, fill: Any = 0
        ) -> Any:
            """Run it: one array per input, or a tuple or list of them. See `xlayout.apply`."""

        def draw(self, /) -> str:
            """The layout as an SVG picture: both index spaces, every element in its colour."""

    def _repr_svg_(self) -> str:
        return self.draw()


def check_layout(given: Any, name: str, call: str) -> None:
    """Refuse what is not a Layout, naming only its type: it may be a large array.

    Raises:
        TypeError: with the `call` that takes a Layout.
    """
    if not isinstance(given, Layout):
        raise TypeError(f"{name}: {a_type(given)}; wanted a Layout: {call}")
