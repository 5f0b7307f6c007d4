"""Deal: rows whose parts go to several results or come from several sources, wherever those lie."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pytest

from tests.native.oracle import Buffer, Move, same

pytestmark = pytest.mark.usefixtures("isa", "thresholds")


def part(source: int, target: int, start: int, to: int, steps: tuple[int, int, int, int]) -> Move:
    """`rows` of `width` bytes, `pitch` apart in the source and in the result."""
    rows, width, pitch_in, pitch_out = steps
    return source, target, (start, to, ((rows, pitch_in, pitch_out), (width, 1, 1)))


@dataclass(frozen=True)
class Deal:
    """`parts` of `width` bytes of each of `rows`, from `first` on.

    Results begin on `to`, and have `apart` bytes between rows.
    """

    rows: int = 300
    parts: int = 5
    width: int = 192
    gap: int = 0
    first: int = 0
    to: int = 0
    apart: int = 0
    shifts: tuple[int, ...] = (0,)

    @property
    def pitch(self) -> int:
        """Bytes from a row to the next."""
        return self.parts * self.width + self.gap

    def moves(self, *, target: int = 0, start: int = 0) -> list[Move]:
        """One for each part."""
        steps = self.rows, self.width, self.pitch, self.width + self.apart
        starts = [start + self.first + p * self.width for p in range(self.parts)]
        return [part(0, target + p, first, self.to, steps) for p, first in enumerate(starts)]

    def buffers(self) -> list[Buffer]:
        """Room for the results, one by one at the next of `shifts`."""
        size, shifts = self.to + self.rows * (self.width + self.apart) + 7, self.shifts
        return [Buffer(size, shift=shifts[p % len(shifts)]) for p in range(self.parts)]


DEALS = {
    "lines": Deal(),
    "one line": Deal(parts=8, width=64),
    "long parts": Deal(rows=40, parts=3, width=4096 - 64),
    "parts of pages": Deal(rows=20, parts=3, width=3 * 4096),
    "parts of pages and a bit": Deal(rows=20, parts=3, width=12345, first=7, shifts=(16, 0, 5)),
    "the longest that are dealt": Deal(rows=5, parts=2, width=(1 << 16) - 1, gap=9),
    "longer ones": Deal(rows=5, parts=2, width=(1 << 16) + 1, gap=9),
    "many rows": Deal(rows=3000, parts=2),
    "one row": Deal(rows=1, parts=4),
    "more than are dealt at a time": Deal(rows=5, parts=600, width=64),
    "rows that go on": Deal(gap=100),
    "an odd start": Deal(first=3, gap=13),
    "results that begin later": Deal(to=128),
    "results off a line": Deal(to=32),
    "parts off a line": Deal(width=200),
    "results in memory off a line": Deal(shifts=(0, 0, 5)),
    "all of them off a line": Deal(shifts=(16,)),
    "each otherwise off a line": Deal(rows=2000, width=256, shifts=(16, 0, 63, 1)),
    "rows apart in the results": Deal(apart=64),
    "rows apart in the results, off a line": Deal(parts=3, width=1088, apart=64, shifts=(16,)),
    "one line, off a line": Deal(parts=8, width=64, shifts=(16,)),
    "one row, off a line": Deal(rows=1, parts=4, shifts=(16,)),
    "most that are dealt, off a line": Deal(rows=9, parts=257, width=64, shifts=(16, 3)),
}


def dealt(moves: list[Move], room: int, results: list[Buffer], threads: int = 2) -> None:
    """The moves from one source of `room` bytes."""
    x = Buffer(room, shift=len(results) % 3, fill=np.random.default_rng(room))
    same(moves, 1, [x], results, threads=threads)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", DEALS)
def test_parts_of_rows(name: str, threads: int) -> None:
    deal = DEALS[name]
    dealt(deal.moves(), deal.first + deal.rows * deal.pitch, deal.buffers(), threads)


def test_two_deals_and_what_is_none_in_one_plan() -> None:
    deal, other = Deal(rows=500, parts=3), Deal(rows=77, parts=4, width=128)
    half = deal.rows * deal.pitch
    results = [*deal.buffers(), Buffer(1000), *other.buffers()]
    alone: Move = (0, deal.parts, (5, 3, ((900, 1, 1),)))
    moves = [*deal.moves(), alone, *other.moves(target=deal.parts + 1, start=half)]
    dealt(moves, half + other.rows * other.pitch, results)


NO_DEALS = {  # each lacks one condition
    "the order": [part(0, p, 192 * p, 0, (300, 192, 768, 192)) for p in (2, 0, 3, 1)],
    "a part is missing": [part(0, p, 192 * p, 0, (300, 192, 768, 192)) for p in (0, 2, 3)],
    "the rows": [part(0, p, 192 * p, 0, (300 - p, 192, 768, 192)) for p in range(4)],
    "the step of the source": [part(0, p, 192 * p, 0, (300, 192, 768 - p, 192)) for p in (0, 1)],
    "the source": [part(p, p, 192 * p, 0, (300, 192, 768, 192)) for p in (0, 1)],
    "the width": [part(0, 0, 0, 0, (300, 63, 768, 256)), part(0, 1, 63, 0, (300, 256, 768, 256))],
}
NO_JOINS = {
    "the order": [part(p, 0, 0, 192 * p, (300, 192, 192, 768)) for p in (2, 0, 3, 1)],
    "a part is missing": [part(p, 0, 0, 192 * p, (300, 192, 192, 768)) for p in (0, 2, 3)],
    "the rows": [part(p, 0, 0, 192 * p, (300 - p, 192, 192, 768)) for p in range(4)],
    "the step of the result": [part(p, 0, 0, 192 * p, (300, 192, 192, 768 << p)) for p in (0, 1)],
    "the result": [part(p, p, 0, 192 * p, (300, 192, 192, 384)) for p in (0, 1)],
    "the width": [part(0, 0, 0, 0, (300, 63, 63, 319)), part(1, 0, 0, 63, (300, 256, 256, 319))],
}


@pytest.mark.parametrize("shift", [0, 16])
@pytest.mark.parametrize("moves", [*NO_DEALS.values(), *NO_JOINS.values()])
def test_what_is_nearly_one(moves: list[Move], shift: int) -> None:
    room = 1 << 19
    sources = [Buffer(room, fill=np.random.default_rng(p)) for p in range(4)]
    same(moves, 1, sources, [Buffer(room, shift=shift) for _ in range(4)])


def test_several_parts_of_a_row_to_one_result() -> None:
    deal = Deal(parts=4)
    size = deal.rows * deal.width
    moves: list[Move] = [
        (0, 0, (start, p * size, loops)) for p, (_, _, (start, _, loops)) in enumerate(deal.moves())
    ]
    dealt(moves, deal.rows * deal.pitch, [Buffer(deal.parts * size)])


@dataclass(frozen=True)
class Join:
    """A row is `parts` of `width` bytes, one from each source, and a gap of `gap` bytes."""

    rows: int = 300
    parts: int = 5
    width: int = 192
    gap: int = 0
    to: int = 0
    shift: int = 16

    def moves(self) -> list[Move]:
        """One for each part; the sources have rows of different lengths."""
        width, pitch = self.width, self.pitch
        return [
            part(p, 0, p, self.to + p * width, (self.rows, width, width + 8 * p, pitch))
            for p in range(self.parts)
        ]

    @property
    def pitch(self) -> int:
        """Bytes from a row to the next."""
        return self.parts * self.width + self.gap

    @property
    def size(self) -> int:
        """Bytes of the result."""
        return self.to + self.rows * self.pitch


JOINS = {
    "off a line": Join(),
    "on a line": Join(shift=0),
    "at an odd address": Join(shift=63),
    "one line each": Join(parts=8, width=64),
    "rows apart": Join(gap=64),
    "rows apart, off a line": Join(gap=100),
    "long parts": Join(rows=40, parts=3, width=2048),
    "parts of a page": Join(rows=20, parts=3, width=4096),
    "parts of pages and a bit": Join(rows=20, parts=3, width=12345),
    "the longest that are blocks": Join(rows=5, parts=2, width=(1 << 16) - 1),
    "short parts": Join(width=40),
    "two of them": Join(parts=2, width=64, rows=3000),
    "one row": Join(rows=1),
    "a result that begins later": Join(to=128),
    "more than go at a time": Join(rows=5, parts=600, width=64),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", JOINS)
def test_parts_of_several_sources(name: str, threads: int) -> None:
    join = JOINS[name]
    sources = [
        Buffer(p + join.rows * (join.width + 8 * p), fill=np.random.default_rng(p))
        for p in range(join.parts)
    ]
    same(join.moves(), 1, sources, [Buffer(join.size, shift=join.shift)], threads=threads)


def test_a_join_and_a_deal_in_one_plan() -> None:
    join, deal = Join(), Deal(parts=3)
    sources = [
        *(Buffer(400 * 300, fill=np.random.default_rng(p)) for p in range(join.parts)),
        Buffer(deal.rows * deal.pitch, fill=np.random.default_rng(9)),
    ]
    moves = [*join.moves(), *((join.parts, 1 + t, copy) for _, t, copy in deal.moves())]
    same(moves, 1, sources, [Buffer(join.size, shift=16) for _ in range(4)])


UNLIKE = {
    "queries, keys and values": (512, 128, 128),
    "of odd heads": (1000, 250, 250),
    "alike, but not the steps of their rows": (192, 192, 192),
    "a byte less for the last": (731, 731, 730),
    "short to long": (64, 65, 300, 5000),
    "long to short": (5000, 4096, 300, 64),
    "pages among them": (200, 3 * 4096, 64),
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shifts", [(0,), (16, 0, 63)])
@pytest.mark.parametrize("name", UNLIKE)
def test_parts_of_unlike_widths(name: str, shifts: tuple[int, ...], threads: int) -> None:
    widths, rows = UNLIKE[name], 150
    starts, whole = list(accumulate(widths, initial=0)), sum(widths) + 24
    own = [n + 8 * p for p, n in enumerate(widths)]  # what the rows of each part are apart
    deals, joins = [], []
    for p, (at, n, step) in enumerate(zip(starts, widths, own, strict=False)):
        deals.append(part(0, p, at, 0, (rows, n, whole, step)))
        joins.append(part(p, 0, 0, at, (rows, n, step, whole)))
    sources = [Buffer(rows * step, fill=np.random.default_rng(step)) for step in (*own, whole)]
    results = [
        Buffer(rows * step, shift=shifts[p % len(shifts)]) for p, step in enumerate((*own, whole))
    ]
    same(deals, 1, sources[-1:], results[:-1], threads=threads)
    same(joins, 1, sources[:-1], results[-1:], threads=threads)
