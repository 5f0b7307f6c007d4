"""An axis is cut between its heads, and queries stay with the keys and values that they use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlayout.errors import ShardingError, SizeError
from xlayout.shard import Split
from xlayout.tp.features import heads_on, split_of
from xlayout.tp.numbers import Numbers, numbers_of

RECORDED = [
    case
    for case in json.loads(Path(__file__).with_name("shard_size.json").read_text("utf-8"))["cases"]
    if case["id"].startswith("shard/")
]

BETTER: dict[str, list[int]] = {
    "shard/05": [96] * 4,  # the original takes "model.lm_head" for attention, and "lm_head" not
    "shard/14": [4] * 4,  # two ranks of the original idle; here they have copies
}
REFUSED = {
    "shard/15": ("groups", "cannot be shared by 2 ranks"),  # a rank of the original idles
    "shard/16": ("kv_heads", "4672 features do not divide into 71"),  # it cuts through a head
}


def sizes(split: Split, n: int, parts: int) -> list[int]:
    return [sum(map(len, split.runs(n, (parts,), (k,)))) for k in range(parts)]


def terms(name: str | None) -> tuple[str, ...]:
    mlp = name is not None and any(word in name for word in ("mlp", "w1", "lm_head"))
    return ("plain",) if mlp else ("kv_heads",)


@pytest.mark.parametrize("case", RECORDED, ids=lambda c: c["id"])
def test_sizes_are_as_recorded(case: dict[str, Any]) -> None:
    p = case["params"]
    total, parts, kv = p["total"], p["mp_size"], p.get("num_kv_heads")
    numbers = Numbers(kv and kv * parts, kv)
    if case["id"] in REFUSED:
        unit, text = REFUSED[case["id"]]
        with pytest.raises(SizeError, match=text):
            split_of((unit,), total, parts, numbers)
        return
    made_of = terms(p["name"]) if kv else ("plain",)
    split = split_of(made_of, total, parts, numbers, grain=p.get("tp_grain_size", 1))
    assert sizes(split, total, parts) == BETTER.get(case["id"], case["expected"])


@st.composite
def shared(draw: st.DrawFn) -> tuple[Numbers, int]:
    """Heads, and a number of ranks that can share them."""
    kv = draw(st.integers(1, 8))
    heads = kv * draw(st.integers(1, 8))
    copied = [parts for parts in range(kv, heads + 1, kv) if heads % parts == 0]
    return Numbers(heads, kv), draw(st.integers(1, kv) | st.sampled_from(copied))


def held(split: Split, n: int, parts: int, rank: int) -> list[int]:
    return [i for run in split.runs(n, (parts,), (rank,)) for i in run]


@given(shared(), st.integers(1, 4), st.booleans())
def test_a_rank_has_the_key_and_value_of_each_of_its_queries(
    of: tuple[Numbers, int], size: int, fused: bool
) -> None:
    (numbers, parts), (heads, kv) = of, (of[0].heads or 0, of[0].kv_heads or 0)
    made_of = ("heads", "kv_heads", "kv_heads") if fused else ("heads",)
    counts = [heads, kv, kv][: len(made_of)]
    total = size * sum(counts)
    split = split_of(made_of, total, parts, numbers)
    alone = split_of(("kv_heads",), size * kv, parts, numbers)
    queries: list[int] = []
    for rank in range(parts):
        own = held(split, total, parts, rank)
        q = [i // size for i in own if i < heads * size]
        assert q == [h for h in q[::size] for _ in range(size)]  # no head is cut
        k = {i // size - heads for i in own if heads * size <= i < (heads + kv) * size}
        lone = {i // size for i in held(alone, size * kv, parts, rank)}
        assert {h // (heads // kv) for h in q} == lone
        if fused:
            assert k == lone
            assert k == {i // size - heads - kv for i in own if i >= (heads + kv) * size}
        assert heads_on(rank, parts, numbers) == Numbers(len(q) // size or None, len(lone) or None)
        queries += q
    assert sorted(queries) == [h for h in range(heads) for _ in range(size)]  # none is held twice


@given(st.integers(1, 500), st.integers(1, 9), st.integers(1, 64), st.integers(1, 3))
def test_plain_features_are_cut_in_grains_and_none_is_lost(
    n: int, parts: int, grain: int, segments: int
) -> None:
    split = split_of(("plain",) * segments, n * segments, parts, Numbers(), grain=grain)
    every = [held(split, n * segments, parts, rank) for rank in range(parts)]
    assert sorted(i for own in every for i in own) == list(range(n * segments))
    if n >= grain:
        for own in every[:-1]:
            assert len(own) % (grain * segments) == 0
    else:
        lengths = {len(own) for own in every}
        assert max(lengths) - min(lengths) in (0, segments)


def test_a_group_is_its_queries_with_their_key_and_value() -> None:
    split = split_of(("groups",), 3 * (2 + 1 + 1) * 5, 2, Numbers(6, 3))
    assert [held(split, 60, 2, rank) for rank in range(2)] == [[*range(40)], [*range(40, 60)]]


def test_heads_that_ranks_cannot_share_are_not_counted() -> None:
    with pytest.raises(SizeError, match=r"12 heads with 4 for keys .* cannot be shared by 8"):
        heads_on(0, 8, Numbers(12, 4))


@pytest.mark.parametrize(
    ("made_of", "n", "parts", "numbers", "kind", "text"),
    [
        (("heads",), 8, 2, Numbers(), ShardingError, "config: names no heads, and the rule"),
        (("heads",), 8, 2, Numbers(None, 2), ShardingError, "config: names no heads, and the rule"),
        (("heads",), 10, 2, Numbers(4, 2), SizeError, "10 features do not divide into 4 heads: 4"),
        (("heads", "kv_heads", "kv_heads"), 10, 2, Numbers(4, 2), SizeError,
         r"10 features do not divide into 4 heads \+ 2 kv_heads \+ 2 kv_heads: 8 equal parts"),
        (("plain", "plain"), 9, 2, Numbers(), SizeError, r"do not divide into plain \+ plain: 2"),
        (("heads",), 24, 8, Numbers(12, 4), SizeError,
         "12 heads with 4 for keys and values cannot be shared by 8 ranks. Numbers of ranks that "
         "can: 1 to 4, 12"),
        (("heads",), 15, 2, Numbers(5, 1), SizeError, "Numbers of ranks that can: 1, 5$"),
        (("heads",), 24, 5, Numbers(12, 4), SizeError, "cannot be shared by 5 ranks"),
        (("heads",), 24, 6, Numbers(12, 4), SizeError, "cannot be shared by 6 ranks"),
        (("groups",), 24, 12, Numbers(12, 4), SizeError,
         "in groups that cannot be copied without their queries cannot be shared by 12 ranks. "
         "Numbers of ranks that can: 1 to 4$"),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_is_refused_with_what_can(
    made_of: tuple[str, ...], n: int, parts: int, numbers: Numbers, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        split_of(made_of, n, parts, numbers)


@pytest.mark.parametrize(
    ("config", "numbers"),
    [
        ({"num_attention_heads": 8}, Numbers(8, 8)),
        ({"num_attention_heads": 8, "num_key_value_heads": 2}, Numbers(8, 2)),
        ({"n_head": 8, "num_kv_heads": None}, Numbers(8, 8)),
        ({"n_heads": 8, "n_kv_heads": 2}, Numbers(8, 2)),
        ({"n_heads": 8, "kv_n_heads": 2}, Numbers(8, 2)),
        ({"n_head": 8, "n_head_kv": 2}, Numbers(8, 2)),
        ({"num_heads": 8}, Numbers(8, 8)),
        ({"attention_heads": 8}, Numbers(8, 8)),
        ({"num_attention_heads": 71, "num_kv_heads": 71, "multi_query": True}, Numbers(71, 1)),
        ({"num_attention_heads": 8, "num_kv_heads": 2, "multi_query": True,
          "new_decoder_architecture": True}, Numbers(8, 2)),
        ({"num_attention_heads": 8, "multi_query_attention": False, "multi_query_group_num": 2},
         Numbers(8, 8)),
        ({"num_attention_heads": 8, "multi_query_attention": True, "multi_query_group_num": 2},
         Numbers(8, 2)),
        ({"text_config": {"num_attention_heads": 4}, "num_attention_heads": 16}, Numbers(4, 4)),
        ({}, Numbers()),
        (None, Numbers()),
    ],
)  # fmt: skip
def test_heads_are_found_however_they_are_spelled(config: Any, numbers: Numbers) -> None:
    assert numbers_of(config) == numbers


def test_numbers_are_ints_of_python() -> None:
    made = numbers_of({"num_attention_heads": np.int32(8), "num_key_value_heads": np.int64(2)})
    assert repr(made) == "Numbers(heads=8, kv_heads=2)"


def test_an_axis_of_nothing_is_cut_into_nothing() -> None:
    for made_of in (("heads",), ("heads", "kv_heads", "kv_heads")):
        assert sizes(split_of(made_of, 0, 4, Numbers(4, 2)), 0, 4) == [0] * 4


def test_a_config_with_other_heads_in_every_layer_is_refused() -> None:
    class Config:
        @property
        def num_attention_heads(self) -> int:
            raise RuntimeError("ask the layers")

    with pytest.raises(ShardingError, match="config: has no one num_attention_heads for all laye"):
        numbers_of(Config())


def test_heads_in_unequal_groups_are_refused() -> None:
    with pytest.raises(SizeError, match="kv_heads: 3 does not divide 8 heads into equal groups"):
        numbers_of({"num_attention_heads": 8, "num_key_value_heads": 3})
    with pytest.raises(TypeError, match="heads: '8' is a str; wanted an int"):
        numbers_of({"num_attention_heads": "8"})
