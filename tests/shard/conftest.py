"""What the tests in this folder share: four ranks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shard.pool import Pool


@pytest.fixture(scope="module")
def ranks() -> Iterator[Pool]:
    pool = Pool(4)
    yield pool
    pool.close()
