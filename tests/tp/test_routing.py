"""Presets and third-party plans send layers where other systems were seen to send them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from xlayout.errors import ShardingError
from xlayout.tp import PRESETS, Rule
from xlayout.tp.rules import as_rules, cut_axis, first_match

ROUTING = json.loads(Path(__file__).with_name("routing.json").read_text("utf-8"))["cases"]

CUTS = {"column": "column", "row": "row", "skip": "whole"}


@pytest.mark.parametrize("case", [c for c in ROUTING if c["id"].startswith("preset/")],
                         ids=lambda c: c["id"])  # fmt: skip
def test_presets_route_as_recorded(case: dict[str, Any]) -> None:
    """Weights that the original's preset leaves alone stay whole here too."""
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
    if "error" in case:  # the original does not know these styles
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
    if kind is None:  # two layers share a last name; the original knows one
        return
    (expected,) = case["expected"].values()
    rules = PRESETS[kind]
    rows = set()
    for name in case["params"]["children"]:
        found = first_match(rules, f"layers.0.{name}.weight")
        if found is not None and found[0].cut == "row":
            rows.add(name)
    assert rows == {name.removeprefix(".") for name in expected}


STYLES = [
    ("mlp.up_proj", "colwise", {"cut": "column"}),
    ("self_attn.q_proj", "colwise", {"cut": "column", "features": "heads"}),
    ("self_attn.k_proj", "colwise", {"cut": "column", "features": "kv_heads"}),
    ("self_attn.v_proj", "colwise", {"cut": "column", "features": "kv_heads"}),
    ("attention.query_key_value", "colwise", {"cut": "column", "features": "groups"}),
    ("lm_head", "colwise_gather_output", {"cut": "column", "gather": True}),
    ("self_attn.k_proj", "colwise_gather_output", {"cut": "column", "gather": True}),
    ("lm_head", "colwise_rep", {"cut": "column", "gather": True}),
    ("mlp.gate_up", "packed_colwise", {"cut": "column", "features": "plain + plain"}),
    ("self_attn.qk", "packed_colwise", {"cut": "column", "features": "heads + heads"}),
    ("attn.kv_proj", "packed_colwise", {"cut": "column", "features": "kv_heads + kv_heads"}),
    ("mlp.down_proj", "rowwise", {"cut": "row"}),
    ("self_attn.o_proj", "rowwise", {"cut": "row", "features": "heads"}),
    ("self_attn.o_proj", "rowwise_split_input", {"cut": "row", "scatter": True}),
    ("mlp.down", "packed_rowwise", {"cut": "row", "features": "plain + plain"}),
    ("embed", "embedding_rowwise", {"cut": "vocab"}),
    ("embed", "embedding_colwise", {"cut": "column", "gather": True, "stored": "in_out"}),
    ("norm", "replicate", {"cut": "whole"}),
    ("attn.q_norm", "replicated_with_grad_allreduce", {"cut": "whole", "partial_grads": True}),
    ("attn.kv_a", "mla_kv_a_proj", {"cut": "whole", "tail": "qk_rope_head_dim"}),
    ("mlp.experts", "moe_tp_experts", {"cut": "sum"}),
]


@pytest.mark.parametrize(("pattern", "style", "options"), STYLES)
def test_a_style_is_a_rule(pattern: str, style: str, options: dict[str, Any]) -> None:
    assert as_rules({pattern: style}) == (Rule(pattern, **options),)


def test_every_plan_that_transformers_ships_is_read_or_refused_as_a_whole() -> None:
    transformers = pytest.importorskip("transformers")
    found = {}
    for path in sorted(Path(transformers.__file__).parent.glob("models/*/configuration_*.py")):
        for text in re.findall(
            r"base_model_tp_plan = (\{.*?\n    \})", path.read_text(), re.DOTALL
        ):
            styles = dict(re.findall(r'"([^"]+)": "([^"]+)"', text))
            try:
                own = list(styles.values()).count("local_params")
                found[path.stem] = len(as_rules(styles)) == len(styles) - own
            except ShardingError as error:
                found[path.stem] = "rules: styles" in str(error)
    assert len(found) > 100
    assert all(found.values())


def test_what_attention_holds_for_each_head_is_cut_between_heads() -> None:
    styles = {"layers.*.self_attn": "local_params", "layers.*.self_attn.sinks": "colwise"}
    assert as_rules(styles) == (Rule("layers.*.self_attn.sinks", "column", "heads"),)


def test_styles_that_nothing_does_are_refused_with_those_that_something_does() -> None:
    text = "styles 'all_reduce', 'new'; known are colwise, .*, moe_tp_experts. Half of a plan would"
    with pytest.raises(ShardingError, match=text):
        as_rules({"a": "colwise", "b": "new", "c": "all_reduce"})
