"""Strided: copies between strided buffers as a plan, where the kernel is the faster way.

The rule is from measurements of the frameworks' own copies and this kernel side by side, one thread
and two, 16 KB to 64 MB (docs/guide/speed.md tells what comes of it):

- From 32 KB on, the kernel. Runs shorter than a line (zip, unzip, rope on activations, transposes)
  it copies up to 90 times faster. Longer ones are memcpys to both, and there it wins by doing all
  pieces in one call, and beyond the caches by streaming stores and huge pages. Below, a framework's
  copy has less to set up.
- Long runs up to 16 MB are the framework's where its threads are awake and ours are not: waking
  one takes as long as a copy of 4 MB by one thread.

Without vectors (`XLAYOUT_ISA=plain`, and processors neither x86-64 nor ARM's) the kernel is as fast
as torch's copy or up to three times faster, but for unzips: of 1 and 2 bytes it takes 1 to 1.5
times torch's time, and up to 2.5 times numpy's. Those are the framework's below 16 MB; from there
on a fresh result gains more by huge pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import xlayout_native as native
from xlayout_native.switch import wanted

if TYPE_CHECKING:
    from xlayout_native._copy import Plan

__all__ = [
    "FEW",
    "LARGE",
    "LINE",
    "MOST_WAYS",
    "ONE_CALL",
    "PIECE",
    "SMALL",
    "WIDEST",
    "ZEROS",
    "Loops",
    "Moves",
    "Plans",
    "are_many",
    "dense_strides",
    "has_plan",
    "keeps_order",
    "one_move",
    "plan_to_copy",
    "plan_to_write",
    "plan_where_faster",
    "prepared",
    "run_of",
]

Loops = tuple[tuple[int, int, int], ...]
"""((n, in stride, out stride), ...), counted in elements."""

Moves = tuple[tuple[int, int, tuple[int, int, Loops]], ...]
"""(input, output, (from, to, loops)), likewise."""

SMALL = 1 << 15
"""Bytes from which one copy of the kernel's may stand for one of a framework's."""

FEW = SMALL // 16
"""Elements that fill no more than that in any dtype: the kernel is not asked to copy so few."""

LARGE = 1 << 24
"""Bytes from which every copy is the kernel's, and a fresh result should be on huge pages."""

PIECE = 1 << 22
"""The same for one of several fresh results that are as large together."""

ONE_CALL = 1 << 18
"""Bytes up to which a row-major copy in one call beats a framework's few calls."""

LINE = 64
"""Bytes of a cache line."""

WIDEST = 1 << 20
"""Bytes of the widest element that the kernel copies."""

MOST_LOOPS = 15
"""Loops of a move that the kernel can make."""

MOST_MOVES = 256
"""Moves that one call in a program carries along."""

MOST_WAYS = 8
"""The most ways from which a zip weaves, or into which an unzip deals."""

ZEROS = 4096
"""Elements of a row of zeros: in moves, one more input than there are stands for it."""


def plan_where_faster(
    moves: Moves, itemsize: int, inputs: int, outputs: int, rivals: bool = False
) -> Plan | None:
    """The plan of some moves between so many arrays, or None where the framework should copy.

    `rivals`: the framework would copy by threads that are awake, while the kernel's own are not.

    >>> plan_where_faster(one_move((2, 2), (1, 2)), 4, 1, 1) is None  # too small
    True
    """
    return _faster(moves, itemsize, inputs, outputs, rivals) if wanted() else None


def _faster(moves: Moves, itemsize: int, inputs: int, outputs: int, rivals: bool) -> Plan | None:
    if not native.available:
        return None
    vectors = native.get_isa() != "plain"
    return _plan_where_faster(moves, itemsize, inputs, outputs, rivals, vectors)


@lru_cache(4096)
def _plan_where_faster(
    moves: Moves, itemsize: int, inputs: int, outputs: int, rivals: bool, vectors: bool
) -> Plan | None:
    size, faster = 0, False
    for _, _, (_, _, loops) in moves:
        size += itemsize * math.prod(n for n, _, _ in loops)
        short = run_of(loops) * itemsize < LINE
        faster = faster or ((vectors or not _deals(loops)) if short else not rivals)
    if size < SMALL or not (faster or size >= LARGE):
        return None
    return prepared(moves, itemsize, inputs, outputs)


def plan_to_copy(
    shape: Sequence[int], strides: Sequence[int], itemsize: int, rivals: bool = False
) -> Plan | None:
    """The same for a strided array copied into row-major memory; strides in elements.

    It is looked up faster than by its one move.

    >>> plan_to_copy((2, 2), (1, 2), 4) is None  # too small
    True
    """
    if not (native.available and wanted()):
        return None
    return _plan_to_copy(shape, strides, itemsize, rivals, native.get_isa() != "plain")


@lru_cache(4096)
def _plan_to_copy(
    shape: Sequence[int], strides: Sequence[int], itemsize: int, rivals: bool, vectors: bool
) -> Plan | None:
    return _plan_where_faster(one_move(shape, strides), itemsize, 1, 1, rivals, vectors)


