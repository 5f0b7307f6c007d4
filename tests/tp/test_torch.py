"""A model on several ranks has the logits and gradients that it has on one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.shard.pool import Ranks
from tests.tp import on_ranks
from tests.tp.models import MODELS
from xlayout import tp
from xlayout.errors import ShardingError
from xlayout.torch import clip_grad_norm_

pytestmark = pytest.mark.distributed


def close(answers: list[dict[str, float]]) -> None:
    far = {name: max(answer[name] for answer in answers) for name in answers[0]}
    assert {name: distance for name, distance in far.items() if distance > 1e-4} == {}


@pytest.mark.parametrize("name", MODELS)
def test_two_ranks_are_as_one(two: Ranks, name: str) -> None:
    close(two(on_ranks.compared, 2, name, {}))


NOT_BY_FOUR = {
    "qwen2",
    "mixtral",
    "deepseek_v2",
}  # three kv heads; experts need 16 bytes


@pytest.mark.parametrize("name", [name for name in MODELS if name not in NOT_BY_FOUR])
def test_four_ranks_are_as_one(four: Ranks, name: str) -> None:
    """Six key-value heads are cut unevenly; if there are one or two, they are copied."""
    close(four(on_ranks.compared, 4, name, {}))


def test_experts_are_cut_in_grains(four: Ranks) -> None:
    close(four(on_ranks.compared, 4, "mixtral", {"grain": 4}))


@pytest.mark.parametrize("name", ["phi3", "bloom"])
def test_ranks_need_not_ascend(four: Ranks, name: str) -> None:
    import transformers

    close(four(on_ranks.compared, [2, 0, 3, 1], name, {}))
    plan = transformers.Phi3Config.base_model_tp_plan
    if name == "phi3":
        close(four(on_ranks.compared, [2, 0, 3, 1], name, {"rules": plan}))


def test_one_axis_of_a_mesh_shares_the_model(four: Ranks) -> None:
    close(four(on_ranks.compared, (2, 2), "llama, biased", {}))


@pytest.mark.parametrize("tied", [True, False])
def test_a_vocabulary_is_cut_by_rows(four: Ranks, tied: bool) -> None:
    """97 words are cut into 25, 24, 24 and 24; only one rank has the padding word's row."""
    rules = [tp.Rule("embed_tokens", "vocab"), tp.Rule("lm_head", "vocab"), *tp.PRESETS["llama"]]
    config = {"tie_word_embeddings": tied, "vocab_size": 97, "pad_token_id": 30}
    close(four(on_ranks.compared, 4, "llama", {"rules": rules}, config))


def test_only_the_rank_that_has_the_padding_row_has_one(two: Ranks) -> None:
    assert two(on_ranks.padded, 2) == [None, 1]


def test_an_embedding_is_cut_by_columns(four: Ranks) -> None:
    """Every rank has all words, the padding word's row among them."""
    rules = tp.Rule("embed_tokens", "column", gather=True, stored="in_out"), *tp.PRESETS["llama"]
    config = {"tie_word_embeddings": False, "pad_token_id": 30}
    close(four(on_ranks.compared, 4, "llama", {"rules": rules}, config))


def test_scaled_embeddings_stay_scaled(two: Ranks) -> None:
    rules = [tp.Rule("embed_tokens", "vocab"), tp.Rule("lm_head", "vocab"), *tp.PRESETS["gemma"]]
    close(two(on_ranks.compared, 2, "gemma", {"rules": rules}))


@pytest.mark.parametrize("ranks", [2, 4])
def test_results_are_gathered_and_inputs_scattered(two: Ranks, four: Ranks, ranks: int) -> None:
    """Transformers' own plan for Phi-3 puts every fused weight that it cuts together again."""
    import transformers

    plan = transformers.Phi3Config.base_model_tp_plan
    assert {"colwise_gather_output", "rowwise_split_input"} == set(plan.values())
    pool = two if ranks == 2 else four
    close(pool(on_ranks.compared, ranks, "phi3", {"rules": plan}))


def test_a_plan_may_leave_out_norms_of_heads(four: Ranks) -> None:
    """Qwen3-VL-MoE's plan does; each rank has a part of their gradients."""
    import transformers

    plan = transformers.Qwen3MoeConfig.base_model_tp_plan
    plan = {name: style for name, style in plan.items() if "norm" not in name}
    close(four(on_ranks.compared, 4, "qwen3_moe", {"rules": plan}))


@pytest.mark.parametrize("name", ["llama, one kv head", "phi3, one kv head", "qwen3", "bloom"])
def test_after_training_the_ranks_hold_one_model(four: Ranks, name: str) -> None:
    """Copies have the same bits on all ranks, and merged they are as if trained whole."""
    ranks = four(on_ranks.trained, 4, name, {}, {})
    whole = ranks[0][1]
    config = on_ranks.made(name).config
    merged = tp.merge([own for own, _ in ranks], tp.plan(whole, 4, config=config))
    for key, x in whole.items():
        torch.testing.assert_close(merged[key], x, rtol=2e-3, atol=2e-4, msg=key)


@pytest.mark.parametrize("name", ["llama, one kv head", "qwen3"])
def test_a_model_without_memory_is_given_its_part(two: Ranks, name: str) -> None:
    """Parameters that replace others still get the gradients of ranks that hold the same."""
    assert two(on_ranks.loaded, 2, name) == [True, True]


@pytest.mark.parametrize("norm_type", [2.0, 1.0, "inf"])
def test_gradients_are_clipped_by_the_norm_of_the_whole(four: Ranks, norm_type: Any) -> None:
    for name in ("llama, one kv head", "phi3, one kv head", "gemma"):  # the last has tied weights
        four(on_ranks.clipped, 4, name, norm_type)


