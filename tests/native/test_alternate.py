"""Elements of several sources that alternate in one result, and that are dealt to several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xlayout_native
from tests.native.oracle import Buffer, Move, expect, same

pytestmark = pytest.mark.usefixtures("isa", "thresholds")

# (elements of each, ways, bytes of an element): few and many, in one tile and in several.
SIZES = [
    (1, 2, 4), (5, 3, 1), (63, 2, 2), (4001, 2, 1), (9000, 4, 2), (30001, 3, 1), (20000, 2, 8),
    (3000, 5, 4), (2500, 7, 2), (1201, 8, 4), (999, 13, 1), (777, 16, 16), (600, 24, 12),
    (400, 64, 1), (300, 33, 8), (150, 200, 3), (90, 256, 48), (41, 257, 4), (1500, 2, 63),
]  # fmt: skip


def joined(n: int, ways: int, start: int, to: int) -> list[Move]:
    """One move for each source, whose elements begin at `start`."""
    return [(p, 0, (start, to + p, ((n, 1, ways),))) for p in range(ways)]


def dealt(n: int, ways: int, start: int, to: int) -> list[Move]:
    """One move for each result."""
    return [(0, p, (start + p, to, ((n, ways, 1),))) for p in range(ways)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("n", "ways", "itemsize"), SIZES)
def test_elements_of_several_sources(n: int, ways: int, itemsize: int, threads: int) -> None:
    for shift in (0, 5):
        sources = [
            Buffer((n + 3) * itemsize, shift=shift * p % 64, fill=np.random.default_rng(p))
            for p in range(ways)
        ]
        result = Buffer((n * ways + 4) * itemsize, shift=3 * shift)
        same(joined(n, ways, 3, 4), itemsize, sources, [result], threads=threads)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("n", "ways", "itemsize"), SIZES)
def test_elements_dealt_to_several_results(n: int, ways: int, itemsize: int, threads: int) -> None:
    for shift in (0, 5):
        source = Buffer((n * ways + 4) * itemsize, shift=shift, fill=np.random.default_rng(n))
        results = [Buffer((n + 3) * itemsize, shift=shift * p % 64) for p in range(ways)]
        same(dealt(n, ways, 4, 3), itemsize, [source], results, threads=threads)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(2, 9),
    st.one_of(st.integers(1, 200), st.integers(1, 40_000)),
    st.sampled_from((1, 2, 4, 8, 16)),
    st.lists(st.integers(0, 63), min_size=10, max_size=10),
    st.booleans(),
)
def test_any_few(ways: int, n: int, itemsize: int, shifts: list[int], join: bool) -> None:
    """In one tile or in several, with a last one of any size."""
    size = n // itemsize + 1
    whole = Buffer(size * ways * itemsize, shift=shifts[9], fill=np.random.default_rng(n))
    each = [
        Buffer(size * itemsize, shift=by, fill=np.random.default_rng(by)) for by in shifts[:ways]
    ]
    if join:
        same(joined(size, ways, 0, 0), itemsize, each, [whole])
    else:
        same(dealt(size, ways, 0, 0), itemsize, [whole], each)


@pytest.mark.parametrize("ways", [3, 8])
@pytest.mark.parametrize("join", [False, True], ids=["dealt", "joined"])
def test_a_plan_outlives_the_choice_of_kernels(ways: int, join: bool) -> None:
    """Tiles that some kernels make directly are small enough for the stage of the others."""
    n = 70_001
    moves = joined(n, ways, 0, 0) if join else dealt(n, ways, 0, 0)
    whole, each = Buffer(n * ways, fill=np.random.default_rng(0)), [Buffer(n) for _ in range(ways)]
    for k, x in enumerate(each):
        x.bytes[:] = k
    sources, targets = (each, [whole]) if join else ([whole], each)
    wanted = [Buffer(y.bytes.size) for y in targets]
    expect(moves, 1, sources, wanted)
    plan = xlayout_native.prepare(moves, 1, len(sources), len(targets))
    for other in xlayout_native.get_isas():
        xlayout_native.set_isa(other)
        for y in targets:
            y.bytes[:] = 0
        xlayout_native.run(plan, 2, *(b.address for b in (*sources, *targets)))
        assert [y.bytes.tobytes() for y in targets] == [y.bytes.tobytes() for y in wanted]


def test_both_and_what_is_neither_in_one_plan() -> None:
    n = 7000
    moves: list[Move] = [
        *joined(n, 3, 0, 0),
        (0, 1, (5, 3, ((n - 5, 1, 1),))),
        *((3, 2 + k, place) for _, k, place in dealt(n, 4, 0, 0)),
    ]
    sources = [Buffer(8 * n, fill=np.random.default_rng(p)) for p in range(4)]
    same(moves, 2, sources, [Buffer(6 * n), *(Buffer(2 * n, shift=9) for _ in range(5))])


NEARLY = {  # each lacks one condition
    "the order": [joined(900, 3, 0, 0)[p] for p in (1, 0, 2)],
    "one is missing": joined(900, 4, 0, 0)[:3],
    "the number": [*joined(900, 3, 0, 0)[:2], (2, 0, (0, 2, ((899, 1, 3),)))],
    "the result": [(0, 0, (0, 0, ((900, 1, 2),))), (1, 1, (0, 1, ((900, 1, 2),)))],
    "the step of a source": [(p, 0, (0, p, ((900, 1 + p, 2),))) for p in (0, 1)],
    "gaps in the sources": [(p, 0, (0, p, ((900, 2, 2),))) for p in (0, 1)],
    "gaps in the result": [(p, 0, (0, p, ((900, 1, 3),))) for p in (0, 1)],
    "backwards": [(p, 0, (899, p, ((900, -1, 2),))) for p in (0, 1)],
    "the other end": [(p, 0, (0, 1 - p, ((900, 1, 2),))) for p in (0, 1)],
    "the source": [(p, p, (p, 0, ((900, 2, 1),))) for p in (0, 1)],
    "the order of results": [dealt(900, 3, 0, 0)[p] for p in (2, 1, 0)],
    "a result is missing": dealt(900, 4, 0, 0)[1:],
    "gaps in the results": [(0, p, (p, 0, ((900, 2, 2),))) for p in (0, 1)],
}


@pytest.mark.parametrize("name", NEARLY)
def test_what_is_nearly_one(name: str) -> None:
    sources = [Buffer(1 << 14, fill=np.random.default_rng(p)) for p in range(4)]
    same(NEARLY[name], 4, sources, [Buffer(1 << 14, shift=16) for _ in range(4)])
