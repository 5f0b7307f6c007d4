"""Whatever cannot be ported exactly is refused before a byte moves, and says what would work."""

from __future__ import annotations

import errno
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.port.formats.failing import failing
from tests.port.models import LLAMA3_ROPE, edit_config, refused, save_tensors, tensors
from xlayout import port
from xlayout.errors import FormatError, PortError

Q = "model.layers.{}.self_attn.q_proj.weight"


def test_names_that_do_not_fit_are_reported_all_at_once(own_llama: Path, tmp_path: Path) -> None:
    arrays = tensors(own_llama)
    for layer in range(3):
        del arrays[f"model.layers.{layer}.mlp.up_proj.weight"]
    arrays["model.layers.0.self_attn.q_proj.weigth"] = arrays.pop(Q.format(0))
    arrays["model.layers.7.mlp.down_proj.weight"] = arrays["model.norm.weight"]
    arrays["adapter"] = arrays["model.norm.weight"].copy()
    save_tensors(own_llama, arrays)
    with pytest.raises(PortError, match="the tensors are not what the rules say") as error:
        port.plan(own_llama, tmp_path / "out", to="maxtext")
    text = str(error.value)
    assert "missing (4): " in text
    assert "model.layers.{0..2}.mlp.up_proj.weight" in text
    assert "unexpected (3): " in text
    assert f"q_proj.weigth (did you mean {Q.format(0)}?)" in text
    assert "model.layers.7.mlp.down_proj.weight (the config has 3 layers, 0 to 2)" in text
    assert "adapter" in text
    refused(own_llama, tmp_path / "out", "the tensors are not what the rules say")


def test_a_shape_that_the_config_does_not_say_is_refused(own_llama: Path, tmp_path: Path) -> None:
    arrays = tensors(own_llama)
    arrays[Q.format(1)] = np.ascontiguousarray(arrays[Q.format(1)].T)
    save_tensors(own_llama, arrays)
    text = (
        r"layers\.1\.self_attn\.q_proj\.weight: shape \(64, 512\); "
        r"wanted \(512, 64\) = \(heads dim\) \(embed\), by the config"
    )
    refused(own_llama, tmp_path / "out", text)


def test_a_head_that_should_be_tied_is_not_dropped_in_silence(
    own_llama: Path, tmp_path: Path
) -> None:
    edit_config(own_llama, tie_word_embeddings=True)
    refused(own_llama, tmp_path / "out", r"unexpected \(1\): lm_head.weight")


