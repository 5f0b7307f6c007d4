"""A rank that died, or is elsewhere, does not hang the others: they are told which one it is."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import xlayout as xl
from tests.shard import on_ranks
from tests.shard.pool import Pool
from xlayout.shard import Mesh, Sharding

pytestmark = pytest.mark.distributed

TP = Mesh(4, "tp")
ROWS, COLUMNS = Sharding(TP, ("tp",)), Sharding(TP, (None, "tp"))


@pytest.fixture
def ranks(request: pytest.FixtureRequest) -> Iterator[Pool]:
    pool = Pool(4, timeout=getattr(request, "param", None))
    yield pool
    pool.close()


@pytest.mark.parametrize("what", ["reshard", "gather", "gradient of a gather"])
def test_a_rank_that_was_killed_is_named(ranks: Pool, what: str) -> None:
    ranks(on_ranks.meets, ROWS, COLUMNS)
    said = ranks.survivors(on_ranks.meets_without, "killed", what, ROWS, COLUMNS)
    assert said.keys() == {0, 1, 3}
    for rank, text in said.items():
        others = ", ".join(str(r) for r in (0, 1, 3) if r != rank)
        assert text.startswith(f"rank 2 did not answer, ranks {others} did (rank 2: ")
        assert "It has died, or is not at this exchange; its log says more." in text
        assert "Connection closed by peer" in text or "reset by peer" in text


def test_all_that_were_killed_are_named(ranks: Pool) -> None:
    ranks(on_ranks.meets, ROWS, COLUMNS)
    said = ranks.survivors(on_ranks.meets_without, "two killed meanwhile", "reshard", ROWS, COLUMNS)
    for rank in (0, 1):
        assert said[rank].startswith(f"ranks 2, 3 did not answer, rank {1 - rank} did (rank 2: ")
        assert "; rank 3: " in said[rank]


def test_when_a_rank_was_killed_others_are_not_waited_for_until_the_time_is_over(
    ranks: Pool,
) -> None:
    """Whether rank 3 would come is not known by then, and not said."""
    ranks(on_ranks.meets, ROWS, COLUMNS)
    said = ranks.survivors(
        on_ranks.meets_without, "killed", "reshard without rank 3", ROWS, COLUMNS
    )
    assert said[0].startswith("rank 2 did not answer, rank 1 did (rank 2: ")
    assert said[1].startswith("rank 2 did not answer, rank 0 did (rank 2: ")
    assert said[0].partition("process group, ")[2].startswith("1800 s (")


def test_a_rank_that_was_killed_after_it_sent_something_has_not_answered(ranks: Pool) -> None:
    ranks(on_ranks.meets, ROWS, COLUMNS)
    said = ranks.survivors(on_ranks.hears_first)
    assert said.keys() == {0, 1, 3}
    for rank, text in said.items():
        others = ", ".join(str(r) for r in (0, 1, 3) if r != rank)
        assert text.startswith(f"rank 2 did not answer, ranks {others} did (rank 2: ")


def test_how_long_is_waited_is_up_to_the_group_of_the_mesh(ranks: Pool) -> None:
    assert ranks(on_ranks.meets_in_a_group, 77, "") == ["nothing"] * 4
    for text in ranks.survivors(on_ranks.meets_in_a_group, 77, "killed").values():
        assert text.startswith("rank 2 did not answer, ranks ")
        assert text.endswith("77 s (torch.distributed.init_process_group(timeout=...))")


@pytest.mark.parametrize("ranks", [3.0], indirect=True)
def test_a_rank_that_is_elsewhere_is_named_when_the_time_is_over(ranks: Pool) -> None:
    ranks(on_ranks.meets, ROWS, COLUMNS)
    for rank, text in enumerate(
        ranks(on_ranks.meets_without, "elsewhere", "reshard", ROWS, COLUMNS)
    ):
        if rank != 2:
            assert "rank 2 did not answer, ranks" in text
            assert re.search(r"Timed out waiting \d+ms for recv", text)
            assert "the timeout of its process group, 3 s (torch.distributed.init_proces" in text


def test_ranks_that_are_not_needed_are_not_missed(ranks: Pool) -> None:
    """Rank 2 is gone, and no other rank needs anything from it."""
    swap = xl.Layout.parse("(a b) -> (b a)", (8,), a=2)  # between ranks 0, 1 and 2, 3
    halves = Sharding(Mesh((2, 2), ("pair", "at")), ("at",))
    ranks(on_ranks.meets, halves, halves.without("at"))
    said = ranks.survivors(on_ranks.meets_in_pairs, swap, halves)
    assert said == {0: "fine", 1: "fine", 3: said[3]}
    assert said[3].startswith("rank 2 did not answer (rank 2: ")
