"""Every rule against a formula of its own: one element at a time, by index, nothing shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
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
    "moe_intermediate_size": 9,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": 3,
    "num_experts_per_tok": 2,
}
D = 8
HALF = D // 2
LAYER, EXPERT = 1, 2

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


def bias(at: Index) -> Index:
    return at[0] // D, at[0] % D


def of_an_expert(at: Index) -> Index:
    return EXPERT, *at


def transposed_of_an_expert(at: Index) -> Index:
    return EXPERT, at[1], at[0]


QUERY_KEY = ("q_proj.weight", "k_proj.weight")
OF_EXPERTS = (
    "gate_proj.weight",
    "up_proj.weight",
    "down_proj.weight",
    *(f"w{i}.weight" for i in (1, 2, 3)),
)
MAXTEXT = {
    "v_proj.weight": kernel,
    "o_proj.weight": out_kernel,
    **dict.fromkeys(OF_EXPERTS, transposed),
    "gate.weight": transposed,
    "lm_head.weight": transposed,
    **dict.fromkeys(("q_proj.bias", "k_proj.bias", "v_proj.bias"), bias),
}
PAIRS = {  # the dialects whose rope turns neighbours, and in which families
    "gguf": ("llama", "mixtral"),
    "maxtext": ("llama",),
}


def formula(family: Family, key: str, name: str) -> Formula:
    """Where an element of a weight goes, by the tail of its name."""
    tail = name if name == "lm_head.weight" else ".".join(name.split(".")[-2:])
    pairs = family.name in PAIRS.get(key, ())
    expert = "expert" in name
    if key in ("hf", "dcp"):
        return same
    if key == "gguf":
        turns = paired_rows if pairs and tail in QUERY_KEY else same
        return of_an_expert if expert else turns
    if expert:
        return transposed_of_an_expert
    if tail in QUERY_KEY:
        return paired_kernel if pairs else kernel
    return MAXTEXT.get(tail, same)


EVERY_RULE = [
    pytest.param(family, key, rule, id=f"{family.name}-{key}-{rule.name}")
    for family in families()
    for key, dialect in family.dialects.items()
    for rule in dialect.rules
]


def indices(shape: Index) -> Iterator[Index]:
    return product(*map(range, shape))


def placed(rule: Rule) -> Place:
    layer, expert = (
        at if what in rule.counted else None for what, at in (("layer", LAYER), ("expert", EXPERT))
    )
    return Place(rule, layer, expert)


@pytest.mark.parametrize(("family", "key", "rule"), EVERY_RULE)
def test_every_element_goes_where_the_formula_says(family: Family, key: str, rule: Rule) -> None:
    goes = formula(family, key.removesuffix("-unscanned"), rule.name)
    sizes = family.model_sizes(CONFIG)
    source = np.arange(np.prod(rule.shape(sizes))).reshape(rule.shape(sizes))
    target = np.full(rule.target_shape(sizes), -1)
    region = placed(rule).region(sizes, 0, sizes[rule.lead])
    target[region] = rule.layout(sizes)(source).reshape(target[region].shape)
    for at in indices(source.shape):
        there = list(goes(at))
        if "layer" in rule.name and key.startswith("maxtext") and "unscanned" not in key:
            there.insert(1, LAYER)  # the stack is axis 1, of experts too
        assert target[tuple(there)] == source[at]
    assert (target != -1).sum() == source.size


@pytest.mark.parametrize(("family", "key", "rule"), EVERY_RULE)
def test_tiles_are_the_whole_cut_up(family: Family, key: str, rule: Rule) -> None:
    del key
    sizes = family.model_sizes(CONFIG)
    place = placed(rule)
    home = family.dialects["hf"].rules
    canonical = replace(place, rule=next(r for r in home if r.name == rule.name))
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


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_every_canonical_tensor_has_its_own_place_in_every_dialect(family: Family) -> None:
    sizes = family.model_sizes(CONFIG)
    for dialect in family.dialects.values():
        places = dialect.places(sizes)
        assert len({place.name for place in places}) == len(places)
        taken: dict[str, int] = {}
        for place in places:
            region = place.region(sizes, 0, sizes[place.rule.lead])
            extent = np.prod([cut.stop - cut.start for cut in region], dtype=int)
            taken[place.tensor] = taken.get(place.tensor, 0) + int(extent)
        for place in places:  # stacks are filled by what they stack
            assert taken[place.tensor] == np.prod(place.rule.target_shape(sizes))


def test_query_kernels_alone_are_scaled_and_only_where_maxtexts_attention_is_not() -> None:
    scaled = {
        (family.name, key, rule.name, str(rule.scale))
        for family in families()
        for key, dialect in family.dialects.items()
        for rule in dialect.rules
        if rule.scale
    }
    assert scaled == {
        (family.name, key, "model.layers.{layer}.self_attn.q_proj.weight", "1/√dim")
        for family in families()
        for key in family.dialects
        if key.startswith("maxtext") and family.name in ("llama", "mistral", "mixtral")
    }
    assert Power("dim", -0.5).of({"dim": 64}) == 0.125


@pytest.mark.parametrize(
    ("target", "pattern", "text"),
    [
        ("b", "h w -> w d", "both sides must name the same"),
        ("b", "(g h) w -> (h g) w", "'g', which leads the canonical tensor, must come first"),
        ("b.{layer}", "h -> h layer", "wanted `layer` among the target's axes where"),
        ("b", "h -> h", "wanted `layer` among the target's axes where"),
        ("b.{layer}", "layer h -> h", "both sides must name the same"),
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
