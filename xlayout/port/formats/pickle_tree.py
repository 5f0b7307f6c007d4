"""Pickles read as data: what they would import and call is only named.

A pickle is a program for a small machine that imports and calls whatever the file says. Our machine
imports nothing and calls nothing: a class or function is a `Name`, a call of one a `Made`, and the
caller examines the resulting tree. So a hostile pickle runs nothing, not even through a mistake in
a list of names, and the libraries of its classes are not needed.
"""

from __future__ import annotations

import reprlib
import struct
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Any

from xlayout.algebra.shapes import a_type
from xlayout.errors import FormatError

__all__ = ["Made", "Name", "Stored", "read_pickle", "show"]


class Name(str):
    """A class or function that a pickle names, as "module.name"."""

    __slots__ = ()


@dataclass(eq=False, repr=False, slots=True)
class Made:
    """What a call would have returned: with `new` an object of a class, otherwise any value.

    Args:
        what: The class or function.
        args: What it would be called with.
        new: Whether the class would make an empty object, which `state` then fills.
        state: What the object would be filled with.
    """

    what: Name
    args: tuple[Any, ...] = ()
    new: bool = False
    state: Any = None

    def __repr__(self) -> str:
        return f"{self.what}(…)"  # it may contain itself, or share parts endlessly


@dataclass(eq=False, repr=False, slots=True)
class Stored:
    """Something stored outside the pickle, by the parts of its key."""

    key: Any


class _RefusedError(Exception):
    """What is wrong, without the file's name."""


def read_pickle(raw: bytes, allowed: Container[str], /, *, where: str) -> Any:
    r"""Return the tree of a pickle that names only what is allowed.

    Args:
        raw: The pickle, of protocol 2 to 5.
        allowed: The names, as "module.name", that it may import.
        where: What to call it in errors.

    Raises:
        FormatError: It names something else, is cut short, or is not as picklers write them.

    >>> read_pickle(b"\x80\x02X\x01\x00\x00\x00aK\x01\x86.", (), where="x")
    ('a', 1)
    >>> read_pickle(b"cos\nsystem\n.", (), where="x")
    Traceback (most recent call last):
    xlayout.errors.FormatError: x: names 'os.system', which has no place in it; nothing was run
    """
    machine = _Machine(raw, allowed)
    try:
        return machine.run()
    except _RefusedError as error:
        raise FormatError(f"{where}: {error}") from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise FormatError(
            f"{where}: byte {machine.position}: {str(error)!r:.80}; wanted a pickle as picklers "
            "write them"
        ) from error


def show(value: Any, /) -> str:
    """Return a short text for a value of a tree, which may be deep, shared or endless.

    >>> show([[[[1]]]])
    '[[[[...]]]]'
    """
    return _REPR.repr(value)


_REPR = reprlib.Repr()
_REPR.maxlevel = 3
_REPR.maxstring = _REPR.maxother = 80


@dataclass(slots=True)
class _Machine:
    """The stack, the memo, and the position in the pickle."""

    raw: bytes
    allowed: Container[str]
    position: int = 0
    stack: list[Any] = field(default_factory=list)
    outer: list[list[Any]] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def run(self) -> Any:
        while (code := self.take(1)) != b".":
            step = _STEPS.get(code)
            if step is None:
                raise _RefusedError(
                    f"byte {self.position - 1}: the instruction {code!r}; wanted one that picklers "
                    "of protocol 2 to 5 write"
                )
            step(self)
        (value,) = self.stack
        if self.position != len(self.raw):
            raise _RefusedError(f"{len(self.raw) - self.position} bytes after its end; wanted none")
        return value

    def take(self, count: int) -> bytes:
        part = self.raw[self.position : self.position + count]
        if len(part) != count:
            raise _RefusedError(f"cut short at byte {len(self.raw)}")
        self.position += count
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def line(self) -> str:
        end = self.raw.find(b"\n", self.position)
        if end < 0:
            raise _RefusedError(f"byte {self.position}: the line does not end; wanted a name")
        return self.take(end + 1 - self.position)[:-1].decode()

    def marked(self) -> list[Any]:
        inner, self.stack = self.stack, self.outer.pop()
        return inner

    def name(self, module: Any, name: Any) -> None:
        found = f"{module}.{name}" if type(module) is type(name) is str else "?"
        if found not in self.allowed:
            raise _RefusedError(f"names {found!r:.200}, which has no place in it; nothing was run")
        self.stack.append(Name(found))


