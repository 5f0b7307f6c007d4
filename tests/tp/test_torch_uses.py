"""What torch does with models works for one that several ranks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shard.pool import Pool
from tests.tp import on_ranks_uses

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def two() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def four() -> Iterator[Pool]:
    pool = Pool(4)
    yield pool
    pool.close()


def test_attention_hears_what_the_config_is_told_later(two: Pool) -> None:
    """As `set_attn_implementation` does it; a copy would go on as before."""
    two(on_ranks_uses.told, 2)


@pytest.mark.parametrize("how", ["grad", "vmap", "each", "jvp", "second"])
def test_transforms_of_functions(two: Pool, how: str) -> None:
    two(on_ranks_uses.transformed, 2, how)


def test_layers_under_autocast_make_what_those_of_the_whole_make(two: Pool) -> None:
    assert two(on_ranks_uses.cast, 2) == [["torch.bfloat16"] * 4] * 2


def test_inputs_are_given_by_name(two: Pool) -> None:
    two(on_ranks_uses.named, 2)


def test_parameters_are_themselves(two: Pool) -> None:
    two(on_ranks_uses.read, 2)


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_another_axis_shares_the_batch(four: Pool, kind: str) -> None:
    four(on_ranks_uses.cut_once_more, kind)
