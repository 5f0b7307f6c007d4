"""Pools of ranks that have enough time to import transformers when they are first asked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.shard.pool import Pool, Ranks


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    pool = Pool(2)
    yield partial(pool, timeout=300)
    pool.close()


@pytest.fixture(scope="module")
def four() -> Iterator[Ranks]:
    pool = Pool(4)
    yield partial(pool, timeout=300)
    pool.close()
