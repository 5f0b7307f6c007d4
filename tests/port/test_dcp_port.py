"""A Llama goes to DCP and comes back unchanged, and torch loads it into the model it belongs to."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from tests.port.formats.dcp_saves import save_dcp
from tests.port.models import MODELS, same_bytes, save_llama
from xlayout import port
from xlayout.errors import PortError
from xlayout.port.formats import open_source


def test_a_model_comes_back_from_dcp_byte_for_byte(any_llama: Path, tmp_path: Path) -> None:
    report = port.run(any_llama, tmp_path / "dcp", to="dcp")
    assert report.comparison is not None
    assert report.comparison.identical
    port.run(tmp_path / "dcp", tmp_path / "hf", to="hf")
    assert same_bytes(any_llama, tmp_path / "hf")
    configs = [
        json.loads((path / "config.json").read_text())
        for path in (any_llama, tmp_path / "dcp", tmp_path / "hf")
    ]
    assert configs[0] == configs[1] == configs[2]


def test_a_maxtext_tree_becomes_what_torch_loads_into_the_model(
    wide_llama: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    port.run(wide_llama, tmp_path / "maxtext", to="maxtext")
    port.run(tmp_path / "maxtext", tmp_path / "dcp", to="dcp")
    assert port.verify(wide_llama, tmp_path / "dcp").identical
    wanted = transformers.AutoModelForCausalLM.from_pretrained(wide_llama).state_dict()
    config = transformers.AutoConfig.from_pretrained(tmp_path / "dcp")
    state = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=tmp_path / "dcp")
    assert state.keys() == wanted.keys()
    assert all(state[name].equal(tensor) for name, tensor in wanted.items())


def test_what_torch_saved_becomes_a_maxtext_tree(wide_llama: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    state = safetensors.load_file(wide_llama / "model.safetensors")
    save_dcp(tmp_path / "dcp", {**state, "step": 3}, thread_count=2)
    (tmp_path / "dcp" / "config.json").write_bytes((wide_llama / "config.json").read_bytes())
    plan = port.plan(tmp_path / "dcp", tmp_path / "maxtext", to="maxtext")
    assert plan.unkept == ("step",)
    assert "lost, as only a model's weights are carried over: 'step'" in str(plan)
    port.run(tmp_path / "dcp", tmp_path / "maxtext", to="maxtext")
    assert port.verify(wide_llama, tmp_path / "maxtext").identical


def test_what_a_trainer_saved_is_told_by_its_names(wide_llama: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    state = safetensors.load_file(wide_llama / "model.safetensors")
    moments = {name: torch.zeros(2) for name in state}
    save_dcp(tmp_path / "dcp", {"model": state, "optim": {"exp_avg": moments}, "step": 3})
    (tmp_path / "dcp" / "config.json").write_bytes((wide_llama / "config.json").read_bytes())
    plan = port.plan(tmp_path / "dcp", tmp_path / "hf", to="hf")
    assert plan.dialects == ("dcp-model", "hf")
    assert "optim.exp_avg.model.layers.{0..2}.mlp.down_proj.weight" in plan.unkept
    assert "step" in plan.unkept
    port.run(tmp_path / "dcp", tmp_path / "hf", to="hf")
    assert same_bytes(wide_llama, tmp_path / "hf")

    port.run(tmp_path / "hf", tmp_path / "again", to="dcp-model")
    loaded = {"model": {name: torch.empty_like(weight) for name, weight in state.items()}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(loaded, checkpoint_id=tmp_path / "again")
    assert all(torch.equal(weight, state[name]) for name, weight in loaded["model"].items())


def test_the_plan_says_which_files_there_will_be(
    wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("value", "run"):
        monkeypatch.setattr(sys.modules[f"xlayout.port.{module}"], "SHARD_BYTES", 100_000)
    plan = port.plan(wide_llama, tmp_path / "dcp", to="dcp")
    assert (plan.format, plan.dialects) == ("dcp", ("hf", "dcp"))
    assert sum(plan.files.values()) == plan.write_bytes
    assert len(plan.files) > 3
    assert f"files: {len(plan.files)} files of at most 98.4 kB, __0_0.distcp to" in str(plan)
    port.run(wide_llama, tmp_path / "dcp", to="dcp")
    written = {path.name: path.stat().st_size for path in (tmp_path / "dcp").iterdir()}
    assert written.keys() == {".metadata", "config.json", *plan.companions, *plan.files}
    assert all(0 < written[file] - size < 20_000 for file, size in plan.files.items())


def test_it_is_inspected_and_compared_like_any_other(wide_llama: Path, tmp_path: Path) -> None:
    port.run(wide_llama, tmp_path / "dcp", to="dcp")
    inspection = port.inspect(tmp_path / "dcp")
    assert inspection.format == "dcp"
    assert inspection.verdict == "family llama, dcp: every tensor accounted for"
    assert port.diff(wide_llama, tmp_path / "dcp").lines == ()


def test_a_name_of_a_safetensors_file_is_refused(wide_llama: Path, tmp_path: Path) -> None:
    with pytest.raises(PortError, match="to='dcp' writes a directory; wanted a name that does not"):
        port.plan(wide_llama, tmp_path / "x.safetensors", to="dcp")


def test_what_is_beside_a_model_in_other_words_is_told(wide_llama: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    state = safetensors.load_file(wide_llama / "model.safetensors")
    save_dcp(tmp_path / "dcp", {"net": state, "adam": {"exp_avg": torch.zeros(2)}})
    (tmp_path / "dcp" / "config.json").write_bytes((wide_llama / "config.json").read_bytes())
    with pytest.raises(PortError, match=r"unexpected \(1\): adam\.exp_avg"):
        port.plan(tmp_path / "dcp", tmp_path / "hf", to="hf")


def test_what_a_training_run_of_megatron_has_beside_the_weights_stays_behind(
    wide_llama: Path, tmp_path: Path
) -> None:
    port.run(wide_llama, tmp_path / "megatron", to="megatron-per-layer")
    with open_source(tmp_path / "megatron") as source:
        state = {name: torch.from_numpy(source.read(name).view("i2")) for name in source.tensors}
    state = {name: values.view(torch.bfloat16) for name, values in state.items()}
    others = ["optimizer.state.exp_avg.decoder.x", "chained_1.optimizer.state.exp_avg.decoder.x"]
    save_dcp(tmp_path / "saved", state | {name: torch.zeros(3) for name in others})
    (tmp_path / "saved" / "config.json").write_bytes((wide_llama / "config.json").read_bytes())
    report = port.run(tmp_path / "saved", tmp_path / "hf", to="hf")
    assert sorted(report.plan.unkept) == sorted(others)
    assert same_bytes(wide_llama, tmp_path / "hf")


def test_a_tied_model_has_one_embedding_and_its_second_name_is_left_out(tmp_path: Path) -> None:
    """As in safetensors; torch's state dict has the two names."""
    transformers = pytest.importorskip("transformers")
    source = save_llama(tmp_path / "hf", **MODELS["multi-head, tied"])
    state = transformers.AutoModelForCausalLM.from_pretrained(source).state_dict()
    save_dcp(tmp_path / "both", state)
    (tmp_path / "both" / "config.json").write_bytes((source / "config.json").read_bytes())
    report = port.run(tmp_path / "both", tmp_path / "out", to="hf")
    assert report.plan.ignored == ("lm_head.weight",)
    assert same_bytes(source, tmp_path / "out")
    head = state.pop("lm_head.weight")
    port.run(source, tmp_path / "dcp", to="dcp")
    state["model.embed_tokens.weight"].zero_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=tmp_path / "dcp")
    assert state["model.embed_tokens.weight"].equal(head)
    assert head.any()
