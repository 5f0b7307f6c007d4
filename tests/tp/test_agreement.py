"""What a plan would silently get wrong is refused, where names and shapes show it."""

from __future__ import annotations

import pytest

from xlayout.errors import LayoutError, ShardingError
from xlayout.tp import PRESETS, Rule, plan


def attention(q: int, k: int, v: int, o: int) -> dict[str, tuple[int, ...]]:
    sizes = {"q": q, "k": k, "v": v}
    shapes = {f"self_attn.{name}_proj.weight": (n, 64) for name, n in sizes.items()}
    return {**shapes, "self_attn.o_proj.weight": (64, o)}


@pytest.mark.parametrize(
    ("shapes", "kv_heads"),
    [
        (attention(64, 32, 32, 64), 4),
        (attention(128, 32, 32, 64), 4),  # each query has a gate
        (attention(96, 48, 32, 64), 4),  # values of another size
        ({k: v for k, v in attention(64, 32, 32, 64).items() if "o_proj" not in k}, 4),
        ({k: v for k, v in attention(192, 32, 32, 64).items() if "o_proj" not in k}, 4),
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


def test_keys_without_features_agree_with_queries_without_them_alone() -> None:
    config = {"num_attention_heads": 8, "num_key_value_heads": 4}
    empty = attention(0, 0, 0, 0)
    assert plan(empty, 2, rules="llama", config=config).elements(0) == 0
    shapes = {"self_attn.q_proj.weight": (64, 4), "self_attn.k_proj.weight": (0, 4)}
    with pytest.raises(ShardingError, match=r"make these of 0 features in 'self_attn.k_proj.weig"):
        plan(shapes, 2, rules="llama", config=config)


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


def test_segments_that_the_next_layer_does_not_take_are_refused() -> None:
    def mlp(up: int, down: int) -> dict[str, tuple[int, ...]]:
        names = "mlp.dense_h_to_4h.weight", "mlp.dense_h_to_4h.bias", "mlp.dense_4h_to_h.weight"
        return dict(zip(names, ((up, 4), (up,), (4, down)), strict=True))

    plan(mlp(32, 16), 2, rules="chatglm")
    text = (
        r"'plain \+ plain' makes 2 of 8 features in 'mlp.dense_h_to_4h.weight', and "
        "'mlp.dense_4h_to_h.weight' takes 16. Give a rule"
    )
    with pytest.raises(ShardingError, match=text):  # the first ChatGLM, which has no gate
        plan(mlp(16, 16), 2, rules="chatglm")
    with pytest.raises(ShardingError, match="'plain' makes 1 of 32 features in"):
        plan(mlp(32, 16), 2, rules="bloom")
    whole = [Rule("dense_4h_to_h", "whole"), *PRESETS["bloom"]]
    plan(mlp(32, 16), 2, rules=whole)
    first = {f"layers.0.{name}": shape for name, shape in mlp(32, 16).items()}
    other = {f"layers.1.{name}": shape for name, shape in mlp(32, 32).items()}
    with pytest.raises(ShardingError, match=r"'layers\.1\.mlp.* takes 32"):
        plan({**first, **other}, 2, rules="chatglm")  # what that of another MLP takes is no excuse
    experts = {"mlp.experts.gate_up_proj": (3, 32, 4), "mlp.experts.down_proj": (3, 4, 16)}
    plan(experts, 2, rules="mixtral")
    with pytest.raises(ShardingError, match=r"in 'mlp\.experts\.gate_up_proj', and"):
        plan({**experts, "mlp.experts.down_proj": (3, 4, 32)}, 2, rules="mixtral")


def test_an_embedding_need_not_fit_a_row_layer_beside_it() -> None:
    shapes = {"model.embed.weight": (30, 8), "model.head.weight": (8, 16)}
    plan(shapes, 2, rules=[Rule("embed", "vocab"), Rule("head", "row")])
    plan(shapes, 2, rules=[Rule("embed", "column", gather=True), Rule("head", "row")])


def test_a_chatglm_whose_heads_hold_their_own_keys_has_no_preset() -> None:
    config = {"model_type": "chatglm", "num_attention_heads": 4, "multi_query_group_num": 2}
    shapes = {"self_attention.query_key_value.weight": (32, 8)}
    assert plan(shapes, 2, config={**config, "multi_query_attention": True}).parts == 2
    with pytest.raises(ShardingError, match="nothing is known of model_type 'chatglm'"):
        plan(shapes, 2, config={**config, "multi_query_attention": False})


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp.up_proj.weight_scale", (8,)),
        ("mlp.up_proj.weight_scale", (2,)),
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
    plan({**weights, name: ()}, 2, rules=rules)  # a single number for all
    del weights[name]
    for other in (f"other.{name}", "mlp.experts.gate_up_projector", "mlp.up_projector.scale"):
        plan({**weights, other: shape}, 2, rules=rules)


def test_an_adapter_around_a_cut_layer_needs_rules() -> None:
    config = {"num_attention_heads": 8, "num_key_value_heads": 4}
    weights: dict[str, tuple[int, ...]] = {**attention(64, 32, 32, 64)}
    del weights["self_attn.q_proj.weight"]
    adapter = "self_attn.q_proj"
    weights |= {f"{adapter}.base_layer.weight": (64, 64), f"{adapter}.lora_B.one.weight": (64, 2)}
    text = (
        rf"weights\['{adapter}.base_layer.weight'\]: no rule names it, and the rule "
        rf"'{adapter}' would cut the module around it, .* give a rule for each layer in there, "
        rf"as Rule\('{adapter}.base_layer', 'column', 'heads'\) or 'whole'"
    )
    with pytest.raises(ShardingError, match=text):
        plan(weights, 2, rules="llama", config=config)
    inside = [Rule("q_proj.base_layer", "column", "heads"), Rule("q_proj.lora_B.*", "whole")]
    made = plan(weights, 2, rules=[*inside, *PRESETS["llama"]], config=config)
    assert made.local_shape(f"{adapter}.base_layer.weight", 0) == (32, 64)
    away = {f"vision_tower.{name}": shape for name, shape in weights.items()}
    text_only = {f"language_model.{name}": s for name, s in attention(64, 32, 32, 64).items()}
    both = {"text_config": {"model_type": "llama", **config}}
    assert len(plan({**away, **text_only}, 2, config=both)) == len(away) + len(text_only)


@pytest.mark.parametrize("shape", [(8,), (8, 1, 1), (4,)])
def test_what_attention_holds_for_each_head_needs_a_rule(shape: tuple[int, ...]) -> None:
    config = {"num_attention_heads": 8, "num_key_value_heads": 4}
    weights = {f"layers.0.{k}": v for k, v in attention(64, 32, 32, 64).items()}
    weights["layers.0.self_attn.sinks"] = shape
    text = (
        r"weights\['layers\.0\.self_attn\.sinks'\]: no rule names it, and it has a number for each "
        "head, between which the layers beside it are cut; give a "
        r"Rule\('self_attn\.sinks', …\) that cuts it, or leave them 'whole'"
    )
    with pytest.raises(ShardingError, match=text):
        plan(weights, 2, rules="llama", config=config)
    for rule in (Rule("self_attn.sinks", "whole"), Rule("self_attn.*_proj", "whole")):
        plan(weights, 2, rules=[rule, *PRESETS["llama"]], config=config)
    for other in ((), (3,)):
        plan({**weights, "layers.0.self_attn.sinks": other}, 2, rules="llama", config=config)
    mlp = {"layers.0.mlp.up_proj.weight": (16, 4), "layers.0.mlp.scale": shape}
    plan(mlp, 2, rules="llama", config=config)


@pytest.mark.parametrize("text_model", ["language_model", "text_model"])
def test_rules_of_a_text_model_leave_the_others_beside_it_whole(text_model: str) -> None:
    names = f"{text_model}.layers.0", "vision_tower.encoder.layers.0"
    weights = {f"{name}.{k}": v for name in names for k, v in attention(64, 64, 64, 64).items()}
    text = {"model_type": "llama", "num_attention_heads": 32}
    config = {"model_type": "llava", "text_config": text}
    made = plan(weights, 2, config=config)
    assert {name for name, placed in made.items() if placed.rule} == {
        name for name in weights if name.startswith(f"{text_model}.")
    }
    assert len(made.unmatched) == 4
    assert plan(weights, 2, rules="llama", config=config) == made
    assert not plan(weights, 2, rules=PRESETS["llama"], config=config).unmatched  # one's own rules


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
