"""Rules find the weights they are meant for, and cut them along the right axis."""

from __future__ import annotations

from typing import Any

import pytest

from xlayout.errors import LayoutError, ShardingError
from xlayout.tp import Rule, plan
from xlayout.tp.presets import PRESETS, preset_of
from xlayout.tp.rules import cut_axis, first_match


@pytest.mark.parametrize(
    ("pattern", "name", "leaf"),
    [
        ("mlp.up_proj", "model.layers.3.mlp.up_proj.weight", "weight"),
        ("mlp.up_proj", "mlp.up_proj.bias", "bias"),
        ("mlp.up_proj", "layers_3.mlp.up_proj.kernel", "kernel"),
        ("mlp.up_proj", "model.mlp.up_proj", "up_proj"),
        ("embed", "embed.embedding", "embedding"),
        ("layers.*.mlp.up_proj", "model.layers.3.mlp.up_proj.weight", "weight"),
        ("experts.*.w1", "experts.12.w1.weight", "weight"),
        ("mlp.up_proj", "model.layers.3.mlp.gate_up_proj.weight", None),
        ("up_proj", "mlp.gate_up_proj.weight", None),
        ("mlp.up_proj", "mlp.up_proj.lora_A.weight", None),
        ("mlp.up_proj", "mlp.up_proj.weight_scale_inv", None),
        ("experts.*.w1", "experts.1.2.w1.weight", None),
        ("mlp.*", "mlp.up_proj.weight", "weight"),
        ("a.b", "aXb.weight", None),
        ("a.b", "line\nline.a.b.weight", "weight"),
    ],
)
def test_a_pattern_is_the_end_of_a_name(pattern: str, name: str, leaf: str | None) -> None:
    assert Rule(pattern, "column").match(name) == leaf


@pytest.mark.parametrize(
    ("rule", "leaf", "shape", "axis"),
    [
        (Rule("x", "column"), "weight", (8, 6), 0),
        (Rule("x", "column"), "bias", (8,), 0),
        (Rule("x", "row"), "weight", (8, 6), 1),
        (Rule("x", "row"), "bias", (8,), None),
        (Rule("x", "column"), "kernel", (6, 8), 1),
        (Rule("x", "row"), "kernel", (6, 8), 0),
        (Rule("x", "column", stored="in_out"), "weight", (6, 8), 1),
        (Rule("x", "row", stored="in_out"), "weight", (6, 8), 0),
        (Rule("x", "column"), "gate_up_proj", (4, 8, 6), 1),
        (Rule("x", "column"), "gate_up_proj_bias", (4, 8), 1),
        (Rule("x", "row"), "down_proj", (4, 6, 8), 2),
        (Rule("x", "vocab"), "weight", (96, 6), 0),
        (Rule("x", "vocab"), "embedding", (96, 6), 0),
        (Rule("x", "vocab"), "kernel", (6, 96), 1),
        (Rule("x", "whole"), "weight", (8, 6), None),
        (Rule("x", "column"), "weight", (), None),
        (Rule("x", "column"), "sinks", (8,), 0),
        (Rule("x", "row"), "scale", (8,), None),
    ],
)
def test_a_rule_cuts_what_goes_in_or_comes_out(
    rule: Rule, leaf: str, shape: tuple[int, ...], axis: int | None
) -> None:
    assert cut_axis(rule, leaf, shape) == axis


def test_the_first_rule_counts() -> None:
    rules = (Rule("up_proj", "whole"), Rule("mlp.up_proj", "column"))
    assert first_match(rules, "mlp.up_proj.weight") == (rules[0], "weight")
    assert first_match(rules[::-1], "mlp.up_proj.weight") == (rules[1], "weight")


