"""What wraps or holds a model puts a prefix before its names, and so may what wraps a layer."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from tests.port.formats.dcp_saves import save_dcp
from tests.port.models import DECODERS, refused, same_bytes, save_model
from xlayout import port

State = dict[str, torch.Tensor]


@pytest.fixture
def state(wide_llama: Path) -> State:
    found: State = load_file(wide_llama / "model.safetensors")
    return found


def behind(prefix: str, state: State) -> State:
    return {prefix + name: values.clone() for name, values in state.items()}


def saved(folder: Path, source: Path, state: State) -> Path:
    folder.mkdir()
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    save_file(state, folder / "model.safetensors")
    return folder


def saved_by_torch(folder: Path, source: Path, state: dict[str, Any]) -> Path:
    save_dcp(folder, state)
    (folder / "config.json").write_bytes((source / "config.json").read_bytes())
    return folder


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module.base.", "model."])
def test_a_wrapped_model_in_a_file_is_the_model(
    wide_llama: Path, state: State, tmp_path: Path, prefix: str
) -> None:
    there = saved(tmp_path / "there", wide_llama, behind(prefix, state))
    report = port.run(there, tmp_path / "out", to="hf")
    assert report.plan.dialects == (f"hf behind {prefix!r}", "hf")
    assert same_bytes(wide_llama, tmp_path / "out")
    assert port.verify(there, wide_llama).identical
    assert port.inspect(there).verdict == (
        f"family llama, hf behind {prefix!r}: every tensor accounted for"
    )


def wrapped(state: State, wrappers: list[str]) -> State:
    """The names of a model whose MLPs, and whose layers except the last, are in wrappers."""
    around = "".join(wrappers)
    found = {}
    for name, values in state.items():
        name = re.sub(r"(layers\.[01]\.)", rf"\1{around}", name)
        found[name.replace(".mlp.", f".mlp.{wrappers[0]}")] = values.clone()
    return found


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize(
    "wrappers",
    [
        ["_orig_mod."],
        ["_checkpoint_wrapped_module."],
        ["_orig_mod.", "_checkpoint_wrapped_module.", "_fsdp_wrapped_module."],
    ],
)
def test_layers_that_are_wrapped_are_the_layers(
    wide_llama: Path, state: State, tmp_path: Path, wrappers: list[str], prefix: str
) -> None:
    there = saved(tmp_path / "there", wide_llama, behind(prefix, wrapped(state, wrappers)))
    assert port.verify(there, wide_llama).identical
    report = port.run(there, tmp_path / "out", to="hf", max_ram="100kB")
    assert all(repr(each) in report.plan.dialects[0] for each in wrappers)
    assert same_bytes(wide_llama, tmp_path / "out")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what torch itself imports
def test_a_compiled_layer_of_a_saved_model_is_the_layer(tmp_path: Path) -> None:
    """As torch names it; a trainer's state has the same names, and is left out."""
    import transformers

    source = save_model(tmp_path / "source", "Llama", dtype="float32", num_key_value_heads=2)
    model: Any = transformers.LlamaForCausalLM.from_pretrained(source)
    layers = model.model.layers
    layers[1] = torch.compile(layers[1])
    layers[2] = checkpoint_wrapper(layers[2])
    state = dict(model.state_dict())
    assert any("layers.1._orig_mod.mlp" in name for name in state)
    optim = {"state": {name: {"step": torch.zeros(1)} for name in state}}
    there = saved_by_torch(tmp_path / "there", source, {"model": state, "optim": optim})
    report = port.run(there, tmp_path / "out", to="hf")
    assert report.plan.dialects == ("dcp-model without '_orig_mod.'", "hf")
    assert any("optim.state." in name for name in report.plan.unkept)
    assert same_bytes(source, tmp_path / "out")


def test_a_layer_that_is_there_wrapped_and_not_is_refused(
    wide_llama: Path, state: State, tmp_path: Path
) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    inside = "model.layers.1._orig_mod.mlp.up_proj.weight"
    there = saved(tmp_path / "there", wide_llama, {**state, inside: state[name] + 1})
    refused(there, tmp_path / "out", rf"'{inside}' and '{name}' are both '{name}' where nothing")


def test_a_model_inside_an_application_is_found_beside_its_training_state(
    wide_llama: Path, state: State, tmp_path: Path
) -> None:
    """As torch's own tutorial saves it."""
    app = {"model": state, "optim": {"exp_avg": torch.zeros(2)}}
    there = saved_by_torch(tmp_path / "there", wide_llama, {"app": app, "optimizer": {"a": app}})
    report = port.run(there, tmp_path / "out", to="hf")
    assert report.plan.dialects == ("dcp-model behind 'app.'", "hf")
    assert "app.optim.exp_avg" in report.plan.unkept
    assert "optimizer.a.optim.exp_avg" in report.plan.unkept
    assert same_bytes(wide_llama, tmp_path / "out")


def test_a_wrapped_model_beside_an_optimizer_is_found(
    wide_llama: Path, state: State, tmp_path: Path
) -> None:
    held = {"model": behind("module.", state), "optim": {"exp_avg": torch.zeros(2)}, "step": 3}
    there = saved_by_torch(tmp_path / "there", wide_llama, held)
    report = port.run(there, tmp_path / "out", to="hf")
    assert report.plan.dialects == ("dcp behind 'model.module.'", "hf")
    assert same_bytes(wide_llama, tmp_path / "out")


def test_experts_in_memory_may_be_wrapped_too(tmp_path: Path) -> None:
    kind, config = DECODERS["mixtral"]
    source = save_model(tmp_path / "source", kind, **config)
    port.run(source, tmp_path / "fused", to="hf-fused")
    state = load_file(tmp_path / "fused" / "model.safetensors")
    there = saved_by_torch(tmp_path / "there", source, behind("_orig_mod.", state))
    report = port.run(there, tmp_path / "out", to="hf")
    assert report.plan.dialects == ("dcp-fused behind '_orig_mod.'", "hf")
    assert same_bytes(source, tmp_path / "out")


def test_what_is_left_over_is_refused(wide_llama: Path, state: State, tmp_path: Path) -> None:
    one = {**behind("module.", state), "module.vision.weight": torch.zeros(2)}
    there = saved(tmp_path / "there", wide_llama, one)
    refused(there, tmp_path / "out", r"unexpected \(1\): module\.vision\.weight \(did you")
    both = saved(tmp_path / "both", wide_llama, {**state, **behind("ema.", state)})
    refused(both, tmp_path / "out", r"unexpected \(\d+\): ema\.lm_head\.weight")
    some = dict(list(state.items())[:-3])
    there = saved(tmp_path / "some", wide_llama, behind("module.", some))
    refused(there, tmp_path / "out", r"missing \(\d+\): module\.model\.")


@pytest.mark.parametrize("prefix", ["{layer}.", "{0.__class__}.", "{", "a/b.", "a b."])
def test_what_a_rule_would_read_is_no_prefix(
    wide_llama: Path, state: State, tmp_path: Path, prefix: str
) -> None:
    there = saved(tmp_path / "there", wide_llama, behind(prefix, state))
    refused(there, tmp_path / "out", r"missing \(\d+\): model\.")


def test_names_of_many_words_take_no_time(wide_llama: Path, state: State, tmp_path: Path) -> None:
    long = "a." * 200_000 + "model.embed_tokens.weight"
    there = saved(tmp_path / "there", wide_llama, {**state, long: torch.zeros(1)})
    began = time.process_time()
    refused(there, tmp_path / "out", r"unexpected \(1\): a\.a\.")
    assert time.process_time() - began < 5
