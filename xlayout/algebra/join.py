"""Join: where two boxes meet on a shared index, as boxes again.

Composition, equality, restriction and the memory address of an element are all this one question.
It is answered by descent along the largest stride of the shared side. The answer is always exact,
and a single box if the two factorisations have a common refinement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from xlayout.algebra.piece import Loop
from xlayout.errors import CompositionError

__all__ = ["Side", "join", "side"]

Steps = tuple[tuple[int, int, int], ...]
Side = tuple[int, int, Steps]
"""(shared offset, carried offset, ((n, shared stride, carried stride), ...)).
The shared strides are nested and come largest first."""

_MOST = 1 << 20  # steps of one loop at which boxes come close; real layouts need thousands

Meeting = tuple[int, int, tuple[Loop, ...]]
"""(left offset, right offset, ((n, left stride, right stride), ...))"""

_Open = tuple[Side, Side, tuple[Loop, ...], bool]
"""Two boxes to be joined, the loops around them, and whether they are swapped."""


def side(shared: int, carried: int, steps: Steps) -> Side:
    """A box seen from its shared side, in the order `join` needs, without loops of one step."""
    return shared, carried, tuple(sorted((s for s in steps if s[0] != 1), key=lambda s: -s[1]))


def join(a: Side, b: Side) -> Iterator[Meeting]:
    """All `(x, z)` such that `a` carries `x` and `b` carries `z` at the same shared position.

    Depth first with an explicit stack: recursion would reach Python's limit at about 250 loops.
    """
    pending: list[Iterator[_Open]] = [iter([(a, b, (), False)])]
    while pending:
        following = next(pending[-1], None)
        if following is None:
            pending.pop()
            continue
        a, b, loops, swapped = following
        (ay, ax, A), (by, bz, B) = a, b
        # Only what begins first can end before the other begins.
        if ay + _reach(A) < by if ay < by else by + _reach(B) < ay:
            continue
        if not A or not B:
            x, z = (_point(by, a), bz) if A else (ax, _point(ay, b))
            if x is not None and z is not None:
                yield (z, x, loops) if swapped else (x, z, loops)
        elif A[0][1] == B[0][1]:
            pending.append(_inside(_same_radix(a, b), loops, swapped))
        elif A[0][1] < B[0][1]:
            pending.append(_beside(_coarse_and_fine(b, a), loops, not swapped))
        else:
            pending.append(_beside(_coarse_and_fine(a, b), loops, swapped))


def _beside(
    cuts: Iterator[tuple[Side, Side]], loops: tuple[Loop, ...], swapped: bool
) -> Iterator[_Open]:
    """Boxes to be joined inside the same loops."""
    for a, b in cuts:
        yield a, b, loops, swapped


def _inside(
    cuts: Iterator[tuple[Side, Side, Loop]], loops: tuple[Loop, ...], swapped: bool
) -> Iterator[_Open]:
    """Boxes to be joined inside one more loop."""
    for a, b, (n, x, z) in cuts:
        yield a, b, (*loops, (n, z, x) if swapped else (n, x, z)), swapped


def _reach(steps: Steps) -> int:
    # As `piece.span`, which takes nearly twice as long here; plans ask this for each meeting.
    return sum([(n - 1) * y for n, y, _ in steps])


def _point(y: int, box: Side) -> int | None:
    """What a box carries at one position, from its digits, largest stride first."""
    by, bz, steps = box
    for n, stride, carried in steps:
        digit = (y - by) // stride
        if not 0 <= digit < n:
            return None
        by += digit * stride
        bz += digit * carried
    return bz if y == by else None


def _same_radix(a: Side, b: Side) -> Iterator[tuple[Side, Side, Loop]]:
    """Equal outer strides: inner loops are shorter, so outer digits differ by a few shifts only."""
    ay, ax, A = a
    by, bz, B = b
    (n, stride, x), (m, _, z) = A[0], B[0]
    ahead = ay - by
    first = -((_reach(B[1:]) - ahead) // stride)
    last = (ahead + _reach(A[1:])) // stride
    for shift in range(first, last + 1):
        low, high = max(0, -shift), min(n, m - shift)
        if low < high:
            inner_a = (ay + low * stride, ax + low * x, A[1:])
            inner_b = (by + (low + shift) * stride, bz + (low + shift) * z, B[1:])
            yield inner_a, inner_b, (high - low, x, z)


def _coarse_and_fine(a: Side, b: Side) -> Iterator[tuple[Side, Side]]:
    """The outer stride of `a` is larger than the outer stride of `b`."""
    ay, ax, A = a
    by, bz, B = b
    (n, stride, x), (m, fine, z) = A[0], B[0]
    if stride % fine == 0:
        # Common refinement: cut b into a head, whole windows of `stride` aligned with a, and a
        # tail. A step of b belongs to the window of a in which it begins. Where none goes on in
        # the next window, only those matter that begin before what a has in theirs ends.
        ratio = stride // fine
        before, begin = divmod(by - ay, fine)
        head = min(-before % ratio, m)
        apart = begin + _reach(B[1:]) < fine
        most = min(ratio, (_reach(A[1:]) - begin) // fine + 1) if apart else ratio
        whole = max((m - head - most) // ratio + 1, 0)
        tail = min(m - head - whole * ratio, most)
        for start, windows, count in (
            (0, 1, head),
            (head, whole, most),
            (head + whole * ratio, 1, tail),
        ):
            if windows and count > 0:
                cut = ((windows, stride, ratio * z), (count, fine, z), *B[1:])
                yield a, (by + start * fine, bz + start * z, cut)
        return
    if _reach(B) < stride:
        # b lies inside one window of a: add that window as a loop of one step.
        yield a, (by, bz, ((1, stride, 0), *B))
        return
    period = math.lcm(stride, fine)
    per_a, per_b = period // stride, period // fine
    if per_a < n and per_b < m:
        # No common refinement, but the pattern repeats: cut both into whole periods and a rest.
        for part_a in _periods(a, per_a):
            for part_b in _periods(b, per_b):
                yield part_a, part_b
    elif n <= m:
        reach = _reach(A[1:])
        for k in _near(n, stride, ay - by + reach, fine, reach + _reach(B[1:])):
            yield (ay + k * stride, ax + k * x, A[1:]), b
    else:
        reach = _reach(B[1:])
        for k in _near(m, fine, by - ay + reach, stride, reach + _reach(A[1:])):
            yield a, (by + k * fine, bz + k * z, B[1:])


def _near(n: int, step: int, start: int, period: int, width: int) -> Iterator[int]:
    """The k below n where `start + k * step` is at most `width` past a multiple of `period`.

    Raises:
        CompositionError: if there are too many.
    """
    k = found = 0
    while k < n:
        past = (start + k * step) % period
        if past > width:
            ahead = _first(step % period, period, period - past, period - past + width)
            if ahead is None:
                return
            k += ahead
        if k < n:
            found += 1
            if found > _MOST:
                raise CompositionError(
                    f"layout: strides of {step} and {period} have no common measure, and come "
                    f"close more than {_MOST} times; use pieces of fewer steps"
                )
            yield k
        k += 1


def _first(step: int, period: int, low: int, high: int) -> int | None:
    """The least k with `k * step % period` in low..high, 1 <= low, high < period, by Euclid."""
    if step == 0:
        return None
    k = -(-low // step)
    if k * step <= high:
        return k
    turns = _first(period % step, step, -high % step, -low % step)
    return None if turns is None else -(-(low + turns * period) // step)


def _periods(box: Side, count: int) -> Iterator[Side]:
    """A box cut into whole periods of `count` outer steps, as one box, and the rest."""
    y, x, steps = box
    n, stride, carried = steps[0]
    whole, rest = divmod(n, count)
    yield y, x, ((whole, count * stride, count * carried), (count, stride, carried), *steps[1:])
    if rest:
        done = whole * count
        yield y + done * stride, x + done * carried, ((rest, stride, carried), *steps[1:])