def test_the_whole_is_let_go_of(four: Ranks) -> None:
    four(on_ranks.forgotten, 4)


WHOLE_BETWEEN = [
    tp.Rule("mlp.gate_proj", "column", gather=True),
    tp.Rule("mlp.up_proj", "column", gather=True),
    tp.Rule("mlp.down_proj", "row", scatter=True),
]


@pytest.mark.parametrize("rules", ["llama", WHOLE_BETWEEN], ids=["cut", "whole between"])
@pytest.mark.parametrize("features", [1, 0])
def test_a_rank_may_have_no_features(two: Ranks, rules: Any, features: int) -> None:
    two(on_ranks.narrow, 2, rules, features, 1)


@pytest.mark.parametrize("rules", ["llama", WHOLE_BETWEEN], ids=["cut", "whole between"])
def test_the_last_rank_may_have_the_most_features(two: Ranks, rules: Any) -> None:
    """What is left of the grains is its own."""
    two(on_ranks.narrow, 2, rules, 10, 4)


@pytest.mark.parametrize(
    ("rules", "backend"),
    [("llama", "inductor"), (WHOLE_BETWEEN, "aot_eager")],
    ids=["cut", "whole between"],
)
def test_a_block_compiles_in_one_graph(two: Ranks, backend: str, rules: Any) -> None:
    two(on_ranks.compiled, 2, backend, rules)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("twice", "ShardingError: model: 'self_attn.q_proj' is on several ranks already"),
        ("other ties", "ShardingError: model: 'embed.weight' and 'head.weight' are one parameter, "
         "cut as (tp, axis 0 by balanced) on tp=2 and as () on tp=2; give both one rule"),
        ("bias that is not added", "ShardingError: model: 'x.weight' belongs to a Bilinear, whose "
         "bias is to be added once; of layers with a bias only linear ones, with the forward of "
         "nn.Linear, can be cut by rows"),
        ("no role", "ShardingError: model: 'x.up' is cut, and nothing says what its module Bank "
         "sends to other ranks; give a rule Rule('x', 'sum') if its results are to be summed"),
        ("bias of a sum", "ShardingError: model: 'x.down_bias' is whole on every rank, in a module "
         "whose results are summed: it would count 2 times"),
        ("few rows", "ShardingError: model: 'x.weight' has 1 rows for 2 ranks; wanted at least one "
         "for each"),
        ("few rows in grains", "ShardingError: model: 'x.weight' has 8 rows for 2 ranks; wanted at "
         "least one for each, and a smaller grain"),
        ("norm", "ShardingError: model: 'x.weight' has max_norm, which needs the whole embedding"),
        ("rows of a layer", "ShardingError: model: 'x.weight' belongs to an embedding, and "
         "'column' cuts its axis 0; give a rule that cuts its rows, 'vocab', or its columns, "
         "'column' with stored='in_out'"),
        ("sums of a layer", "ShardingError: model: 'x.weight' belongs to an embedding, and 'row' "
         "cuts its axis 0; give a rule that cuts its rows, 'vocab', or its columns, 'column' with "
         "stored='in_out'"),
        ("a buffer", "ShardingError: model: 'table' is a buffer, and only parameters are cut"),
        ("both", "TypeError: plan: given together with what one is made of; leave one of them out"),
        ("a plan for others", "SizeError: plan: for 3 ranks; the mesh has 2"),
        ("a plan of others",
         "ShapeError: model['x.weight']: shape (4, 4); the plan has (4, 6) there"),
    ],
)  # fmt: skip
def test_what_cannot_run_so_is_refused_and_stays_as_it_was(
    two: Ranks, case: str, text: str
) -> None:
    assert two(on_ranks.refused, 2, case) == [text] * 2


def test_other_models_and_meshes_are_refused() -> None:
    for model, mesh, kind, text in (
        ([1], None, TypeError, "model: a list; wanted a torch.nn.Module, or nested dicts of JAX"),
        (torch.nn.Linear(2, 2), None, TypeError, "mesh: a NoneType; wanted a torch DeviceMesh"),
        (
            {},
            None,
            TypeError,
            "mesh: a NoneType; wanted a jax.sharding.Mesh, as nested dicts run in "
            "JAX; of torch, give the module itself",
        ),
    ):
        with pytest.raises(kind, match=text):
            tp.parallelize(model, mesh)


def test_gradients_are_clipped_of_a_module() -> None:
    """Torch's own function takes its parameters, which do not tell what several ranks hold."""
    layer: Any = torch.nn.Linear(2, 2)
    text = "^model: a generator; wanted the module itself, not its parameters$"
    with pytest.raises(TypeError, match=text):
        clip_grad_norm_(layer.parameters(), 1.0)


@pytest.mark.parametrize("norm_type", [0, -1.0, float("nan"), "-inf"])
def test_gradients_have_no_norm_of_these_powers(norm_type: float) -> None:
    text = f"^norm_type: {float(norm_type)}; wanted a number above 0, or infinity$"
    with pytest.raises(ShardingError, match=text):
        clip_grad_norm_(torch.nn.Linear(2, 2), 1.0, norm_type)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_mesh_of_several_axes_names_the_one(two: Ranks, name: str) -> None:
    assert (
        two(mesh_error, name)
        == [f"mesh: axes ('{name}', 'c'); wanted one axis, or one named 'tp'"] * 2
    )


def mesh_error(_rank: int, name: str) -> str:
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=(name, "c"))
    try:
        tp.parallelize(on_ranks.Block(), mesh, rules="llama")
    except ShardingError as error:
        return str(error)
    raise AssertionError("not refused")
