"""Rearrange: layouts written as einops patterns, with `+` for segments."""

from __future__ import annotations

from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape
from xlayout.errors import PatternError
from xlayout.ops.op import Op, everything

__all__ = ["rearrange"]

_OPTIONS = ("out", "copy", "comm", "out_sharding")


class Rearrange(Op[Any]):
    """The op `rearrange`: one array or several in, one or several out."""

    def layout(self, shape: Any, pattern: str, /, **sizes: int) -> Layout:
        """The op on a shape, or on a sequence of shapes when the pattern has several inputs."""
        single = all(isinstance(n, int) for n in shape)
        return self._layout(
            (tuple(shape),) if single else tuple(map(tuple, shape)), pattern=pattern, **sizes
        )

    def _args(self, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        return (shapes,)

    def __call__(
        self, x: Any, pattern: str, /, *, out: Any = None, copy: bool | None = True, **sizes: int
    ) -> Any:
        options: dict[str, Any] = {"pattern": pattern, **sizes}
        if isinstance(x, (tuple, list)):
            return self._call(tuple(x), {**options, "out": out, "copy": copy})
        if out is not None or copy is not True:
            options |= {"out": out, "copy": copy}
        return self._call_remembered(x, options)


def _rearrange(shapes: tuple[Shape, ...], /, *, pattern: str, **sizes: int) -> Layout:
    """Split, permute, merge, and take segments apart or put them together, as a pattern says.

    The patterns are einops', plus segments: `+` inside parentheses puts parts one after the other
    along an axis, and binds looser than juxtaposition. Every axis stands on both sides; each
    combination of segments stands exactly once on each side.

        "(h d) m -> m h d"                 split and transpose; give h= or d=
        "(q + k + v) h -> q h, k h, v h"   take segments apart; give all but one size
        "(g q) h, (g k) h -> (g (q + k)) h"   two inputs, woven group by group
        "... a b -> ... b a"               any leading axes; 1 is an axis of size 1

    Args:
        shapes: an array, or a sequence of arrays when the pattern has several inputs.
        pattern: the pattern; names may carry their size, as in `(h=8 d)`.
        out: array(s) to write the result into.
        copy: True (default) fresh memory; None a view where possible; False a view or an error.
        **sizes: sizes of axes by name.

    Returns:
        One array, or a tuple of arrays when the pattern has several outputs.

    Raises:
        PatternError: with a caret under the place that cannot be read or solved.

    >>> import numpy as np
    >>> rearrange(np.arange(6), "(g n) -> (n g)", g=2)
    array([0, 3, 1, 4, 2, 5])
    >>> rearrange(np.arange(6), "(q + k) -> q, k", q=4)
    (array([0, 1, 2, 3]), array([4, 5]))
    """
    clash = [name for name in _OPTIONS if name in sizes]
    if clash:
        raise PatternError(f"{clash[0]}: is an option of rearrange; give the axis another name")
    return Layout.parse(pattern, shapes, **sizes)


rearrange = Rearrange(_rearrange, everything, None)
