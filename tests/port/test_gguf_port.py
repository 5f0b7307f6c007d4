"""GGUF to Hugging Face, against the reader in transformers: two programs, one answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.port.models import same_bytes, tensors
from xlayout import port
from xlayout.port.demo.weights import make_tiny


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_transformers_reads_the_same_weights_out_of_the_file(gguf: Path, tmp_path: Path) -> None:
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    port.run(gguf, tmp_path / "hf", to="hf")
    ours = tensors(tmp_path / "hf")
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig.from_pretrained(tmp_path / "hf"))
    theirs = load_gguf_checkpoint(gguf, return_tensors=True, model_to_load=model)["tensors"]
    assert theirs.keys() == ours.keys()
    for name, array in ours.items():
        assert np.array_equal(array, theirs[name].numpy()), name


def test_gguf_composes_with_maxtext_without_a_stop_at_hf(gguf: Path, tmp_path: Path) -> None:
    port.run(gguf, tmp_path / "hf", to="hf")
    port.run(gguf, tmp_path / "direct", to="maxtext")
    port.run(tmp_path / "direct", tmp_path / "back", to="hf")
    assert same_bytes(tmp_path / "hf", tmp_path / "back")
    assert port.verify(gguf, tmp_path / "direct").identical


def test_rounding_quantised_weights_is_lossy_and_said(gguf: Path, tmp_path: Path) -> None:
    plan = port.plan(gguf, tmp_path / "hf", to="hf", dtype="bfloat16", exact=False)
    assert "float32 rounded to bfloat16" in str(plan)
    report = port.run(gguf, tmp_path / "hf", to="hf", dtype="bfloat16", exact=False)
    assert report.comparison is not None
    assert report.comparison.faithful
    assert report.plan.config["dtype"] == "bfloat16"
