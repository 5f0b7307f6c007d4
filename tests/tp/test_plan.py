"""A plan is a value that reads well, and what cannot be planned is reported by name."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.counted import counted
from tests.tp.block import CONFIG, planned, weights
from xlayout.errors import ShardingError, SizeError
from xlayout.tp import Rule, plan


def test_a_plan_is_a_table_with_layers_together() -> None:
    x = {f"layers.{k}.{name}": a for k in range(3) for name, a in weights().items()}
    made = planned(x, 4)
    lines = [re.sub("  +", " | ", line) for line in str(made).splitlines()]
    assert lines == [
        "24 weights for 4 ranks",
        "weight | number | shape | cut | between | a rank holds",
        lines[2],
        "layers.*.self_attn.qkv_proj.weight | 3 | 48x24 | column | heads + kv_heads + kv_heads"
        " | 16x24 or 8x24",
        "layers.*.self_attn.qkv_proj.bias | 3 | 48 | column | heads + kv_heads + kv_heads"
        " | 16 or 8",
        "layers.*.self_attn.o_proj.weight | 3 | 24x24 | row | heads | 24x8 or 24x4",
        "layers.*.self_attn.o_proj.bias | 3 | 24 | whole | 24",
        "layers.*.mlp.gate_up_proj.weight | 3 | 20x24 | column | features + features"
        " | 6x24 or 4x24",
        "layers.*.mlp.down_proj.weight | 3 | 24x10 | row | features | 24x3 or 24x2",
        "layers.*.norm.weight | 3 | 24 | whole | 24",
        "layers.*.embed.weight | 3 | 30x24 | whole | 30x24",
        "a rank holds 4,728 of 9,792 numbers at most",
        "no rule names 3 of the matrices: layers.0.embed.weight, layers.1.embed.weight, "
        "layers.2.embed.weight",
    ]
    assert made.unmatched == tuple(f"layers.{k}.embed.weight" for k in range(3))
    assert [made.heads_on(rank) for rank in range(4)] == [(4, 2), (4, 2), (2, 1), (2, 1)]


def test_layers_that_repeat_are_looked_at_once_and_not_for_every_rank() -> None:
    made = plan({f"{k}.mlp.up_proj.weight": (100, 4) for k in range(200)}, 100, rules="llama")
    with counted() as seen:
        assert "a rank holds 800 of 80,000 numbers at most" in str(made)
    assert seen["call"] < 40_000  # many more if each rank went through all layers


def test_features_are_cut_in_grains() -> None:
    made = plan({"mlp.up_proj.weight": (10, 4)}, 2, rules="llama", grain=4)
    assert [made.local_shape("mlp.up_proj.weight", rank) for rank in range(2)] == [(4, 4), (6, 4)]


def test_one_rank_has_it_all() -> None:
    assert planned(weights(), 1).elements(0) == sum(x.size for x in weights().values())


def test_plans_are_values() -> None:
    made = planned(weights(), 4)
    assert made == pickle.loads(pickle.dumps(made)) == planned(weights(), 4)
    assert hash(made) == hash(planned(weights(), 4))
    assert made != planned(weights(), 2)
    assert repr(made) == "<TensorPlan of 8 weights for 4 ranks>"


def test_a_weight_that_cannot_be_cut_is_named() -> None:
    x = {"self_attn.q_proj.weight": np.ones((10, 4))}
    text = r"weights\['self_attn.q_proj.weight'\], shape \(10, 4\), axis 0: 10 features do not"
    with pytest.raises(SizeError, match=text):
        plan(x, 2, rules="llama", config=CONFIG)
    with pytest.raises(ShardingError, match="axis 0: config: names no heads, and the rule cuts"):
        plan(x, 2, rules="llama")
    latent = {"self_attn.kv_a_proj_with_mqa.weight": (6, 4)}
    with pytest.raises(ShardingError, match="config: names no qk_rope_head_dim, which the rule '"):
        plan(latent, 2, rules="deepseek_v2", config=CONFIG)


def test_a_config_may_say_nothing_of_queries_where_none_are_cut() -> None:
    x = {"mlp.up_proj.weight": (6, 4)}
    made = plan(x, 2, rules="llama", config={"num_key_value_heads": 3})
    assert made.local_shape("mlp.up_proj.weight", 0) == (3, 4)


@pytest.mark.parametrize(
    ("layer", "shape", "style", "known"),
    [
        ("q", (4,), "colwise", True),
        ("k", (4,), "colwise", True),
        ("q", (16,), "colwise", False),  # over all heads together: it would see only some of them
        ("q", (4, 4), "colwise", False),  # with numbers of its own for each head
        ("q", (4,), "colwise_gather_output", False),  # every rank sees all heads
        ("q", (4,), "replicate", False),
        ("q", (4,), "rowwise", False),
    ],
)
def test_norms_of_heads_that_a_plan_leaves_out_have_a_rule(
    layer: str, shape: tuple[int, ...], style: str, known: bool
) -> None:
    config = {"num_attention_heads": 4, "num_key_value_heads": 2}
    name, rows = f"0.self_attn.{layer}_norm.weight", {"q": 16, "k": 8}[layer]
    x = {f"0.self_attn.{layer}_proj.weight": (rows, 8), name: shape}
    made = plan(x, 2, config=config, rules={f"*.self_attn.{layer}_proj": style})
    rule = made[name].rule
    assert (rule is not None and rule.partial_grads) == known
    assert made.unused == ()
    own = [Rule("self_attn.*_proj", "column", "heads")]  # a list of rules is taken as it is
    assert plan(x, 2, config=config, rules=own)[name].rule is None


@pytest.mark.parametrize(
    ("layer", "pattern"),
    [("qkv_proj", "qkv_proj"), ("qkv_proj", "self_attn.*_proj"), ("q_proj", "o_proj")],
)
def test_norms_of_what_is_not_cut_by_itself_have_no_rule(layer: str, pattern: str) -> None:
    attention = {layer: (16, 8), "o_proj": (8, 16)}
    x = {f"self_attn.{name}.weight": shape for name, shape in attention.items()}
    x["self_attn.q_norm.weight"] = (4,)
    made = plan(x, 2, rules={pattern: "colwise"}, config={"num_attention_heads": 4})
    assert made["self_attn.q_norm.weight"].rule is None


@pytest.mark.parametrize("argument", ["parts", "grain"])
def test_a_number_below_one_is_refused(argument: str) -> None:
    numbers = {"parts": 2, argument: 0}
    with pytest.raises(SizeError, match=f"^{argument}: 0; wanted at least 1"):
        plan({"mlp.up_proj.weight": (6, 4)}, rules="llama", **numbers)


@pytest.mark.parametrize(
    ("config", "kind", "text"),
    [
        ("llama", TypeError, "config: 'llama'; wanted an object or a dict with transformers' keys"),
        (Path("a.json"), TypeError, r"config: \w*Path\('a.json'\); wanted an object or a dict"),
        (4, TypeError, "config: 4; wanted an object or a dict with transformers' keys"),
        ([4], TypeError, r"config: \[4\]; wanted an object or a dict with transformers' keys"),
        ({"n_head": "4"}, TypeError, "config: n_head: '4' is a str; wanted an int"),
        ({"n_head": 0}, SizeError, "config: n_head: 0; wanted at least 1"),
        ({"n_head": 4, "n_kv_heads": [1, 2]}, TypeError, r"config: n_kv_heads: \[1, 2\] is a list"),
    ],
)
def test_a_config_without_numbers_is_refused_by_its_key(
    config: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=f"^{text}"):
        plan({"self_attn.q_proj.weight": (16, 4)}, 2, rules="llama", config=config)


def test_a_layer_whose_weights_have_no_shape_yet_is_named() -> None:
    torch = pytest.importorskip("torch")
    text = r"^weights\['up_proj.weight'\]: a torch.nn.parameter.UninitializedParameter; wanted an"
    with pytest.raises(TypeError, match=text):
        plan(torch.nn.ModuleDict({"up_proj": torch.nn.LazyLinear(4)}), 2, rules="llama")


def test_a_class_of_modules_is_no_module() -> None:
    with pytest.raises(TypeError, match="weights: a type; wanted a dict of names and arrays"):
        plan(Module, 2, rules="llama")


class Module:
    """What has a state dict."""

    def state_dict(self) -> dict[str, Any]:
        return {}