def _skip(count: int) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        m.take(count)

    return step


def _push(get: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.stack.append(get(m))


def _text(size: int) -> Callable[[_Machine], None]:
    return _push(lambda m: m.take(m.number(size)).decode("utf-8", "surrogatepass"))


def _bytes(size: int) -> Callable[[_Machine], None]:
    return _push(lambda m: m.take(m.number(size)))


def _tuple(m: _Machine) -> None:
    items = tuple(m.marked())
    m.stack.append(items)


def _last(count: int) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        if len(m.stack) < count:
            raise IndexError("a tuple of more than there is")
        m.stack[-count:] = [tuple(m.stack[-count:])]

    return step


def _mark(m: _Machine) -> None:
    m.outer.append(m.stack)
    m.stack = []


def _extend(m: _Machine, items: list[Any]) -> None:
    if type(m.stack[-1]) is not list:
        raise TypeError("no list to add to")
    m.stack[-1].extend(items)


def _update(m: _Machine, items: list[Any]) -> None:
    into = m.stack[-1]
    if type(into) is not dict:
        raise TypeError("no dict to add to")
    for key, value in zip(items[::2], items[1::2], strict=True):
        # We look for no other keys, and hashing a deeply nested tuple would crash the process.
        if not isinstance(key, (str, int, Made)):
            raise TypeError(f"a key that is {a_type(key)}")
        into[key] = value


def _pop_pair(m: _Machine) -> list[Any]:
    value, key = m.stack.pop(), m.stack.pop()
    return [key, value]


def _call(m: _Machine, *, new: bool) -> None:
    args, what = m.stack.pop(), m.stack.pop()
    if not isinstance(what, Name) or type(args) is not tuple:
        raise TypeError("a call of what is no name")
    empty = what == "collections.OrderedDict" and not args
    m.stack.append({} if empty else Made(what, args, new))


def _build(m: _Machine) -> None:
    state = m.stack.pop()
    if not isinstance(m.stack[-1], Made):
        raise TypeError("a state for what has none")
    m.stack[-1].state = state


def _stack_global(m: _Machine) -> None:
    name, module = m.stack.pop(), m.stack.pop()
    m.name(module, name)


def _put(number: Callable[[_Machine], int]) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        m.memo[number(m)] = m.stack[-1]

    return step


_STEPS: dict[bytes, Callable[[_Machine], None]] = {
    b"\x80": _skip(1),
    b"\x95": _skip(8),
    b"(": _mark,
    b"N": _push(lambda _: None),
    b"\x88": _push(lambda _: True),
    b"\x89": _push(lambda _: False),
    b"K": _push(lambda m: m.number(1)),
    b"M": _push(lambda m: m.number(2)),
    b"J": _push(lambda m: int.from_bytes(m.take(4), "little", signed=True)),
    # At most 255 bytes: longer integers do not occur, and Python would refuse to print them.
    b"\x8a": _push(lambda m: int.from_bytes(m.take(m.number(1)), "little", signed=True)),
    b"G": _push(lambda m: struct.unpack(">d", m.take(8))[0]),
    b"\x8c": _text(1),
    b"X": _text(4),
    b"\x8d": _text(8),
    b"C": _bytes(1),
    b"B": _bytes(4),
    b"\x8e": _bytes(8),
    b")": _push(lambda _: ()),
    b"]": _push(lambda _: []),
    b"}": _push(lambda _: {}),
    b"t": _tuple,
    b"\x85": _last(1),
    b"\x86": _last(2),
    b"\x87": _last(3),
    b"a": lambda m: _extend(m, [m.stack.pop()]),
    b"e": lambda m: _extend(m, m.marked()),
    b"s": lambda m: _update(m, _pop_pair(m)),
    b"u": lambda m: _update(m, m.marked()),
    b"c": lambda m: m.name(m.line(), m.line()),
    b"\x93": _stack_global,
    b"R": lambda m: _call(m, new=False),
    b"\x81": lambda m: _call(m, new=True),
    b"b": _build,
    b"Q": _push(lambda m: Stored(m.stack.pop())),
    b"\x94": _put(lambda m: len(m.memo)),
    b"q": _put(lambda m: m.number(1)),
    b"r": _put(lambda m: m.number(4)),
    b"h": _push(lambda m: m.memo[m.number(1)]),
    b"j": _push(lambda m: m.memo[m.number(4)]),
}
