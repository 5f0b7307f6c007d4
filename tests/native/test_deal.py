"""Deal: rows whose parts go to several results, however these lie, whatever lies between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.native.oracle import Buffer, Move, expect, run

pytestmark = pytest.mark.usefixtures("isa", "thresholds")


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
        loops = ((self.rows, self.pitch, self.width + self.apart), (self.width, 1, 1))
        return [
            (0, target + p, (start + self.first + p * self.width, self.to, loops))
            for p in range(self.parts)
        ]

    def buffers(self) -> list[Buffer]:
        """Room for the results, one by one at the next of `shifts`."""
        size, shifts = self.to + self.rows * (self.width + self.apart) + 7, self.shifts
        return [Buffer(size, shift=shifts[p % len(shifts)]) for p in range(self.parts)]


DEALS = {
    "lines": Deal(),
    "one line": Deal(parts=8, width=64),
    "long parts": Deal(rows=40, parts=3, width=4096 - 64),
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


def same(moves: list[Move], room: int, results: list[Buffer], threads: int) -> None:
    """The kernel writes what numpy writes, and nothing outside."""
    x = Buffer(room, shift=len(results) % 3, fill=np.random.default_rng(room))
    wanted = [Buffer(y.bytes.size) for y in results]
    expect(moves, 1, [x], wanted)
    run(moves, 1, [x], results, threads=threads)
    for y, z in zip(results, wanted, strict=True):
        assert (y.bytes == z.bytes).all()
        assert y.intact()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", DEALS)
def test_parts_of_rows(name: str, threads: int) -> None:
    deal = DEALS[name]
    same(deal.moves(), deal.first + deal.rows * deal.pitch, deal.buffers(), threads)


def test_two_deals_and_what_is_none_in_one_plan() -> None:
    deal, other = Deal(rows=500, parts=3), Deal(rows=77, parts=4, width=128)
    half = deal.rows * deal.pitch
    results = [*deal.buffers(), Buffer(1000), *other.buffers()]
    alone: Move = (0, deal.parts, (5, 3, ((900, 1, 1),)))
    moves = [*deal.moves(), alone, *other.moves(target=deal.parts + 1, start=half)]
    same(moves, half + other.rows * other.pitch, results, threads=2)


def test_parts_that_are_no_deal() -> None:
    # as above but for one thing: the order, the rows, the steps of one result, a part
    deal, size = Deal(), 2 * Deal().rows * Deal().width
    a, b, c, d, (_, _, (start, to, (rows, part))) = deal.moves()
    few: Move = (0, 4, (start, to, ((100, *rows[1:]), part)))
    wide: Move = (0, 4, (start, to, ((*rows[:2], 2 * deal.width), part)))
    for moves in ([c, a, d, b], [a, b, c, d, few], [a, b, c, d, wide], [a, c, d]):
        same(moves, deal.rows * deal.pitch, [Buffer(size) for _ in range(5)], threads=2)


def test_several_parts_of_a_row_to_one_result() -> None:
    deal = Deal(parts=4)
    size = deal.rows * deal.width
    moves: list[Move] = [
        (0, 0, (start, p * size, loops)) for p, (_, _, (start, _, loops)) in enumerate(deal.moves())
    ]
    same(moves, deal.rows * deal.pitch, [Buffer(deal.parts * size)], threads=2)
