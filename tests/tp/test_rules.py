"""Rules find the weights they are for, and route them as other systems were seen to do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from xlayout.errors import LayoutError, ShardingError
from xlayout.tp import PRESETS, Rule, plan
from xlayout.tp.rules import as_rules, cut_axis, first_match

ROUTING = json.loads(Path(__file__).with_name("routing.json").read_text("utf-8"))["cases"]


@pytest.mark.parametrize(
    ("pattern", "name", "leaf"),
    [
        ("mlp.up_proj", "model.layers.3.mlp.up_proj.weight", "weight"),
        ("mlp.up_proj", "mlp.up_proj.bias", "bias"),
        ("mlp.up_proj", "layers_3.mlp.up_proj.kernel", "kernel"),
        ("mlp.up_proj", "model.mlp.up_proj", "up_proj"),
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


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="pattern: 3; wanted a str"):
        Rule(3, "column")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="features: None; wanted a str"):
        Rule("x", "column", None)  # type: ignore[arg-type]


# -- as other systems route -----------------------------------------------------------------------

CUTS = {"column": "column", "row": "row", "skip": "whole"}


@pytest.mark.parametrize("case", [c for c in ROUTING if c["id"].startswith("preset/")],
                         ids=lambda c: c["id"])  # fmt: skip
def test_presets_route_as_recorded(case: dict[str, Any]) -> None:
    """What a preset of the original leaves alone is whole here too."""
    rules = PRESETS[case["params"]["preset"]]
    for name, expected in case["expected"].items():
        found = first_match(rules, name)
        if expected is None:
            assert found is None or found[0].cut == "whole", name
            continue
        kind, segments, dim = expected
        assert found is not None, name
        assert found[0].cut == CUTS[kind], name
        assert len(found[0].terms) == (segments[0] if segments else 1), name
        if kind != "skip":
            assert cut_axis(*found, (8, 8)) == dim, name


@pytest.mark.parametrize("case", [c for c in ROUTING if c["id"].startswith("tp_plan/")],
                         ids=lambda c: c["id"])  # fmt: skip
def test_plans_of_transformers_are_read_as_recorded(case: dict[str, Any]) -> None:
    given = case["params"]["plan"]
    rules = as_rules(given)
    if "error" in case:  # the original has no word for these styles
        assert [(r.cut, r.gather, r.scatter) for r in rules] == [
            ("column", True, False), ("row", False, True),
        ]  # fmt: skip
        return
    for rule, (pattern, kind, gather, summed) in zip(rules, case["expected"] or [], strict=True):
        names = [f"model.{name.replace('*', '7')}.weight" for name in given]
        assert [rule.match(n) is not None for n in names] == [
            re.match(pattern, n) is not None for n in names
        ]
        tied = "embedding_rowwise" in given.values()  # the original cuts it elsewhere
        assert rule.cut == ("vocab" if tied else CUTS[kind])
        assert (rule.gather, rule.partial_grads) == (gather, summed)


@pytest.mark.parametrize("case", [c for c in ROUTING if c["id"].startswith("tp_parser/")],
                         ids=lambda c: c["id"])  # fmt: skip
def test_rows_are_those_that_were_found_by_the_order_of_layers(case: dict[str, Any]) -> None:
    kind = {"ChatGLM": "chatglm", "Bert": None}.get(
        case["id"].partition("/")[2], case["id"].partition("/")[2].lower()
    )
    if kind is None:  # two layers of one last name, of which the original knows one
        return
    (expected,) = case["expected"].values()
    rules = PRESETS[kind]
    rows = set()
    for name in case["params"]["children"]:
        found = first_match(rules, f"layers.0.{name}.weight")
        if found is not None and found[0].cut == "row":
            rows.add(name)
    assert rows == {name.removeprefix(".") for name in expected}


def test_every_plan_that_transformers_ships_is_read_or_refused_as_a_whole() -> None:
    transformers = pytest.importorskip("transformers")
    found = {}
    for path in sorted(Path(transformers.__file__).parent.glob("models/*/configuration_*.py")):
        for text in re.findall(
            r"base_model_tp_plan = (\{.*?\n    \})", path.read_text(), re.DOTALL
        ):
            styles = dict(re.findall(r'"([^"]+)": "([^"]+)"', text))
            try:
                found[path.stem] = len(as_rules(styles)) == len(styles)
            except ShardingError as error:
                found[path.stem] = "rules: styles" in str(error)
    assert len(found) > 100
    assert all(found.values())


def test_styles_that_nothing_does_are_refused_with_those_that_something_does() -> None:
    text = "styles 'all_reduce', 'new'; known are colwise, .*, moe_tp_experts. Half of a plan would"
    with pytest.raises(ShardingError, match=text):
        as_rules({"a": "colwise", "b": "new", "c": "all_reduce"})


@pytest.mark.parametrize(
    ("rules", "kind", "text"),
    [
        ("lama", LayoutError, "rules: 'lama'; wanted one of 'gemma', .*'llama'"),
        (7, TypeError, "rules: 7; wanted a list of Rule, or a dict of patterns to styles"),
        ([("mlp", "column")], TypeError, r"rules: \('mlp', 'column'\); wanted a Rule"),
        ([Rule("nowhere", "row")], ShardingError, "none of the 1 names a weight .* as 'a.weight'"),
        (
            None,
            ShardingError,
            "rules: nothing is known of model_type None; give rules, the name of",
        ),
    ],
)
def test_rules_that_are_none_are_refused(rules: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        plan({"a.weight": (4, 4)}, 2, rules=rules)


# -- what a plan would get silently wrong ---------------------------------------------------------


def attention(q: int, k: int, v: int, o: int, width: int = 64) -> dict[str, tuple[int, ...]]:
    sizes = {"q": q, "k": k, "v": v}
    shapes = {f"self_attn.{name}_proj.weight": (n, width) for name, n in sizes.items()}
    return {**shapes, "self_attn.o_proj.weight": (width, o)}


@pytest.mark.parametrize(
    ("shapes", "kv_heads"),
    [
        (attention(64, 32, 32, 64), 4),
        (attention(128, 32, 32, 64), 4),  # queries with a gate each
        (attention(96, 48, 32, 64), 4),  # values of another size
        ({k: v for k, v in attention(64, 32, 32, 64).items() if "o_proj" not in k}, 4),
        ({k: v for k, v in attention(64, 32, 32, 64).items() if "v_proj" not in k}, 4),
    ],
)
def test_a_number_of_heads_that_a_layer_shows_to_be_wrong_is_refused(
    shapes: dict[str, tuple[int, ...]], kv_heads: int
) -> None:
    config = {"num_attention_heads": 8, "num_key_value_heads": kv_heads}
    plan(shapes, 2, rules="llama", config=config)
    text = r"8 heads with 2 for keys and values make these of \d+ features in 'self_attn.[kv]_proj"
    with pytest.raises(ShardingError, match=text):
        plan(shapes, 2, rules="llama", config={**config, "num_key_value_heads": 2})
    if "self_attn.o_proj.weight" in shapes:
        with pytest.raises(ShardingError, match="config: 8 heads with 8 for keys and values make"):
            plan(shapes, 2, rules="llama", config={"num_attention_heads": 8})


def test_a_layer_with_other_heads_than_the_rest_is_refused() -> None:
    usual = {f"layers.0.{k}": v for k, v in attention(64, 32, 32, 64).items()}
    other = {f"layers.1.{k}": v for k, v in attention(128, 32, 32, 128).items()}
    config = {"num_attention_heads": 8, "num_key_value_heads": 4}
    with pytest.raises(ShardingError, match=r"in 'layers\.1\.self_attn\.v_proj\.weight', and"):
        plan({**usual, **other}, 2, rules="llama", config=config)
    whole = Rule("layers.1.self_attn.*", "whole")
    made = plan({**usual, **other}, 2, rules=[whole, *PRESETS["llama"]], config=config)
    assert made.local_shape("layers.1.self_attn.v_proj.weight", 0) == (32, 64)


def test_fused_weights_agree_too() -> None:
    shapes = {
        "self_attention.query_key_value.weight": (64 + 2 * 32, 64),
        "self_attention.dense.weight": (64, 64),
    }
    right = {"num_attention_heads": 8, "num_kv_heads": 4}
    plan(shapes, 2, rules="falcon", config=right)
    with pytest.raises(ShardingError, match="make these of 5 features in"):
        plan(shapes, 2, rules="falcon", config={**right, "num_kv_heads": 8})


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp.up_proj.weight_scale", (8,)),
        ("mlp.up_proj.weight_scale_inv", (2, 2)),
        ("mlp.up_proj.weight.absmax", (4,)),
        ("mlp.up_proj.lora_A", (2, 4)),
        ("mlp.experts.gate_up_proj_bias", (2, 8)),
    ],
)
def test_what_belongs_to_a_cut_weight_needs_a_rule(name: str, shape: tuple[int, ...]) -> None:
    rules = [*PRESETS["llama"], *PRESETS["mixtral"]]
    weights = {"mlp.up_proj.weight": (8, 4), "mlp.experts.gate_up_proj": (2, 8, 4), name: shape}
    last = ".".join(name.split(".")[-2:])
    text = rf"weights\['{name}'\]: no rule names it, and .* give a Rule\('{last}', …\)"
    with pytest.raises(ShardingError, match=text):
        plan(weights, 2, rules=rules)
    plan(weights, 2, rules=[Rule(last, "whole"), *rules])
    plan({**weights, name: ()}, 2, rules=rules)  # one number for all


def test_rules_of_a_text_model_leave_the_others_beside_it_whole() -> None:
    names = "language_model.layers.0", "vision_tower.encoder.layers.0"
    weights = {f"{name}.{k}": v for name in names for k, v in attention(64, 64, 64, 64).items()}
    text = {"model_type": "llama", "num_attention_heads": 32}
    made = plan(weights, 2, config={"model_type": "llava", "text_config": text})
    assert {name for name, placed in made.items() if placed.rule} == {
        name for name in weights if name.startswith("language_model.")
    }
    assert len(made.unmatched) == 4


def test_what_a_rule_asks_of_a_config_is_asked_of_the_text_model() -> None:
    text = {"model_type": "deepseek_v2", "num_attention_heads": 4, "qk_rope_head_dim": 3}
    name = "self_attn.kv_a_proj_with_mqa.weight"
    assert plan({name: (8, 4)}, 2, config={"text_config": text})[name].tail == 3
    text["qk_rope_head_dim"] = 0
    assert plan({name: (8, 4)}, 2, config={"text_config": text})[name].tail == 0


def test_heads_on_an_axis_of_their_own_are_refused() -> None:
    config = {"num_attention_heads": 4}
    for kernel in ({"kernel": (8, 4, 4)}, {"bias": (4, 4)}):
        with pytest.raises(ShardingError, match="Merge the axes of heads and of their features"):
            plan({"self_attn": {"q_proj": kernel}}, 2, rules="llama", config=config)


def test_rules_that_name_nothing_are_told() -> None:
    made = plan(
        {"mlp.up_proj.weight": (4, 4)}, 2, rules=[Rule("up_proj", "column"), Rule("x", "row")]
    )
    assert made.unused == (Rule("x", "row"),)
    with pytest.raises(LayoutError, match="weights: there are none"):
        plan({}, 2, rules="llama")