def test_tables_that_code_recomputes_are_ignored_and_listed(
    own_llama: Path, tmp_path: Path
) -> None:
    arrays = tensors(own_llama)
    for layer in range(3):
        name = f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"
        arrays[name] = np.ones(64, np.float32)
    save_tensors(own_llama, arrays)
    plan = port.plan(own_llama, tmp_path / "out", to="maxtext")
    assert len(plan.ignored) == 3
    assert "model.layers.{0..2}.self_attn.rotary_emb.inv_freq" in str(plan)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"architectures": ["Qwen9"]}, r"architectures is \['Qwen9'\]; known are LlamaForCausalLM"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'; wanted true or false"),
        ({"architectures": 7}, r"architectures is \[\]; known are LlamaForCausalLM"),
        ({"rope_parameters": "fast"}, "config: rope_parameters is 'fast'; wanted an object"),
        ({"num_attention_heads": None}, "config: it has no num_attention_heads"),
        ({"rope_parameters": {**LLAMA3_ROPE, "factor": 32.0}}, "MaxText scales by .*'factor': 8.0"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type 'yarn'; MaxText's 'llama3.1' rope"),
        (
            {"hidden_act": "gelu"},
            "^config: hidden_act is 'gelu'; wanted 'silu', MaxText's Llama has no other$",
        ),
        (
            {"partial_rotary_factor": 0.5},
            "^config: partial_rotary_factor is 0.5; wanted 1.0, MaxText's Llama has no other$",
        ),
        (
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25}},
            "^config: partial_rotary_factor is 0.25; wanted 1.0, MaxText's Llama has no other$",
        ),
        (
            {"rms_norm_eps": "tiny"},
            "^config: rms_norm_eps is 'tiny'; wanted a number from 0 on$",
        ),
    ],
)
def test_a_config_that_cannot_be_translated_is_refused(
    own_llama: Path, tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    edit_config(own_llama, **change)
    refused(own_llama, tmp_path / "out", text)


def test_llama3_rope_is_refused_by_a_dialect_that_cannot_say_it(
    own_llama: Path, tmp_path: Path
) -> None:
    edit_config(own_llama, rope_parameters=LLAMA3_ROPE)
    text = "rope_type 'llama3'; MaxText's 'default' rope can say 'default' and 'linear'"
    refused(own_llama, tmp_path / "out", f"{text}; to='maxtext' .--to", to="maxtext-default-rope")
    edit_config(own_llama, rope_parameters={**LLAMA3_ROPE, "factor": 32.0})
    refused(own_llama, tmp_path / "out", f"{text}$", to="maxtext-default-rope")
    edit_config(own_llama, rope_parameters={"rope_type": "linear", "factor": 4.0})
    way = re.escape("; to='maxtext-default-rope-unscanned' (--to) can say 'linear'")
    refused(own_llama, tmp_path / "out", f"{way}$", to="maxtext-unscanned")


def test_a_tree_that_does_not_say_its_layout_is_not_guessed(
    wide_llama: Path, tmp_path: Path
) -> None:
    port.run(wide_llama, tmp_path / "tree", to="maxtext")
    edit_config(tmp_path / "tree", maxtext=None)
    text = r"'maxtext' is \{\}; it must say how the tree is laid out, as one of: maxtext:"
    refused(tmp_path / "tree", tmp_path / "out", text, to="hf")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"maxtext": [1]}, r"maxtext is \[1\]; wanted an object"),
        ({"xlayout": {"origin": "here"}}, "origin is 'here'; wanted an object"),
        (
            {
                "xlayout": {
                    "origin": {"params/params/decoder/layers/self_attention/query/kernel": "f9"}
                }
            },
            "dtype: float32 to f9, times .*; values change between",
        ),
    ],
)
def test_what_a_tree_says_of_itself_is_not_trusted(
    wide_llama: Path, tmp_path: Path, change: dict[str, Any], text: str
) -> None:
    port.run(wide_llama, tmp_path / "tree", to="maxtext")
    edit_config(tmp_path / "tree", **change)
    refused(tmp_path / "tree", tmp_path / "out", text, to="hf", exact=False)


@pytest.mark.parametrize("value", [["a"], {"a": 1}, [], True, 5])
def test_an_origin_is_a_dtype(own_llama: Path, tmp_path: Path, value: object) -> None:
    port.run(own_llama, tmp_path / "tree", to="maxtext")
    edit_config(tmp_path / "tree", xlayout={"origin": {"q": value}})
    text = f"config: xlayout.origin of 'q' is {value!r}; wanted a dtype's name"
    refused(tmp_path / "tree", tmp_path / "out", f"^{re.escape(text)}$", to="hf")


@pytest.mark.parametrize("to", ["hf", "maxtext"])
def test_what_json_cannot_hold_is_found_out_by_the_plan(
    own_llama: Path, tmp_path: Path, to: str
) -> None:
    edit_config(own_llama, initializer_range=float("nan"))
    for verb in (port.plan, port.run):
        with pytest.raises(FormatError, match=r"^config: .*; wanted values that JSON can hold"):
            verb(own_llama, tmp_path / "out", to=to)
    assert not (tmp_path / "out").exists()


