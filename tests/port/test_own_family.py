"""A family that does not ship with xlayout is given as a value, wherever a name would do."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tests.port.models import edit_config, refused, save_llama, save_tensors, tensors
from xlayout import port
from xlayout.port import Dialect, Family, PortPlan


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


@pytest.mark.parametrize("family", port.families(), ids=lambda family: family.name)
def test_a_family_survives_a_process_boundary(family: Family) -> None:
    for other in (pickle.loads(pickle.dumps(family)), copy.deepcopy(family)):
        assert other == family
