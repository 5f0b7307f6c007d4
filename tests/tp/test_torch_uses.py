"""What torch does with models works for one that several ranks share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.shard.pool import Ranks
from tests.tp import on_ranks, on_ranks_adapters, on_ranks_bias, on_ranks_uses

pytestmark = pytest.mark.distributed

HOOKED = (
    "model: 'x.weight' has hooks, which see the gradient of the whole. Parallelize first; then the "
    "part on a rank may have hooks of its own"
)


def test_attention_hears_what_the_config_is_told_later(two: Ranks) -> None:
    """As with `set_attn_implementation`; a copy of the config would miss the change."""
    two(on_ranks_uses.told, 2)


@pytest.mark.parametrize("how", ["grad", "vmap", "each", "jvp", "of a vmap", "of a jvp", "second"])
def test_transforms_of_functions(two: Ranks, how: str) -> None:
    two(on_ranks_uses.transformed, 2, how)


@pytest.mark.parametrize("reentrant", [True, False])
def test_passes_are_run_again(two: Ranks, reentrant: bool) -> None:
    two(on_ranks_uses.checkpointed, 2, reentrant)


def test_adapters_beside_layers_are_cut_by_rules(four: Ranks) -> None:
    four(on_ranks_adapters.adapted, 4)


def test_heads_are_counted_where_every_layer_has_an_adapter(two: Ranks) -> None:
    two(on_ranks_adapters.adapted_everywhere, 2)


def test_a_plan_may_list_weights_in_any_order(two: Ranks) -> None:
    """As a plan made from a checkpoint with sorted names does."""
    two(on_ranks_uses.sorted_plan, 2)


def test_layers_under_autocast_make_what_those_of_the_whole_make(two: Ranks) -> None:
    assert two(on_ranks_uses.cast, 2) == [["torch.bfloat16"] * 4] * 2


def test_inputs_are_given_by_name(two: Ranks) -> None:
    two(on_ranks_uses.named, 2)


def test_heads_that_are_gathered_are_all_there(two: Ranks) -> None:
    two(on_ranks_uses.gathered, 2)


def test_parameters_are_themselves(two: Ranks) -> None:
    two(on_ranks_uses.read, 2)


@pytest.mark.parametrize(
    "name",
    ["num_heads", "nheads", "heads", "n_heads_q", "num_attn_head", "head", "head_count", "n_h"],
)
def test_heads_are_counted_under_other_names(two: Ranks, name: str) -> None:
    assert two(on_ranks_uses.spelled, 2, name, 6) == [""] * 2


def test_other_heads_than_the_config_names_are_refused(two: Ranks) -> None:
    """For example those of an image encoder next to a text model."""
    assert two(on_ranks_uses.spelled, 2, "num_heads", 3) == [
        "model: 'self_attn' has num_heads=3; the config names 6 heads, between which its layers "
        "would be cut. Name it in a rule of its own, Rule('self_attn.*', 'whole')"
    ] * 2  # fmt: skip


@pytest.mark.parametrize("dropout", [0.1, torch.nn.Dropout(0.1)], ids=["rate", "layer"])
def test_unequal_heads_with_dropout_are_refused_in_training(
    two: Ranks, four: Ranks, dropout: Any
) -> None:
    of_heads = {"attn_dropout": dropout, "drop_path": torch.nn.Identity()}
    of_results = {"resid_dropout": dropout, "hidden_drop": dropout, "out_drop": dropout}
    of_results |= {
        "output_drop": dropout,
        "attn_dropout": 0.0,
        "scaling": 0.5,
        "drop_path": torch.nn.Identity(),
    }
    assert two(on_ranks_uses.spelled, 2, "num_heads", 6, of_heads) == [""] * 2
    assert four(on_ranks_uses.spelled, 4, "num_heads", 6, of_results) == [""] * 4
    assert four(on_ranks_uses.spelled, 4, "num_heads", 6, of_heads) == [
        "model: attn_dropout=0.1 in training, in a Spelled of whose heads some ranks have more: "
        "they would draw unlike random numbers ever after. Set it to 0, or take a number of ranks "
        "that divides the heads"
    ] * 4  # fmt: skip


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_another_axis_shares_the_batch(four: Ranks, kind: str) -> None:
    four(on_ranks_uses.cut_once_more, kind)


def test_flat_parameters_have_gradients_and_no_norm(four: Ranks) -> None:
    (error,) = {*four(on_ranks_uses.made_flat)}
    assert error.startswith("model: FullyShardedDataParallel has put its gradients into flat ones")


def test_a_norm_is_as_exact_as_the_gradients(two: Ranks) -> None:
    two(on_ranks_uses.clipped_exactly, 2)


def test_a_bias_by_itself_is_in_the_norm_with_all_its_parts(two: Ranks) -> None:
    two(on_ranks_bias.clipped, 2)


def test_ranks_without_gradients_of_their_own_know_the_norm(two: Ranks) -> None:
    two(on_ranks_bias.frozen, 2)


def test_a_norm_counts_both_parts_of_complex_gradients(two: Ranks) -> None:
    two(on_ranks_bias.turned, 2)


def test_the_norm_of_narrow_gradients_may_be_large(two: Ranks) -> None:
    two(on_ranks_bias.narrow, 2)


def test_a_rank_has_the_numbers_of_its_own_heads(two: Ranks) -> None:
    two(on_ranks_bias.weighted, 2)


def test_a_module_of_experts_is_told_more_than_its_input(two: Ranks) -> None:
    two(on_ranks_bias.told, 2)


def test_an_object_that_a_sum_is_given_is_the_one_it_writes_into(two: Ranks) -> None:
    two(on_ranks_bias.noted, 2)


@pytest.mark.parametrize("kind", ["tuple", "dict", "complex"])
def test_gradients_of_all_that_a_sum_is_given_are_summed(two: Ranks, kind: str) -> None:
    two(on_ranks_bias.given, 2, kind)


@pytest.mark.parametrize("norm_type", [2.0, "inf"])
def test_a_gradient_without_numbers_counts_nothing(two: Ranks, norm_type: Any) -> None:
    """It has no largest number, and the error of the first rank would leave the other waiting."""
    two(on_ranks_bias.without_numbers, 2, norm_type)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("more than linear", "model: 'x.weight' belongs to a Scaled, whose bias is to be added "
         "once; of layers with a bias only linear ones, with the forward of nn.Linear, can be cut "
         "by rows"),
        ("one weight more", "model: 'x.gain' is whole on every rank, in a layer that is cut: each "
         "would have a part of its gradient. Give a rule that cuts it, or Rule('x.gain', 'whole', "
         "partial_grads=True)"),
        ("one weight more, by columns", "model: 'x.gain' is whole on every rank, in a layer that "
         "is cut: each would have a part of its gradient. Give a rule that cuts it, or "
         "Rule('x.gain', 'whole', partial_grads=True)"),
        ("a number beside a bias", "model: 'x.weight' is whole on every rank, in a layer that is "
         "cut: each would have a part of its gradient. Give a rule that cuts it, or "
         "Rule('x.weight', 'whole', partial_grads=True)"),
        ("a forward of its own", "model: 'x' has a forward of its own, which its Linear does not "
         "see; take it away (`del layer.forward`, accelerate's remove_hook_from_module), and put "
         "it there again afterwards"),
        ("a parameter of its own", "model: 'x.weight' is a Packed; only a plain nn.Parameter is "
         "cut. Parallelize before FSDP or quantization"),
        ("a matrix stored the other way", "model: 'x.weight' belongs to a Linear; its rule has "
         "stored='in_out', and the weight of such a layer is 'out_in'"),
        ("a matrix not stored that way", "model: 'x.weight' belongs to a Conv1D; its rule has "
         "stored='out_in', and the weight of such a layer is 'in_out'"),
        ("a sparse weight", "model: 'x.weight' is of layout torch.sparse_coo; only a strided one "
         "is cut, as to_dense() makes it"),
        ("a hook of its weight", HOOKED),
        ("a hook after its weight", HOOKED),
        ("a wrapped layer",
         "model: 'x.weight' is inside a CheckpointWrapper, and only parameters are cut"),
        ("a norm of its weight", "model: 'x' makes its weight of others, which no rule "
         "names; make it a plain one first, as torch.nn.utils.parametrize.remove_parametrizations "
         "and torch.nn.utils.prune.remove do it"),
        ("a norm", "model: 'x.weight' belongs to a LayerNorm; only layers with a matrix are cut, "
         "and a norm of each head is 'whole' with partial_grads=True"),
        ("a convolution", "model: 'x.weight' belongs to a Conv1d; only layers with a matrix are "
         "cut, and a norm of each head is 'whole' with partial_grads=True"),
        ("a product of two inputs", "model: 'x.weight' belongs to a Bilinear; only layers with a "
         "matrix are cut, and a norm of each head is 'whole' with partial_grads=True"),
        ("sums of rows", "model: 'x.weight' belongs to an EmbeddingBag; only layers with a matrix "
         "are cut, and a norm of each head is 'whole' with partial_grads=True"),
        ("attention of torch", "model: '0.attn' is a MultiheadAttention, which gives its weights "
         "to one function and calls no layer that could send anything. Leave it whole by "
         "Rule('*.attn.*', 'whole')"),
        ("a recurrent network", "model: 'x' is a LSTM, which gives its weights to one function and "
         "calls no layer that could send anything. Leave it whole by Rule('x.*', 'whole')"),
        ("a norm of heads", "model: 'x.q_norm.weight' is whole on every rank, between layers "
         "that are cut: each would have a part of its gradient. Give Rule('q_norm', 'whole', "
         "partial_grads=True)"),
        ("norms of each head", "model: '0' has 2 modules 'q_norm.norms', one for each head, of "
         "which every rank would use the first. Leave it whole by Rule('*.*', 'whole')"),
        ("norms of each key-value head", "model: '0' has 2 modules 'q_norm.norms', one for each "
         "head, of which every rank would use the first. Leave it whole by Rule('*.*', 'whole')"),
        ("a norm with numbers for each head", "model: 'x.q_norm.weight' is whole on every rank, "
         "between layers that are cut, and has numbers for each head. Leave the layers whole by "
         "Rule('x.*', 'whole')"),
        ("an activation that is learned", "model: 'mlp.act_fn.weight' is whole on every rank, "
         "between layers that are cut: each would have a part of its gradient. Give "
         "Rule('act_fn', 'whole', partial_grads=True)"),
        ("a number beside layers", "model: 'x.temperature' is whole on every rank, beside layers "
         "that are cut, and no rule names it. Give Rule('x.temperature', 'whole', "
         "partial_grads=True) if it is used on what a rank has of their results, else "
         "Rule('x.temperature', 'whole')"),
        ("one layer, two rules", "model: 'x.weight' and 'y.weight' are one layer; give both the "
         "same rule"),
        ("an activation in a sum", "model: 'x.weight' belongs to a Rectified, whose own forward "
         "makes something else of the parts of two ranks than of the whole. Cut by rows, it must "
         "be linear: do the rest in a module after it, or leave it whole by Rule('x', 'whole'), "
         "with gather=True in the rule of the layer before it"),
        ("features of features", "model: 'x.weight' belongs to a Chances, whose own forward makes "
         "something else of the parts of two ranks than of the whole. Cut by columns, no feature "
         "may depend on others: do that in a module after it, or leave it whole by "
         "Rule('x', 'whole')"),
        ("other words", "model: 'x.weight' belongs to an Offset, whose own forward makes something "
         "else of the parts of two ranks than of the whole. Cut by 'vocab', it must look up the "
         "ids that it is given: change them before it, or leave it whole by Rule('x', 'whole')"),
        ("slices of a layer's weight", "model: 'transformer.h.0.self_attention' has "
         "slow_but_exact=True and pretraining_tp=2, by which it multiplies with slices of the "
         "whole weight of a layer that is cut; make the model with slow_but_exact=False in its "
         "config"),
    ],
)  # fmt: skip
def test_layers_that_compute_something_else_are_refused(two: Ranks, case: str, text: str) -> None:
    """Each used to give wrong results, or an error in the middle of its first step."""
    assert two(on_ranks.refused, 2, case) == [f"ShardingError: {text}"] * 2
