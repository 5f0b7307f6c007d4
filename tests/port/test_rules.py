"""Every rule against a formula of its own: one element at a time, by index, nothing shared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.port.formulas import CONFIG, EXPERT, LAYER, Index, formula
from xlayout.errors import PatternError, PortError
from xlayout.port import families
from xlayout.port.families.llama import LLAMA
from xlayout.port.family import Dialect, Family
from xlayout.port.places import Place
from xlayout.port.rules import Part, Power, Rule

Array = np.ndarray[Any, np.dtype[np.int64]]

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


def fill(
    target: np.ndarray, place: Place, sizes: dict[str, int], start: int, stop: int, x: np.ndarray
) -> None:
    """Put what a rule makes of a tile at its place."""
    begin = 0
    for region in place.regions(sizes, start, stop):
        shape = target[region].shape
        target[region] = x.reshape(-1)[begin : begin + np.prod(shape, dtype=int)].reshape(shape)
        begin += np.prod(shape, dtype=int)
    assert begin == x.size


@pytest.mark.parametrize(("family", "key", "rule"), EVERY_RULE)
def test_every_element_goes_where_the_formula_says(family: Family, key: str, rule: Rule) -> None:
    goes = formula(family, key.removesuffix("-unscanned"), rule.name)
    sizes = family.model_sizes(CONFIG)
    source = np.arange(np.prod(rule.shape(sizes))).reshape(rule.shape(sizes))
    target = np.full(rule.target_shape(sizes), -1)
    fill(target, placed(rule), sizes, 0, sizes[rule.lead], rule.layout(sizes)(source))
    stack = {"megatron": 0}.get(
        key, 1 if key.startswith("maxtext") and "unscanned" not in key else None
    )
    for at in indices(source.shape):
        there = list(goes(at))
        if "layer" in rule.name and stack is not None:
            there.insert(stack, LAYER)  # of experts too
        assert target[tuple(there)] == source[at]
    assert (target != -1).sum() == source.size


@pytest.mark.parametrize(("family", "key", "rule"), EVERY_RULE)
@pytest.mark.parametrize("step", [1, 2, 4])
def test_tiles_are_the_whole_cut_up(family: Family, key: str, rule: Rule, step: int) -> None:
    del key
    sizes = family.model_sizes(CONFIG)
    place = placed(rule)
    home = family.dialects["hf"].rules
    canonical = replace(place, rule=next(r for r in home if r.name == rule.name))
    whole = np.arange(np.prod(rule.shape(sizes))).reshape(rule.shape(sizes))
    target = np.full(rule.target_shape(sizes), -1)
    for start in range(0, sizes[rule.lead], step):
        stop = min(start + step, sizes[rule.lead])
        (region,) = canonical.regions(sizes, start, stop)
        fill(target, place, sizes, start, stop, rule.layout(sizes, stop - start)(whole[region]))
    once = np.full_like(target, -1)
    fill(once, place, sizes, 0, sizes[rule.lead], rule.layout(sizes)(whole))
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
            for region in place.regions(sizes, 0, sizes[place.rule.lead]):
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
        *(
            ("b", pattern, rf"b: {re.escape(repr(pattern))}; wanted names of sizes, each once on a")
            for pattern in (
                "",
                "()",
                "g g",
                "g () w",
                "(g w",
                "(g (w d))",
                "g w 1",
                "(g + w) d",
                "g, w",
                "g w -> w -> g",
            )
        ),
    ],
)
def test_a_rule_that_cannot_work_is_refused(target: str, pattern: str, text: str) -> None:
    name = "a.{layer}" if "layer" in pattern or pattern == "h -> h" else "a"
    with pytest.raises(PatternError, match=text):
        Rule(name, target, pattern)


@pytest.mark.parametrize(
    ("name", "target"),
    [("a", "b.{layer}"), ("a.{layer}", "b.{layer}.{expert}"), ("a.{head}", "b"), ("a", "{b")],
)
def test_braces_that_name_nothing_to_count_are_refused(name: str, target: str) -> None:
    text = f"^{re.escape(target)}: of {name!r}; wanted braces for {{layer}} and {{expert}} only"
    with pytest.raises(PatternError, match=text):
        Rule(name, target, "h w")


def test_a_part_that_does_not_lead_its_target_is_refused() -> None:
    part = Part(("h", "h"), 0)
    assert Rule("a.{layer}", "b", "h w -> layer h w", part=part).target_shape(
        {"layer": 3, "h": 2, "w": 5}
    ) == (3, 4, 5)
    for pattern in ("h w -> w h", "h w -> h layer w"):
        name = "a.{layer}" if "layer" in pattern else "a"
        with pytest.raises(PatternError, match=r"'h', which leads .*, must lead the target"):
            Rule(name, "b", pattern, part=part)


def test_a_part_that_does_not_divide_its_axis_is_refused() -> None:
    rule = Rule("a", "b", "(h d) w", part=Part(("g d", "d"), 0))
    sizes = {"h": 6, "d": 4, "w": 5, "g": 3}
    assert rule.target_shape(sizes) == (32, 5)
    with pytest.raises(PatternError, match=r"b: part 1 of g d \+ d, of 16, in an axis of 24"):
        rule.target_shape({**sizes, "g": 4})


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
    first, second = (Part(("h", "h"), index) for index in range(2))
    fused = Rule("a", "ab", "h", part=first)
    family(fused, Rule("b", "ab", "h", part=second))
    with pytest.raises(PortError, match=r"f, x: \['ab'\] stand in two rules"):
        family(fused, Rule("b", "ab", "h", part=first))
    for odd in (None, Part(("h", "h", "h"), 1)):
        with pytest.raises(
            PortError, match=r"f, x: ab: its parts are .*; wanted each of \('h', 'h'\)"
        ):
            family(fused, Rule("b", "ab", "h", part=odd))
    with pytest.raises(PortError, match=r"f, x: ab: its parts are .*; wanted each of \('h', 'h'\)"):
        family(fused, other)


def test_a_family_says_where_every_size_is() -> None:
    rules = (Rule("a.{layer}", "a.{layer}", "h w", part=Part(("h", "d"), 0), scale=Power("e", 2)),)
    rules += (Rule("b.{layer}", "a.{layer}", "d w", part=Part(("h", "d"), 1)),)
    dialects = {"hf": Dialect("safetensors", rules)}
    sizes = dict.fromkeys(("layer", "h", "w", "d", "e"), "1")
    Family("f", (), sizes, dialects)
    for size in sizes:
        others = {name: way for name, way in sizes.items() if name != size}
        with pytest.raises(
            PortError,
            match=rf"f, hf: its rules name \['{size}'\]; sizes has .*, wanted all of them",
        ):
            Family("f", (), others, dialects)
    for way in ("w / h", "h / hidden_size", "h / 0"):
        with pytest.raises(
            PortError, match=f"f: sizes: h is '{way}'; wanted a quotient of sizes before it"
        ):
            Family("f", (), {**sizes, "h": f"heads | {way}"}, dialects)
    with pytest.raises(PortError, match=r"f: dialects are \['x'\]; wanted 'hf' among them"):
        Family("f", (), sizes, {"x": dialects["hf"]})


@pytest.mark.parametrize("tied", [{"c": "a"}, {"a": "c"}, {"b.{layer}": "a"}], ids=str)
def test_only_what_a_model_has_once_is_tied(tied: dict[str, str]) -> None:
    rules = (Rule("a", "a", "h"), Rule("b.{layer}", "b.{layer}", "h"))
    dialects = {"hf": Dialect("safetensors", rules)}
    family = Family("f", (), {"h": "1", "layer": "2"}, dialects, tied=tied)
    assert family.absent({}) == {}
    with pytest.raises(PortError, match=r"^f: tied names \['(c|b.*)'\]; wanted some of \['a'\]$"):
        family.absent({"tie_word_embeddings": True})


def test_a_dialect_behind_a_prefix_has_it_on_all_names() -> None:
    dialect = Dialect("dcp", (Rule("a", "b", "h"),), ignored=("c",)).behind("model.")
    assert dialect == Dialect("dcp", (Rule("a", "model.b", "h"),), ignored=("model.c",))


def test_embeddings_of_which_a_config_says_nothing_are_not_tied() -> None:
    for config in ({}, {"tie_word_embeddings": None}, {"tie_word_embeddings": False}):
        assert LLAMA.absent(config) == {}
    assert LLAMA.absent({"tie_word_embeddings": True}).keys() == {"lm_head.weight"}


def test_a_size_may_be_a_quotient_by_a_number() -> None:
    dialects = {"hf": Dialect("safetensors", (Rule("a", "a", "h d"),))}
    assert Family("f", (), {"h": "8", "d": "h / 2"}, dialects).model_sizes({}) == {"h": 8, "d": 4}


def test_a_model_may_have_no_layers() -> None:
    dialects = {"hf": Dialect("safetensors", (Rule("a", "a", "h"),))}
    family = Family("f", (), {"h": "1"}, dialects)
    assert [place.name for place in dialects["hf"].places(family.model_sizes({}))] == ["a"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hidden_size": "6" * 200}, r"hidden_size is '6{79}; wanted a positive whole number"),
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
