"""Every rule against a formula of its own: one element at a time, by index, nothing shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest

from xlayout.errors import PatternError, PortError
from xlayout.port import families
from xlayout.port.families.llama import LLAMA
from xlayout.port.family import Dialect, Family
from xlayout.port.rules import Place, Power, Rule

CONFIG = {
    "num_hidden_layers": 2,
    "vocab_size": 7,
    "hidden_size": 5,
    "intermediate_size": 9,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
N, G, D, H = 6, 2, 8, 5
HALF = D // 2

Index = tuple[int, ...]
Formula = Callable[[Index], Index]


def transposed(at: Index) -> Index:
    return at[::-1]


def same(at: Index) -> Index:
    return at


def turned(row: int) -> int:
    """Where a row of q or k goes: in its head, half s and place j become pair j, side s."""
    head, s, j = row // D, (row % D) // HALF, row % HALF
    return head * D + 2 * j + s


def paired_rows(at: Index) -> Index:
    return turned(at[0]), at[1]


def kernel(at: Index) -> Index:
    return at[1], at[0] // D, at[0] % D


def paired_kernel(at: Index) -> Index:
    return at[1], at[0] // D, turned(at[0]) % D


def out_kernel(at: Index) -> Index:
    return at[1] // D, at[1] % D, at[0]


LAYER = "model.layers.{layer}."
PROJECTIONS = {
    LAYER + "self_attn.v_proj.weight": kernel,
    LAYER + "self_attn.o_proj.weight": out_kernel,
    LAYER + "mlp.gate_proj.weight": transposed,
    LAYER + "mlp.up_proj.weight": transposed,
    LAYER + "mlp.down_proj.weight": transposed,
    "lm_head.weight": transposed,
}
QUERY_KEY = (LAYER + "self_attn.q_proj.weight", LAYER + "self_attn.k_proj.weight")

FORMULAS: dict[str, dict[str, Formula]] = {
    "hf": {},
    "gguf": dict.fromkeys(QUERY_KEY, paired_rows),
    "maxtext": PROJECTIONS | dict.fromkeys(QUERY_KEY, paired_kernel),
    "maxtext-default-rope": PROJECTIONS | dict.fromkeys(QUERY_KEY, kernel),
}

EVERY_RULE = [
    pytest.param(key, rule, id=f"{key}-{rule.target}")
    for key, dialect in LLAMA.dialects.items()
    for rule in dialect.rules
]


def indices(shape: Index) -> Iterator[Index]:
    return product(*map(range, shape))


@pytest.mark.parametrize(("key", "rule"), EVERY_RULE)
def test_every_element_goes_where_the_formula_says(key: str, rule: Rule) -> None:
    formula = FORMULAS[key.removesuffix("-unscanned")].get(rule.name, same)
    sizes = LLAMA.model_sizes(CONFIG)
    layer = 1 if rule.per_layer else None
    source = np.arange(np.prod(rule.shape(sizes))).reshape(rule.shape(sizes))
    target = np.full(rule.target_shape(sizes), -1)
    region = Place(rule, layer).region(sizes, 0, sizes[rule.lead])
    target[region] = rule.layout(sizes)(source).reshape(target[region].shape)
    for at in indices(source.shape):
        there = list(formula(at))
        if rule.per_layer and key.startswith("maxtext") and "unscanned" not in key:
            there.insert(1, 1)  # the stack is axis 1, and this is layer 1 of it
        assert target[tuple(there)] == source[at]
    assert (target != -1).sum() == source.size


@pytest.mark.parametrize("rule", [case.values[1] for case in EVERY_RULE], ids=str)
def test_tiles_are_the_whole_cut_up(rule: Rule) -> None:
    sizes = LLAMA.model_sizes(CONFIG)
    place = Place(rule, 1 if rule.per_layer else None)
    home = LLAMA.dialects["hf"].rules
    canonical = Place(next(r for r in home if r.name == rule.name), place.layer)
    whole = np.arange(np.prod(rule.shape(sizes))).reshape(rule.shape(sizes))
    target = np.full(rule.target_shape(sizes), -1)
    for start in range(0, sizes[rule.lead], 2):
        stop = min(start + 2, sizes[rule.lead])
        region = place.region(sizes, start, stop)
        tile = whole[canonical.region(sizes, start, stop)]
        target[region] = rule.layout(sizes, stop - start)(tile).reshape(target[region].shape)
    once = np.full_like(target, -1)
    region = place.region(sizes, 0, sizes[rule.lead])
    once[region] = rule.layout(sizes)(whole).reshape(once[region].shape)
    assert np.array_equal(target, once)


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_every_rule_can_be_undone(family: Family) -> None:
    sizes = family.model_sizes(CONFIG)
    for dialect in family.dialects.values():
        for rule in dialect.rules:
            layout = rule.layout(sizes)
            assert (layout >> layout.inverse()).is_identity


def test_query_kernels_alone_are_scaled_and_only_in_maxtext() -> None:
    scaled = {
        (key, rule.name, str(rule.scale))
        for key, dialect in LLAMA.dialects.items()
        for rule in dialect.rules
        if rule.scale
    }
    keys = [key for key in LLAMA.dialects if key.startswith("maxtext")]
    assert scaled == {(key, QUERY_KEY[0], "1/√dim") for key in keys}
    assert Power("dim", -0.5).of({"dim": 64}) == 0.125


@pytest.mark.parametrize(
    ("target", "pattern", "text"),
    [
        ("b", "h w -> w d", "both sides must name the same"),
        ("b", "(g h) w -> (h g) w", "'g', which leads the canonical tensor, must come first"),
        ("b.{layer}", "h -> h layer", "wanted `layer` among the target's axes where"),
        ("b", "h -> h", "wanted `layer` among the target's axes where"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(target: str, pattern: str, text: str) -> None:
    name = "a.{layer}" if "layer" in pattern or pattern == "h -> h" else "a"
    with pytest.raises(PatternError, match=text):
        Rule(name, target, pattern)


def test_a_family_must_cover_the_same_tensors_in_every_dialect() -> None:
    one, other = Rule("a", "a", "h"), Rule("b", "b", "h")

    def family(*rules: Rule) -> Family:
        dialects = {"hf": Dialect("safetensors", (one, other)), "x": Dialect("gguf", rules)}
        return Family("f", (), {"h": "1"}, dialects)

    family(one, other)
    with pytest.raises(PortError, match=r"f, x: rules for \['b'\] are missing or unknown"):
        family(one)
    with pytest.raises(PortError, match=r"f, x: \['a'\] stand in two rules"):
        family(one, Rule("b", "a", "h"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hidden_size": None}, "config: it has no hidden_size; it gives the embed size"),
        ({"hidden_size": 0}, "hidden_size is 0; wanted a positive whole number"),
        ({"hidden_size": "64"}, "hidden_size is '64'; wanted a positive whole number"),
        (
            {"hidden_size": 10**400 + 1, "head_dim": None},
            r"hidden_size is 10(,000){19},0; wanted at most 1,099,511,627,776",
        ),
        ({"head_dim": 7}, "dim / two is 3.5; wanted a positive whole number"),
        ({"head_dim": None, "hidden_size": 64, "num_attention_heads": 6}, "embed / heads is 10.66"),
    ],
)
def test_a_config_without_whole_sizes_is_refused(change: dict[str, object], text: str) -> None:
    with pytest.raises(PortError, match=text):
        LLAMA.model_sizes({**CONFIG, **change})
