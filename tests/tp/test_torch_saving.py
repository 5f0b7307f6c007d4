"""A model that several ranks share is saved whole, or each rank's part by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shard.pool import Ranks
from tests.tp import on_ranks_saving

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("ranks", [4, (2, 2)])
def test_each_rank_saves_its_part(
    four: Ranks, tmp_path: Path, ranks: int | tuple[int, int]
) -> None:
    """Ranks have different weights under one name; a shared checkpoint would keep one of them."""
    four(on_ranks_saving.each_its_own, ranks, tmp_path)


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_parts_put_together_are_saved_as_the_whole(four: Ranks, tmp_path: Path, name: str) -> None:
    """In gemma two weights are tied, and keys are copied."""
    four(on_ranks_saving.put_together, (2, 2), tmp_path, name)


def test_one_ranks_parts_are_not_saved_as_the_whole(two: Ranks, tmp_path: Path) -> None:
    assert two(on_ranks_saving.of_no_other, 2, tmp_path) == [{
        "save_pretrained: without state_dict=, of a model on several ranks; under the names of the "
        "whole it would write the parts of one. Give what xlayout.tp.merge makes of the state "
        "dicts of all ranks"
    }] * 2  # fmt: skip


@pytest.mark.parametrize("name", ["bloom", "falcon, alibi"])
def test_biases_for_all_heads_are_cut_in_a_pickle_too(two: Ranks, name: str) -> None:
    two(on_ranks_saving.pickled, 2, name)


def test_one_rank_saves_all(two: Ranks, tmp_path: Path) -> None:
    two(on_ranks_saving.alone, tmp_path)


def test_what_is_whole_or_written_elsewhere_is_saved_as_ever(two: Ranks, tmp_path: Path) -> None:
    two(on_ranks_saving.other_ways, 2, tmp_path)
