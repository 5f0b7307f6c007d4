"""A family that does not ship with xlayout is given as a value, wherever a name would do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.port.models import (
    edit_config,
    refused,
    same_bytes,
    save_llama,
    save_tensors,
    tensors,
)
from xlayout import port
from xlayout.errors import PortError
from xlayout.port import Dialect, Family, PortPlan, Rule


def renamed(name: str) -> str:
    return name.replace("model.", "net.")


def with_other_names(dialect: Dialect) -> Dialect:
    rules = [replace(r, name=renamed(r.name), target=renamed(r.target)) for r in dialect.rules]
    return replace(dialect, rules=tuple(rules))


def of_llamas_under_other_names() -> Family:
    llama = port.families()[0]
    dialects = {key: with_other_names(dialect) for key, dialect in llama.dialects.items()}
    architectures = ("NetForCausalLM",)
    return replace(llama, name="net", architectures=architectures, dialects=dialects)


def test_a_model_is_ported_there_and_back(wide_llama: Path, tmp_path: Path) -> None:
    net, family = tmp_path / "net", of_llamas_under_other_names()
    net.mkdir()
    (net / "config.json").write_bytes((wide_llama / "config.json").read_bytes())
    edit_config(net, architectures=["NetForCausalLM"])
    save_tensors(net, {renamed(name): x for name, x in tensors(wide_llama).items()})

    assert "family net, hf: every tensor" in str(port.inspect(net, family=family))
    seen: list[PortPlan] = []
    made = port.run(net, tmp_path / "tree", to="maxtext", family=family, planned=seen.append)
    assert seen == [made.plan]
    port.run(wide_llama, tmp_path / "llama", to="maxtext")
    assert port.verify(tmp_path / "llama", tmp_path / "tree", family="llama").identical
    port.run(tmp_path / "tree", tmp_path / "back", to="hf", family=family)
    assert port.verify(net, tmp_path / "back", family=family).identical
    assert not port.diff(net, tmp_path / "back", family=family).lines


def test_a_dialect_for_maxtext_without_a_rope_is_refused(tmp_path: Path) -> None:
    source = save_llama(tmp_path / "hf", num_key_value_heads=2)
    llama = port.families()[0]
    bare = replace(llama.dialects["maxtext"], config={})
    family = replace(llama, dialects={**llama.dialects, "maxtext": bare})
    text = r"family: 'llama' has a dialect for MaxText whose config is \{\}; wanted a rope_type"
    refused(source, tmp_path / "out", text, family=family)


def test_small_files_of_a_format_have_no_place_in_a_single_one(
    wide_llama: Path, tmp_path: Path
) -> None:
    llama = port.families()[0]
    hf = replace(llama.dialects["hf"], files={"note.txt": b"x"})
    family = replace(llama, dialects={**llama.dialects, "hf": hf})
    alone = port.run(wide_llama, tmp_path / "x.safetensors", to="hf", family=family).plan
    assert (alone.extras, alone.unplaced[-1]) == ({}, "note.txt")
    assert port.run(wide_llama, tmp_path / "x", to="hf", family=family).plan.unplaced == ()
    assert (tmp_path / "x" / "note.txt").read_bytes() == b"x"


@pytest.mark.parametrize(
    ("names", "heading"),
    [(("/a/b", "c"), "from"), (("m//x", "m//y"), "from m//…"), (("m/ab/x", "m/ac/x"), "from m/…")],
)
def test_the_heading_has_the_folders_that_names_share(
    tmp_path: Path, names: tuple[str, str], heading: str
) -> None:
    rules = tuple(Rule(name, name, "h") for name in names)
    family = Family("own", (), {"h": "3"}, {"hf": Dialect("safetensors", rules)})
    (tmp_path / "config.json").write_text('{"h": 3}')
    save_tensors(tmp_path, {name: np.zeros(3) for name in names})
    shown = str(port.plan(tmp_path, tmp_path / "out", to="hf", family=family)).splitlines()
    assert shown[1].startswith(f"{heading}  ")
    cut = heading.removeprefix("from").strip().removesuffix("…")
    assert [line.split()[0] for line in shown[3:5]] == [name.removeprefix(cut) for name in names]


@pytest.mark.parametrize("layers", [0, 2])
def test_experts_need_not_be_in_layers(tmp_path: Path, layers: int) -> None:
    names = ["norm.w", *(["layers.{layer}.w"] if layers else [])]
    others = tuple(Rule(name, name, "h w") for name in names)
    apart = Rule("experts.{expert}.w", "experts.{expert}.w", "h w")
    stacked = replace(apart, target="experts", pattern="h w -> expert h w")
    dialects = {
        "hf": Dialect("safetensors", (*others, apart)),
        "dcp": Dialect("dcp", (*others, stacked)),
    }
    sizes = {"h": "3", "w": "2", "expert": "num_experts", **({"layer": "2"} if layers else {})}
    family, source = Family("own", (), sizes, dialects), tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_text('{"num_experts": 2}')
    stored = ["norm.w", *(f"layers.{n}.w" for n in range(layers)), "experts.0.w", "experts.1.w"]
    save_tensors(source, {name: np.full((3, 2), n) for n, name in enumerate(stored)})
    port.run(source, tmp_path / "dcp", to="dcp", family=family)
    port.run(tmp_path / "dcp", tmp_path / "hf", to="hf", family=family)
    assert same_bytes(source, tmp_path / "hf")
    with pytest.raises(PortError, match=r"layers of 1,000,001 experts; wanted at most 1,000,000"):
        family.model_sizes({"num_experts": 1_000_001})


@pytest.mark.parametrize("family", port.families(), ids=lambda family: family.name)
def test_a_family_survives_a_process_boundary(family: Family) -> None:
    for other in (pickle.loads(pickle.dumps(family)), copy.deepcopy(family)):
        assert other == family