def test_a_sum_is_of_a_module_and_no_rule_for_its_weights() -> None:
    rules = (Rule("experts", "sum"), Rule("experts", "column"))
    assert first_match(rules, "mlp.experts.weight") == (rules[1], "weight")
    assert first_match(rules[:1], "mlp.experts.weight") is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"cut": "rows"}, "cut: 'rows'; wanted one of 'column', 'row', 'vocab', 'whole', 'sum'"),
        ({"features": "head"}, "features: 'head'; wanted one of 'heads', 'kv_heads', 'groups', 'p"),
        ({"features": "heads + plain"}, "'heads \\+ plain' mixes heads with plain features"),
        ({"cut": "vocab", "features": "heads"}, "'heads' with cut 'vocab'; they are for 'column' "),
        ({"cut": "row", "features": "kv_heads"}, "'kv_heads' where results are summed or gathered"),
        ({"features": "kv_heads", "gather": True}, "wanted 'heads', 'groups' or 'plain'"),
        ({"stored": "io"}, "stored: 'io'; wanted one of 'out_in', 'in_out'"),
        ({"scatter": True}, "scatter: with cut 'column'; it is for 'row'"),
        ({"cut": "row", "gather": True}, "gather: with cut 'row'; it is for 'column'"),
        ({"partial_grads": True}, "partial_grads: with cut 'column'; it is for 'whole'"),
        ({"tail": "rope"}, "tail: with cut 'column'; it is for 'whole'"),
    ],
)
def test_a_word_that_means_nothing_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(LayoutError, match=text):
        Rule("x", **{"cut": "column", **options})


@pytest.mark.parametrize("option", ["gather", "scatter", "partial_grads"])
def test_an_option_is_true_or_false(option: str) -> None:
    with pytest.raises(TypeError, match=f"^{option}: 'no'; wanted True or False"):
        Rule("x", "column", **{option: "no"})  # type: ignore[arg-type]


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="pattern: 3; wanted a str"):
        Rule(3, "column")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tail: 4; wanted a key of the config, a str, or None"):
        Rule("kv_a_proj", "whole", tail=4)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="features: None; wanted a str"):
        Rule("x", "column", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "preset"),
    [
        ({"model_type": "llama"}, "llama"),
        ({"model_type": "gpt_bigcode", "multi_query": True}, "gpt_bigcode"),
        ({"model_type": "gpt_bigcode", "multi_query": False}, None),
        ({"model_type": "chatglm", "multi_query_attention": True}, "chatglm"),
        ({"model_type": "chatglm", "multi_query_attention": False}, None),
        ({"model_type": "falcon", "multi_query": True}, "falcon, one kv head"),
        ({"model_type": "falcon", "multi_query": False}, "falcon"),
        (
            {"model_type": "falcon", "multi_query": True, "new_decoder_architecture": True},
            "falcon",
        ),
        ({"model_type": "unheard of"}, None),
        ({}, None),
    ],
)
def test_a_config_names_its_preset(said: dict[str, Any], preset: str | None) -> None:
    assert preset_of(said) == (PRESETS[preset] if preset else None)


@pytest.mark.parametrize(
    ("rules", "kind", "text"),
    [
        ("lama", LayoutError, "rules: 'lama'; wanted one of 'gemma', .*'llama'"),
        ([], ShardingError, "rules: there are none; leave them out for those of the config"),
        (7, TypeError, "rules: 7; wanted a list of Rule, or a dict of patterns to styles"),
        ([("mlp", "column")], TypeError, r"rules: \('mlp', 'column'\); wanted a Rule"),
        ({Rule("a", "row")}, TypeError, r"rules: \{Rule\(.*\)\}; wanted a list of Rule, or a dict"),
        ({3: "rowwise"}, TypeError, "rules: 3: 'rowwise'; wanted a pattern and the name of a styl"),
        ({"a": ["x"]}, TypeError, r"rules: 'a': \['x'\]; wanted a pattern and the name of a style"),
        ([Rule("nowhere", "row")], ShardingError, "none of the 1 names a weight .* as 'a.weight'"),
        (
            None,
            ShardingError,
            "rules: nothing is known of model_type None; give rules, the name of a preset "
            r"\('.*', 'falcon, one kv head', '",
        ),
    ],
)
def test_rules_that_are_none_are_refused(rules: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        plan({"a.weight": (4, 4)}, 2, rules=rules)
