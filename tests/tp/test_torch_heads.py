"""Attention on several ranks counts the heads of its rank, wherever it keeps their number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from tests.shard.pool import Ranks
from tests.tp import on_ranks_heads
from tests.tp.on_ranks_heads import CASES
from xlayout.torch.parallel.heads import set_local_heads
from xlayout.tp.numbers import _HEADS, _KV_HEADS, Numbers, numbers_of

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("one")])
def test_heads_are_counted_where_attention_keeps_their_number(two: Ranks, case: str) -> None:
    """What has weights that are whole on every rank counts as before, and so do flags and sizes."""
    assert two(on_ranks_heads.counted, 2, case) == [""] * 2


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("one", "'self_attention' has heads=2"),
        ("one of a config", "'self_attention' has cfg.n_heads=2"),
        ("one of a submodule", "'self_attention.core' has num_heads=8"),
    ],
)
def test_a_number_that_differs_from_the_config_s_is_refused(
    two: Ranks, case: str, found: str
) -> None:
    pattern = found.split("'")[1]
    assert two(on_ranks_heads.counted, 2, case) == [
        f"model: {found}; the config names 4 heads, between which its layers would be cut. Name it "
        f"in a rule of its own, Rule('{pattern}.*', 'whole')"
    ] * 2  # fmt: skip


def test_dropout_inside_attention_is_refused_too_for_unequal_heads(two: Ranks) -> None:
    (error,) = {*two(on_ranks_heads.counted, 2, "unequal", True)}
    assert error.startswith("model: attn_dropout=0.1 in training, in a Core of whose heads some")


def test_a_column_for_each_head_needs_a_rule(two: Ranks) -> None:
    assert two(on_ranks_heads.counted, 2, "one without a rule") == [
        "model: 'self_attention.relative.weight' has 4 columns, one for each head, and no rule "
        "names it. Give Rule('relative', 'column', 'heads', stored='in_out'), or Rule('relative', "
        "'whole') if its columns are no heads"
    ] * 2  # fmt: skip


@pytest.mark.parametrize("kv_heads", _KV_HEADS)
@pytest.mark.parametrize("heads", _HEADS)
def test_a_config_counts_for_a_rank_under_the_names_that_a_plan_reads(
    heads: str, kv_heads: str
) -> None:
    attention: Any = nn.Module()
    attention.config = SimpleNamespace(**{heads: 8, kv_heads: 4})
    set_local_heads(attention, (8, 4), (4, 2))
    assert numbers_of(attention.config) == Numbers(4, 2)
