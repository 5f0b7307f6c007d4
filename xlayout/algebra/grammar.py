"""Grammar: the text of a pattern as a tree whose nodes keep their position in the text.

pattern  = side "->" side              side    = array {"," array}
array    = {factor}                    factor  = name ["=" int] | "1" | "..." | "(" sum ")"
sum      = product {"+" product}       product = {factor}
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from xlayout.algebra.shapes import MOST_DIGITS
from xlayout.errors import PatternError

__all__ = [
    "Dots",
    "Factor",
    "Group",
    "Name",
    "One",
    "Pattern",
    "Product",
    "fail",
    "names",
    "quoted",
    "read",
]


@dataclass(frozen=True, slots=True)
class Name:
    """A named axis, with its size if the text gives it."""

    name: str
    size: int | None
    at: int


@dataclass(frozen=True, slots=True)
class One:
    """An axis of size 1."""

    at: int


@dataclass(frozen=True, slots=True)
class Dots:
    """Any number of axes, the same on both sides."""

    at: int


@dataclass(frozen=True, slots=True)
class Group:
    """One axis made of concatenated segments; a plain product is one segment."""

    summands: tuple[Product, ...]
    at: int


Factor = Name | One | Dots | Group
Product = tuple[Factor, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Both sides of a pattern: per side its arrays, per array its axes."""

    text: str
    inputs: tuple[Product, ...]
    outputs: tuple[Product, ...]

    def wrong(self, at: int, message: str) -> PatternError:
        """An error with a caret at one position in the text."""
        return fail(self.text, at, f"pattern: {message}")

    def position(self, number: int, *, output: bool = False) -> int:
        """Where an array begins: at its first factor, or after the comma if it is empty."""
        array = (self.outputs if output else self.inputs)[number]
        start = self.text.index("->") + 2 if output else 0
        commas = re.compile(",").finditer(self.text, start)
        return array[0].at if array else [start, *(comma.end() for comma in commas)][number]


def fail(text: str, at: int, message: str) -> PatternError:
    """An error that shows the pattern with a caret at one position."""
    return PatternError(f"{message}\n  {text}\n  {' ' * at}^")


def names(product: Product) -> Iterator[Name]:
    """Every named axis below, in order of the text."""
    for factor in product:
        if isinstance(factor, Name):
            yield factor
        elif isinstance(factor, Group):
            for summand in factor.summands:
                yield from names(summand)


def quoted(name: str) -> str:
    """A name as error messages show it; axes of `...` have no name in the text.

    >>> quoted("heads"), quoted("...0")
    ("'heads'", "axis 0 of '...'")
    """
    return f"axis {name[3:]} of '...'" if name.startswith("...") else repr(name)


def read(text: str) -> Pattern:
    """The tree of a pattern.

    Raises:
        TypeError: for a pattern that is not a str.
        PatternError: with a caret under the first place that does not fit the grammar.
    """
    if not isinstance(text, str):
        raise TypeError(f"pattern: {text!r}; wanted a str")
    return _Reader(text).pattern()


def _is_named(product: Product) -> bool:
    """Whether a segment can be found again on the other side."""
    return any(isinstance(factor, Dots) for factor in product) or any(names(product))


def _normalized(token: str) -> str:
    """A name normalised as Python does keyword arguments, which may give its size."""
    if token.isascii():
        return token
    from unicodedata import normalize  # few patterns need it

    return normalize("NFKC", token)


_DEEPEST = 32  # more than any layout needs, and far below Python's recursion limit
_TOKEN = re.compile(r"\s*(?:(->)|(\.\.\.)|([^\W\d]\w*)|([0-9]+)|([()+,=]))")


class _Reader:
    """A recursive-descent parser with one token of lookahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, int]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None or not (found[3] or "_").isidentifier():
                at += len(text[at:]) - len(text[at:].lstrip())
                raise self._fail(
                    f"{text[at]!r} means nothing here; use names, 1, ..., ( ), +, ',' and ->", at
                )
            token = found.group(found.lastindex or 0)
            self.tokens.append((_normalized(token), found.end() - len(token)))
            at = found.end()
        self.tokens.append(("", len(text)))
        self.next = 0

    @property
    def _token(self) -> str:
        return self.tokens[self.next][0]

    @property
    def _at(self) -> int:
        return self.tokens[self.next][1]

    def _fail(self, message: str, at: int | None = None) -> PatternError:
        """An error at the next token, or at another position."""
        return fail(self.text, self._at if at is None else at, f"pattern: {message}")

    def _take(self) -> int:
        self.next += 1
        return self.tokens[self.next - 1][1]

    def pattern(self) -> Pattern:
        """Both sides, with nothing left over."""
        inputs = self._side()
        if self._token != "->":
            what = repr(self._token) if self._token else "the end"
            raise self._fail(f"found {what}, wanted '->' between inputs and outputs")
        self._take()
        outputs = self._side()
        if self._token:
            raise self._fail(f"{self._token!r} after the outputs; one '->' is enough")
        return Pattern(self.text, inputs, outputs)

    def _side(self) -> tuple[Product, ...]:
        arrays = [self._product(depth=0)]
        while self._token == ",":
            self._take()
            arrays.append(self._product(depth=0))
        return tuple(arrays)

    def _product(self, depth: int) -> Product:
        factors: list[Factor] = []
        while True:
            token = self._token
            if token == "(":
                factors.append(self._group(depth))
            elif token == "...":
                factors.append(Dots(self._take()))
            elif token == "1":
                factors.append(One(self._take()))
            elif token.isidentifier():
                factors.append(self._name())
            elif token.isdigit():
                raise self._fail(f"axis {token}; an axis is 1 or a name such as n={token}")
            elif token == "=":
                raise self._fail("'=' gives a size to a name; there is none before it")
            elif token == "+" and depth == 0:
                raise self._fail("'+' only inside parentheses, as in '(q + k)'")
            elif token == ")" and depth == 0:
                raise self._fail("this parenthesis was never opened")
            else:
                return tuple(factors)

    def _group(self, depth: int) -> Group:
        at = self._take()
        if depth == _DEEPEST:
            raise self._fail(f"parentheses inside {_DEEPEST} others; flatten it", at)
        summands = [self._product(depth + 1)]
        while self._token == "+":
            plus = self._take()
            summands.append(self._product(depth + 1))
            if not summands[-2] or not summands[-1]:
                raise self._fail("'+' with nothing on one side; name both segments", plus)
        if self._token != ")":
            raise self._fail("this parenthesis is never closed", at)
        self._take()
        if len(summands) > 1:
            for summand in summands:
                if not _is_named(summand):
                    raise self._fail(
                        "a segment without a name; give it one, as in '(q + one=1)'", summand[0].at
                    )
        return Group(tuple(summands), at)

    def _name(self) -> Name:
        name, size = self._token, None
        at = self._take()
        if self._token == "=":
            self._take()
            if not self._token.isdigit():
                raise self._fail(f"the size of {name!r} must be a number")
            if len(self._token) > MOST_DIGITS:
                wrong = f"the size of {name!r} has {len(self._token)} digits"
                raise self._fail(f"{wrong}; wanted at most {MOST_DIGITS}")
            size = int(self._token)
            self._take()
        return Name(name, size, at)
