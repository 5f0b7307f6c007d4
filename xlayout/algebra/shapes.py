"""Shapes, axes and other arguments: the checks that all entry points share."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from xlayout.errors import AxisError, LayoutError, SizeError

__all__ = [
    "MOST_DIGITS",
    "Shape",
    "a_type",
    "as_shape",
    "as_shapes",
    "axis_of",
    "boolean",
    "bounds",
    "divide",
    "divisors",
    "each_shape",
    "in_short",
    "integer",
    "integers",
    "is_size",
    "one_of",
    "permutation",
    "with_article",
]

Shape = tuple[int, ...]

MOST_DIGITS = 1000
"""The most digits of a number in text: more than any size has, fewer than Python's limit."""


def integer(value: Any, name: str, least: int | None = 0) -> int:
    """`value` as an int, and at least `least` unless that is None.

    Raises:
        TypeError: for a value that is not an integer, or is a bool.
        SizeError: for one below `least`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: {value!r} is {a_type(value)}; wanted an int") from None
    if isinstance(value, bool):
        raise TypeError(f"{name}: {value!r} is a bool; wanted an int")
    if least is not None and number < least:
        raise SizeError(f"{name}: {number}; wanted at least {least}")
    return number


def boolean(value: Any, name: str) -> bool:
    """`value`, which must be True or False itself: the text "no" would count as true.

    Raises:
        TypeError: for anything else.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name}: {value!r:.80}; wanted True or False")
    return value


def as_shape(shape: Any, name: str = "shape") -> Shape:
    """A shape as a tuple of ints; a single int is the size of one axis."""
    return integers((shape,) if is_size(shape) else shape, name)


def integers(values: Any, name: str, least: int | None = 0) -> tuple[int, ...]:
    """A sequence of ints, each at least `least` unless that is None.

    Raises:
        TypeError: for anything else.
        SizeError: for an int below `least`.
    """
    given = _ordered(values, name, "ints")
    try:
        return tuple([integer(n, name, least) for n in given])
    except TypeError:
        raise TypeError(f"{name}: {values!r}; wanted a sequence of ints") from None


def _ordered(values: Any, name: str, of: str) -> tuple[Any, ...]:
    """A sequence as a tuple. A set has no order, and bytes are meant as text."""
    try:
        if type(values) is tuple or not isinstance(values, (Set, Mapping, bytes, str)):
            return tuple(values)  # it may be an iterator
    except TypeError:
        pass
    raise TypeError(f"{name}: {values!r}; wanted a sequence of {of}")


def each_shape(shapes: Any, name: str = "shapes") -> tuple[Shape, ...]:
    """A sequence of shapes as tuples of ints.

    Raises:
        TypeError: for anything else.
    """
    return tuple([as_shape(shape, name) for shape in _ordered(shapes, name, "shapes")])


def as_shapes(given: Any) -> tuple[Shape, ...]:
    """A shape, or a sequence of several, as tuples of ints.

    Raises:
        TypeError: for anything else.
    """
    shape = (given,) if is_size(given) else _ordered(given, "shape", "ints, or several")
    return tuple(map(as_shape, (shape,) if all(map(is_size, shape)) else shape))


def a_type(value: Any) -> str:
    """The type of a value as error messages name it: `a numpy.ndarray`, `an int`."""
    kind = type(value)
    own = kind.__module__.partition(".")[0] in ("builtins", "xlayout")
    return with_article(kind.__qualname__ if own else f"{kind.__module__}.{kind.__qualname__}")


def with_article(name: str) -> str:
    """A name behind the article that it is spoken with: `an int`, but also `a UserDict`."""
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def is_size(n: Any) -> bool:
    """Whether a value is a single integer, of Python or numpy."""
    return hasattr(n, "__index__") and not getattr(n, "shape", ())  # numpy arrays have both


def axis_of(axis: int, ndim: int, name: str = "axis") -> int:
    """A (possibly negative) axis as a position.

    Raises:
        TypeError: for a value that is not an int.
        AxisError: for an axis that an array of `ndim` axes does not have.
    """
    number = integer(axis, name, None)
    if not -ndim <= number < ndim:
        have = f"axes {-ndim} to {ndim - 1}" if ndim else "no axes (it is a scalar)"
        raise AxisError(f"{name}: {number}; the array has {have}")
    return number % ndim


def permutation(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """All axes of an array, each once, in another order."""
    given = _ordered(axes, "axes", "ints")
    order = tuple(axis_of(a, ndim, "axes") for a in given)
    if sorted(order) != list(range(ndim)):
        raise AxisError(f"axes: {given}; wanted each of 0 to {ndim - 1} exactly once")
    return order


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse anything but one of `choices`.

    Raises:
        TypeError: for a value that is not a str.
        LayoutError: for another str, naming the choices.
    """
    known = tuple(choices)
    if not isinstance(value, str) or value not in known:
        error = LayoutError if isinstance(value, str) else TypeError
        raise error(f"{name}: {value!r}; wanted one of {', '.join(map(repr, known))}")


_FAR = 1 << 20  # trial divisors; enough to find all divisors of sizes below 2^40


def divisors(n: int) -> list[int]:
    """The divisors of `n`, smallest first; above 2^40 only those that are found quickly.

    >>> divisors(12), divisors(9), divisors(0)
    ([1, 2, 3, 4, 6, 12], [1, 3, 9], [])
    """
    low = [d for d in range(1, min(math.isqrt(n), _FAR) + 1) if n % d == 0]
    return low + [n // d for d in reversed(low) if d * d != n]


def divide(
    n: int, by: int, what: str, parts: str, works: Callable[[int], bool] | None = None
) -> int:
    """`n // by`, which must leave no remainder.

    Args:
        n: the size.
        by: how many parts to make of it.
        what: what has that size.
        parts: what says how many parts.
        works: whether a number of parts could be had; by default all could.

    Raises:
        SizeError: naming what does not divide, and sizes and numbers of parts that would work.
    """
    if n % by == 0:
        return n // by
    below = n - n % by
    near = f"{below} or {below + by}" if below else str(by)
    may = in_short([*filter(works, divisors(n))])
    raise SizeError(
        f"{what} = {n} does not divide into {parts} = {by}; it would at {near}"
        + (f", or in parts of {may}" if may else "")
    )


def in_short(numbers: Sequence[int]) -> str:
    """Numbers as messages list them; if there are many, the first and the last.

    >>> in_short(range(100))
    '0, 1, 2, 3, 4, 5, ..., 95, 96, 97, 98, 99'
    """
    shown = numbers if len(numbers) <= 12 else [*numbers[:6], "...", *numbers[-5:]]
    return ", ".join(map(str, shown))


def bounds(shapes: Iterable[Shape]) -> list[tuple[int, int]]:
    """(start, end) of each array in the concatenation of all."""
    found, start = [], 0
    for shape in shapes:
        found.append((start, start + math.prod(shape)))
        start += math.prod(shape)
    return found
