"""What a GGUF file's metadata says of rope and attention reaches the config, or stops the port."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.port.models import refused
from tests.port.test_rope_factors import DIM, transformers_factors
from xlayout import port
from xlayout.errors import PortError
from xlayout.port.demo.weights import make_tiny
from xlayout.port.formats.gguf import GGUFSource
from xlayout.port.gguf_metadata import with_metadata
from xlayout.port.rope_factors import TABLE


def saying(
    path: Path, monkeypatch: pytest.MonkeyPatch, table: np.ndarray | None = None, **said: Any
) -> Path:
    """A tiny Llama whose GGUF file says more, each key with "__" for its dots."""
    write = gguf.GGUFWriter.write_header_to_file
    kinds = {str: "string", float: "float32", int: "uint32", bool: "bool", list: "array"}

    def add(writer: Any) -> None:
        for key, value in said.items():
            name = key.replace("__", ".")
            name = (
                name if name.startswith(("tokenizer.", "split.", "general.")) else f"llama.{name}"
            )
            getattr(writer, f"add_{kinds[type(value)]}")(name, value)
        if table is not None:
            writer.add_tensor(TABLE, table)
        write(writer)

    with monkeypatch.context() as patch:
        patch.setattr(gguf.GGUFWriter, "write_header_to_file", add)
        return make_tiny(path)


@pytest.mark.parametrize(
    "said",
    [
        {"rope__scaling__type": "linear", "rope__scaling__factor": 4.0},
        {"rope__scaling__factor": 4.0},
        {"rope__scale_linear": 4.0},
    ],
)
def test_linear_scaling_reaches_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    import transformers

    file = saying(tmp_path / "x.gguf", monkeypatch, **said)
    port.run(file, tmp_path / "hf", to="hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    read = transformers.LlamaConfig.from_pretrained(tmp_path / "hf").rope_parameters
    assert {key: read[key] for key in ("rope_type", "factor", "rope_theta")} == {
        "rope_type": "linear",
        "factor": 4.0,
        "rope_theta": 10_000.0,
    }
    tree = port.plan(file, tmp_path / "out", to="maxtext-default-rope").config["maxtext"]
    assert tree["rope_linear_scaling_factor"] == 4.0


@pytest.mark.parametrize(
    "said",
    [
        {"rope__scaling__type": "none", "rope__scaling__factor": 4.0},
        {"rope__scaling__type": "linear", "rope__scaling__factor": 1.0},
        {"rope__scaling__factor": 0.0},
        {"rope__scaling__original_context_length": 128, "rope__scaling__finetuned": False},
        {"attention__sliding_window": 0, "attention__scale": 0.0, "attention__causal": True},
        {"logit_scale": 1.0, "residual_scale": 1.0, "embedding_scale": 0.0},
        {"attention__sliding_window": [0, 0]},
        {"split__count": 0, "split__no": 0},
        {"general__type": "model"},
    ],
)
def test_what_changes_nothing_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]
) -> None:
    file = saying(tmp_path / "x.gguf", monkeypatch, **said)
    plain = port.plan(make_tiny(tmp_path / "y.gguf"), tmp_path / "out", to="hf").config
    assert port.plan(file, tmp_path / "out", to="hf").config == plain


PLAIN_AND_ODD: dict[str, tuple[tuple[Any, ...], Any]] = {
    "attention.causal": ((True,), False),
    "attention.clamp_kqv": ((0.0,), 8.0),
    "attention.scale": ((0.0,), 0.1),
    "attention.sliding_window": ((0,), 1),
    "attn_logit_softcapping": ((0.0,), 50.0),
    "embedding_scale": ((0.0, 1.0), 2.0),
    "expert_gating_func": ((0, 1), 2),
    "expert_group_count": ((0, 1), 2),
    "expert_shared_count": ((0,), 1),
    "expert_weights_norm": ((True,), False),
    "expert_weights_scale": ((0.0, 1.0), 2.0),
    "final_logit_softcapping": ((0.0,), 30.0),
    "leading_dense_block_count": ((0,), 1),
    "logit_scale": ((0.0, 1.0), 2.0),
    "residual_scale": ((0.0, 1.0), 2.0),
    "rope.scaling.attn_factor": ((0.0, 1.0), 2.0),
    "use_parallel_residual": ((False,), True),
}


@pytest.mark.parametrize("key", PLAIN_AND_ODD)
def test_each_key_that_could_change_the_model_stops_the_port_where_it_does(key: str) -> None:
    plain, odd = PLAIN_AND_ODD[key]
    source = object.__new__(GGUFSource)
    source.path = Path("x.gguf")
    for value in plain:
        source.metadata = {"general.architecture": "net", f"net.{key}": value}
        assert with_metadata(source, {"hidden_size": 4}) == {"hidden_size": 4}
    source.metadata = {"general.architecture": "net", f"net.{key}": odd}
    wanted = " or ".join(map(repr, plain))
    with pytest.raises(PortError, match=rf"x\.gguf: net\.{key}: {odd!r}; wanted {wanted}, because"):
        with_metadata(source, {"hidden_size": 4})


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"rope__scaling__type": "yarn"}, "rope.scaling.type: 'yarn'; wanted 'none' or 'linear'"),
        ({"rope__scaling__factor": -4.0}, "rope.scaling.factor: -4.0; wanted a positive number"),
        ({"rope__scaling__factor": 4}, "rope.scaling.factor: 4; wanted a positive number"),
        ({"rope__scale_linear": float("nan")}, "rope.scale_linear: nan; wanted a positive number"),
        ({"rope__scaling__attn_factor": 2.0}, "rope.scaling.attn_factor: 2.0; wanted 0.0 or 1.0"),
        ({"attention__key_length": 32}, "rope.dimension_count: 64; wanted 32, all of a head"),
        ({"attention__sliding_window": 16}, "attention.sliding_window: 16; wanted 0"),
        ({"attention__sliding_window": [0, 16]}, "attention.sliding_window: [0, 16]; wanted 0"),
        ({"attention__scale": 0.5}, "attention.scale: 0.5; wanted 0.0"),
        ({"attention__causal": False}, "attention.causal: False; wanted True"),
        ({"logit_scale": 4.0}, "logit_scale: 4.0; wanted 0.0 or 1.0"),
    ],
)
def test_what_has_no_place_in_the_config_stops_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], text: str
) -> None:
    file = saying(tmp_path / "x.gguf", monkeypatch, **said)
    why = f"llama.{text}, because only that can be told to another format"
    refused(file, tmp_path / "out", f"^{re.escape(f'{file}: {why}')}$", to="hf")
    assert why in str(port.inspect(file))


def test_one_file_of_a_split_model_is_told_from_a_model_that_lacks_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = saying(tmp_path / "x-00001-of-00003.gguf", monkeypatch, split__count=3, split__no=0)
    why = f"{file}: split.count: 3; wanted the whole model in one file, as "
    refused(file, tmp_path / "out", re.escape(why), to="hf")
    assert why in str(port.inspect(file))


@pytest.mark.parametrize("family", [None, "llama"])
@pytest.mark.parametrize("kind", ["adapter", "mmproj", "imatrix"])
def test_a_file_that_is_no_model_is_told_from_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, family: str | None
) -> None:
    file = saying(tmp_path / "x.gguf", monkeypatch, general__type=kind)
    why = re.escape(f"{file}: general.type: {kind!r}; wanted 'model': the file of a whole one")
    refused(file, tmp_path / "out", why, to="hf", family=family)


def test_two_scalings_at_once_stop_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = transformers_factors(DIM, 8.0)
    file = saying(tmp_path / "x.gguf", monkeypatch, table, rope__scaling__factor=4.0)
    why = (
        f"{file}: {TABLE}: factors up to 8, beside {{'rope_type': 'linear', 'factor': 4.0}}; "
        "wanted one of the two, because only that can be told to another format"
    )
    refused(file, tmp_path / "out", f"^{re.escape(why)}$", to="hf")


def test_a_tokenizer_in_the_metadata_is_not_carried_over_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {"tokenizer__ggml__bos_token_id": 1}
    plain = saying(tmp_path / "plain.gguf", monkeypatch, **ids)
    plan = port.plan(plain, tmp_path / "out", to="hf")
    assert plan.unkept == ()
    assert plan.config["bos_token_id"] == 1
    words = {"tokenizer__ggml__tokens": ["a", "b"], "tokenizer__chat_template": "{{ x }}"}
    file = saying(tmp_path / "words.gguf", monkeypatch, **ids, **words)
    plan = port.plan(file, tmp_path / "out", to="maxtext")
    assert plan.unkept == ("tokenizer.*",)
    lost = "lost, as only a model's weights are carried over: 'tokenizer.*'"
    assert lost in str(plan).splitlines()
