"""Rearrange: layouts written as einops patterns, with `+` for segments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from xlayout.algebra import Layout, grammar
from xlayout.algebra.shapes import Shape
from xlayout.dynamo import constant
from xlayout.lower.answers import answered, answering
from xlayout.lower.calls import Comm
from xlayout.ops.dispatch import unary
from xlayout.ops.engine import Engine
from xlayout.ops.op import array_function
from xlayout.ops.options import RUN

__all__ = ["rearrange"]

_OPTIONS = ("pattern", *RUN)


class Rearrange(Protocol):
    """One array or several in, one or several out, as the pattern says."""

    __name__: str

    def __call__(
        self,
        x: Any,
        pattern: str,
        /,
        *,
        out: Any = None,
        copy: bool | None = True,
        donate: bool = False,
        comm: Comm = "auto",
        out_sharding: Any = None,
        in_sharding: Any = None,
        **sizes: int,
    ) -> Any:
        """The op on an array, or on a sequence of arrays."""

    def layout(self, shape: Any, pattern: str, /, **sizes: int) -> Layout:
        """The op on a shape, or on a sequence of shapes when the pattern has several inputs."""


def _split(ndim: int, options: dict[str, Any]) -> frozenset[int]:
    """The axes that the pattern splits or gives a size; all axes, if it has several inputs."""
    pattern = options.get("pattern", "->")  # a missing pattern raises later
    return frozenset(answered(_split_by(pattern, ndim, tuple(options))))


@constant
@answering
def _split_by(pattern: str, ndim: int, sizes: tuple[str, ...]) -> tuple[int, ...]:
    """The same, from a pattern and the names whose sizes are given.

    >>> _split_by("b ... (h d) s -> b h s ... d", 5, ("h", "s"))
    ((3, 4), None, None)
    """
    array, *others = grammar.read(pattern).inputs
    if others:
        return tuple(range(ndim))
    dots = next((k for k, f in enumerate(array) if isinstance(f, grammar.Dots)), len(array))
    return tuple(
        k if k < dots else ndim - len(array) + k
        for k, factor in enumerate(array)
        if isinstance(factor, grammar.One | grammar.Group)
        or (isinstance(factor, grammar.Name) and (factor.size or factor.name in sizes))
    )


def _on_arrays(function: Callable[..., Layout]) -> Rearrange:
    call = unary(Engine(function, _split, packed=True, names="x"))

    def layout(shape: Any, pattern: str, /, **sizes: int) -> Layout:
        return function(shape, pattern, **sizes)

    return cast("Rearrange", array_function(call, function, layout, Rearrange))


@_on_arrays
def rearrange(shapes: tuple[Shape, ...], /, pattern: str, **sizes: int) -> Layout:
    """Split, permute and merge axes, and split or join segments, as a pattern says.

    The patterns are einops', with segments: `+` inside parentheses joins parts along an axis, and
    binds looser than juxtaposition. Every axis occurs on both sides; each combination of
    segments occurs exactly once on each side.

        "(h d) m -> m h d"                 split and transpose; give h= or d=
        "(q + k + v) h -> q h, k h, v h"   take segments apart; give all but one size
        "(g q) h, (g k) h -> (g (q + k)) h"   two inputs, woven group by group
        "... a b -> ... b a"               any leading axes; 1 is an axis of size 1

    Args:
        shapes: an array, or a sequence of arrays when the pattern has several inputs.
        pattern: the pattern; names may carry their size, as in `(h=8 d)`.
        **_options: where the result goes; see `xlayout.ops.options.Options`.
        **sizes: sizes of axes by name.

    Returns:
        One array, or a tuple of arrays when the pattern has several outputs.

    Raises:
        PatternError: with a caret at the position that cannot be read or solved.
        SizeError: for a size below 0.

    >>> import numpy as np
    >>> rearrange(np.arange(6), "(g n) -> (n g)", g=2)
    array([0, 3, 1, 4, 2, 5])
    >>> rearrange(np.arange(6), "(q + k) -> q, k", q=4)
    (array([0, 1, 2, 3]), array([4, 5]))
    """
    tree = grammar.read(pattern)
    for n in (n for array in (*tree.inputs, *tree.outputs) for n in grammar.names(array)):
        if n.name in _OPTIONS:
            why = f"{n.name!r} is an option of rearrange; give the axis another name"
            raise tree.wrong(n.at, why)
    return Layout.parse(pattern, shapes, **sizes)