def test_layers_of_two_dtypes_do_not_stack(own_llama: Path, tmp_path: Path) -> None:
    arrays = tensors(own_llama)
    name = "model.layers.1.mlp.up_proj.weight"
    arrays[name] = arrays[name].astype(np.float32)
    save_tensors(own_llama, arrays)
    refused(
        own_llama, tmp_path / "out", "its layers are bfloat16 and float32; a stack has one dtype"
    )
    port.run(own_llama, tmp_path / "out", to="maxtext", dtype="float32")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"to": "onnx"}, "to: 'onnx'; hf, maxtext, maxtext-unscanned"),
        ({"to": "gguf"}, "to: 'gguf'; hf, maxtext"),
        ({"family": "lama"}, "family: 'lama'; known: llama, mistral, .*; or give a Family"),
        ({"dtype": "bf16"}, "dtype: 'bf16'; float8_e4m3fn, float8_e5m2, float16, bfloat16, "),
        ({"max_ram": "lots"}, "max_ram: 'lots'; wanted bytes, or text such as '512MiB'"),
        (
            {"max_ram": "9" * 400},
            f"max_ram: '{79 * '9'}; wanted bytes, or text such as '512MiB' or '2GB'",
        ),
        ({"max_ram": 5e8 + 0.5}, "max_ram: 500000000.5; wanted bytes, or text such as '512MiB'"),
        ({"max_ram": float("inf")}, "max_ram: inf; wanted bytes, or text such as '512MiB'"),
        ({"max_ram": "1KiB"}, "max_ram: 1,024 bytes; one slice of .* the least that works"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    wide_llama: Path, tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    refused(wide_llama, tmp_path / "out", text, **options)


def test_a_directory_is_not_named_as_a_file(wide_llama: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.safetensors"
    text = (
        f"{out}: to='maxtext' writes a directory; wanted a name that does not end in .safetensors"
    )
    refused(wide_llama, out, f"^{re.escape(text)}$")
    port.run(wide_llama, out, to="hf")
    assert out.is_file()


def test_a_config_must_be_beside_the_weights(own_llama: Path, tmp_path: Path) -> None:
    (own_llama / "config.json").unlink()
    refused(
        own_llama, tmp_path / "out", "no config; wanted a config.json with the model's Hugging Face"
    )


def test_a_config_cannot_ask_for_more_layers_than_there_is_memory(
    own_llama: Path, tmp_path: Path
) -> None:
    edit_config(own_llama, num_hidden_layers=10**12)
    text = "num_hidden_layers is 1,000,000,000,000; wanted at most 10,000"
    refused(own_llama, tmp_path / "out", text)
    assert text in str(port.inspect(own_llama))


def test_an_output_that_holds_something_is_left_as_it_is(wide_llama: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    port.run(wide_llama, out, to="hf")
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    with pytest.raises(PortError, match="out: "):
        port.run(wide_llama, out, to="hf")
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_an_interrupted_port_leaves_no_output_and_works_again(
    wide_llama: Path, tmp_path: Path
) -> None:
    seen: list[int] = []

    def interrupt(nbytes: int) -> None:
        seen.append(nbytes)
        if len(seen) == 9:
            raise KeyboardInterrupt("now")

    with pytest.raises(KeyboardInterrupt, match="now"):
        port.run(wide_llama, tmp_path / "out", to="maxtext", progress=interrupt)
    assert not (tmp_path / "out").exists()
    assert port.run(wide_llama, tmp_path / "out", to="maxtext").comparison
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("to", ["hf", "maxtext"])
def test_a_disk_that_is_too_small_is_found_out_before_writing(
    wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(PortError, match="out: "):
        port.run(wide_llama, tmp_path / "out", to=to)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_while_writing_leaves_nothing(
    wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwritev", failing(errno.ENOSPC))
    monkeypatch.setattr(os, "pwrite", failing(errno.ENOSPC))
    with pytest.raises(PortError, match="out: "):
        port.run(wide_llama, tmp_path / "out", to="hf")
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_file_is_refused(own_llama: Path, tmp_path: Path) -> None:
    file = own_llama / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(FormatError, match=r"model\.safetensors"):
        port.run(own_llama, tmp_path / "out", to="maxtext")
    assert not (tmp_path / "out").exists()