def prepared(moves: Moves, itemsize: int, inputs: int, outputs: int) -> Plan | None:
    """The plan of some moves, whether or not it is faster; None if the kernel cannot make them.

    >>> prepared(((0, 0, (0, 0, ((2, 1, 1),) * (MOST_LOOPS + 1))),), 4, 1, 1) is None
    True
    >>> prepared(one_move((2, 2), (1, 2)), WIDEST + 1, 1, 1) is None
    True
    >>> prepared(one_move((1 << 31, 1 << 31), (0, 0)), 4, 1, 1) is None
    True
    """
    if itemsize > WIDEST or not has_plan(moves):
        return None
    try:
        return native.prepare(moves, itemsize, inputs, outputs)
    except OverflowError:  # more than fits into memory, which the framework is to say
        return None


def has_plan(moves: Moves) -> bool:
    """Whether the kernel is there, and can make these moves.

    >>> has_plan(((0, 0, (0, 0, ((2, 1, 1),) * (MOST_LOOPS + 1))),))
    False
    """
    return native.available and all(len(loops) <= MOST_LOOPS for _, _, (_, _, loops) in moves)


class Plans(dict[Any, Any]):
    """The plans of small moves, by what tells an element's width; None where there is none.

    Each is prepared when it is first asked for: a plan takes a kilobyte for each move, programs of
    many shapes keep the plans of all, and most have arrays of one or two dtypes.

    Args:
        moves: the copies.
        inputs: how many arrays are read.
        shapes: those of the results.
        width: what tells it -> bytes; None where there is to be no plan.

    Attributes:
        widest: bytes of the widest element for which there may be one; 0 if there is none at all.
        whole: whether the moves write every element of the results.
    """

    def __init__(
        self,
        moves: Moves,
        inputs: int,
        shapes: Sequence[Sequence[int]],
        width: Callable[[Any], int | None],
    ) -> None:
        self._told = moves, inputs, len(shapes)
        self._width = width
        size = sum(map(math.prod, shapes))
        self.widest = ONE_CALL // size if has_plan(moves) else 0
        written = [math.prod([n for n, _, _ in loops]) for _, _, (_, _, loops) in moves]
        self.whole = sum(written) == size

    def __missing__(self, key: Any) -> Plan | None:
        moves, inputs, outputs = self._told
        width = self._width(key)
        if width is None or width > self.widest:
            self[key] = None
            return None
        plan = self[key] = native.prepare(moves, width, inputs, outputs)
        return plan


def plan_to_write(
    moves: Moves, itemsize: int, inputs: int, shapes: Sequence[Sequence[int]], rivals: bool = False
) -> Plan | None:
    """The plan of a write into row-major results of these shapes; None where frameworks are faster.

    Whoever keeps this asks `wanted` before each write. `rivals` as in `plan_where_faster`.
    """
    if itemsize * sum(map(math.prod, shapes)) <= ONE_CALL:
        return prepared(moves, itemsize, inputs, len(shapes))
    return _faster(moves, itemsize, inputs, len(shapes), rivals)


def dense_strides(
    shape: Sequence[int], major_to_minor: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The strides of an array without gaps, in elements; row-major where no order is told.

    >>> dense_strides((2, 3, 4)), dense_strides((2, 3, 4), (2, 0, 1))
    ((12, 4, 1), (3, 1, 6))
    """
    strides, step = [1] * len(shape), 1
    for axis in reversed(range(len(shape)) if major_to_minor is None else major_to_minor):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def one_move(shape: Sequence[int], strides: Sequence[int]) -> Moves:
    """A strided array copied into row-major memory.

    >>> one_move((2, 3), (1, 2))
    ((0, 0, (0, 0, ((2, 1, 3), (3, 2, 1)))),)
    """
    loops, step = [], 1
    for n, x in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:  # of a single element the stride leads nowhere, and may be any number
            loops.append((n, x, step))
        step *= n
    return ((0, 0, (0, 0, tuple(reversed(loops)))),)


def are_many(moves: Moves) -> bool:
    """Whether moves are too many for one call in a program to carry along.

    >>> are_many(one_move((8, 64), (64, 1))), are_many(one_move((8, 64), (64, 1)) * 257)
    (False, True)
    """
    most = max((len(loops) for _, _, (_, _, loops) in moves), default=0)
    return len(moves) > MOST_MOVES or most > MOST_LOOPS


def _deals(loops: Loops) -> bool:
    """Whether neighbours in the output are a few elements apart in the input, as in an unzip."""
    return any(z == 1 and 2 <= x <= MOST_WAYS for n, x, z in loops if n > 1)


def keeps_order(loops: Loops) -> bool:
    """Whether elements follow one another in the output as they do in the input.

    >>> keeps_order(((2, 6, 3), (3, 1, 1))), keeps_order(((2, 1, 3), (3, 2, 1)))
    (True, False)
    """
    steps = [x for n, x, _ in sorted(loops, key=lambda loop: loop[2]) if n > 1]
    return steps == sorted(steps)


def run_of(loops: Loops) -> int:
    """Elements that are contiguous on both sides.

    >>> run_of(((2, 6, 3), (3, 1, 1)))
    3
    """
    run = 1
    for n, x, z in sorted(loops, key=lambda loop: loop[2]):
        if n > 1 and (x, z) != (run, run):
            break
        run *= n
    return run
