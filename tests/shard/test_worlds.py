"""Process groups that are destroyed, and made anew, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shard import on_ranks_worlds
from tests.shard.pool import Pool

pytestmark = pytest.mark.distributed


def test_a_group_of_some_ranks_is_made_anew_in_a_new_world(tmp_path: Path) -> None:
    """It does not outlive its own."""
    pool = Pool(3)
    try:
        answers = pool(on_ranks_worlds.in_two_worlds, str(tmp_path / "store"))
    finally:
        pool.close()
    there = ([[0.0, 1.0, 2.0, 3.0]] * 2, 1)
    assert answers == [there, ([], 0), there]
