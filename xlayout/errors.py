"""The family of errors, drawn as a tree.

    ValueError
    └── LayoutError            an invalid value; all others are subclasses
        ├── AxisError          an axis that the array does not have
        ├── SizeError          a size that does not divide, does not add up, or does not match
        ├── PatternError       a pattern that cannot be read or solved; a caret shows where
        ├── InverseError       a layout that has no inverse (it repeats elements)
        ├── CompositionError   two layouts whose sizes differ, or that compose to too many pieces
        ├── ShapeError         an array, or an `out=`, that does not fit the layout
        ├── ShardingError      a sharding that cannot be expressed, or needs communication
        ├── FormatError        a checkpoint file that is broken or hostile
        └── PortError          a port that would lose, invent or overwrite something

Wrong types are `TypeError`; memory that cannot be shared is `BufferError`. Backends do not import
this file: what they detect themselves, such as an array that was deleted, is a `ValueError`. Every
message names the argument, the value it had, and what would work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = [
    "AxisError",
    "CompositionError",
    "FormatError",
    "InverseError",
    "LayoutError",
    "PatternError",
    "PortError",
    "ShapeError",
    "ShardingError",
    "SizeError",
]


class LayoutError(ValueError):
    """An invalid value; the base class of all other errors here."""


class AxisError(LayoutError):
    """An axis that the array does not have, or that is named twice."""


class SizeError(LayoutError):
    """A size that does not divide, does not add up, or does not match another."""


class PatternError(LayoutError):
    """A pattern that cannot be read or solved; the message shows it with a caret."""


class InverseError(LayoutError):
    """A layout without an inverse: it repeats elements."""


class CompositionError(LayoutError):
    """Two layouts whose sizes differ where they meet, or that compose to too many pieces."""


class ShapeError(LayoutError):
    """An array, or an `out=`, whose shape or dtype does not fit the layout."""


class ShardingError(LayoutError):
    """A sharding that a framework cannot express, or that would need communication."""


class FormatError(LayoutError):
    """A checkpoint file that is truncated, inconsistent or hostile."""


class PortError(LayoutError):
    """A port that would lose, invent or overwrite something."""


@contextmanager
def about(argument: str, *kinds: type[Exception]) -> Iterator[None]:
    """Let errors of these kinds begin with the argument that they are about.

    >>> with about("n", ValueError):
    ...     int("six")
    Traceback (most recent call last):
    ...
    ValueError: n: invalid literal for int() with base 10: 'six'
    """
    try:
        yield
    except kinds as error:
        raise type(error)(f"{argument}: {error}") from error
