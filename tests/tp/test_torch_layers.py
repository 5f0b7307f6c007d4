"""Layers on several ranks do what they do on one, or say why they cannot."""

from __future__ import annotations

from typing import Any

import pytest

from tests.shard.pool import Ranks
from tests.tp import on_ranks, on_ranks_allowed, on_ranks_layers
from tests.tp.on_ranks_refused import BETWEEN

pytestmark = pytest.mark.distributed


def test_an_encoder_of_torch_calls_its_layers(two: Ranks) -> None:
    """In evaluation it would rather call one function with their weights, which sums nothing."""
    two(on_ranks_layers.encoded, 2)


def test_a_word_that_is_in_no_rank_s_vocabulary_is_refused_as_on_one(two: Ranks) -> None:
    assert two(on_ranks_layers.looked_up, 2, [0, 2, 3, 5]) == [""] * 2
    for ids in ([0, 6], [-1]):
        assert two(on_ranks_layers.looked_up, 2, ids) == ["index out of range in self"] * 2


@pytest.mark.parametrize("case", ["row, whole", "row, whole, with a bias"])
def test_a_whole_input_of_a_layer_that_takes_a_part_is_refused(two: Ranks, case: str) -> None:
    assert two(on_ranks_layers.called_wrongly, 2, case) == [
        "ShardingError: model: a Linear that is cut by rows has 2 on this rank, and its input 4 "
        "features; give its rule scatter=True if it comes whole, or cut the layer before it by "
        "'column' and between the same features"
    ] * 2  # fmt: skip


@pytest.mark.parametrize("case", ["row, pair", "column, pair", "tail, pair", "sum, pair"])
def test_only_a_tensor_is_put_together(two: Ranks, case: str) -> None:
    kind = "an Experts" if case == "sum, pair" else "a Pair"
    assert two(on_ranks_layers.called_wrongly, 2, case) == [
        f"TypeError: model: {kind} returned a tuple, and what it returns is put together from "
        "all ranks; wanted a tensor, or leave the layer 'whole'"
    ] * 2  # fmt: skip


def test_a_layer_that_is_given_nothing_says_so(two: Ranks) -> None:
    assert two(on_ranks_layers.called_wrongly, 2, "nothing") == [
        "TypeError: Linear.forward() missing 1 required positional argument: 'input'"
    ] * 2  # fmt: skip


@pytest.mark.parametrize("case", on_ranks_allowed.CASES)
def test_what_is_right_is_not_refused(two: Ranks, case: str) -> None:
    two(on_ranks_allowed.compared, 2, case)


def test_a_gather_takes_of_each_rank_what_the_widest_has(two: Ranks) -> None:
    assert two(on_ranks_allowed.gathered, 2) == [{"all_gather": 3 * 4 * 4}] * 2


@pytest.mark.parametrize(
    "config", [{"slow_but_exact": True, "pretraining_tp": 1}, {"pretraining_tp": 2}]
)
def test_bloom_is_refused_only_where_it_slices_weights(two: Ranks, config: Any) -> None:
    for far in two(on_ranks.compared, 2, "bloom", {}, config):
        assert max(far.values()) < 1e-4


@pytest.mark.parametrize("name", BETWEEN)
def test_what_lies_between_layers_is_known_by_its_name(two: Ranks, name: str) -> None:
    layer = name if name != "act" else "act.slope"
    assert two(on_ranks.refused, 2, name) == [
        f"ShardingError: model: 'x.{name}.{layer.partition('.')[2] or 'weight'}' is whole on every "
        "rank, between layers that are cut: each would have a part of its gradient. Give "
        f"Rule({layer!r}, 'whole', partial_grads=True)"
    ] * 2  # fmt: skip


@pytest.mark.parametrize("option", ["max_norm", "scale_grad_by_freq", "sparse"])
def test_an_option_that_needs_all_words_is_refused(two: Ranks, option: str) -> None:
    assert two(on_ranks.refused, 2, option) == [
        f"ShardingError: model: 'x.weight' has {option}, which needs the whole embedding"
    ] * 2  # fmt: skip


@pytest.mark.parametrize("case", ["a vector", "a matrix of heads"])
def test_what_is_in_no_layer_sends_nothing(two: Ranks, case: str) -> None:
    assert two(on_ranks.refused, 2, case) == [
        "ShardingError: model: 'x.gamma' is cut, and nothing says what its module Gamma sends to "
        "other ranks; give a rule Rule('x', 'sum') if its results are to be summed"
    ] * 2  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["DistributedDataParallel", "DataParallel", "FullyShardedDataParallel"]
)
def test_a_model_is_wrapped_last(two: Ranks, kind: str) -> None:
    assert two(on_ranks.refused, 2, kind) == [
        f"ShardingError: model: '' is a {kind}, which keeps to the parameters that it found; "
        "parallelize the model first, and wrap it then"
    ] * 2  # fmt: skip


@pytest.mark.parametrize(("case", "name"), [("TorchScript", ""), ("a layer in TorchScript", "x")])
def test_a_model_is_not_compiled_before(two: Ranks, case: str, name: str) -> None:
    assert two(on_ranks.refused, 2, case) == [
        f"ShardingError: model: {name!r} is TorchScript; give the module it was made of"
    ] * 2  # fmt: skip


def test_a_part_of_a_parameter_is_marked_as_the_whole_was(two: Ranks) -> None:
    two(on_ranks_layers.marked, 2)


def test_a_model_on_one_rank_is_saved_as_it_is(two: Ranks) -> None:
    two(on_ranks_layers.alone, 2)
