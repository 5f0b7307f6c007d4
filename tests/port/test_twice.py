"""A head beside tied embeddings is left out if it is the embedding bit for bit, else refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.port.models import MODELS, refused, same_bytes, save_llama, save_tensors, tensors
from xlayout import port

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    return save_llama(tmp_path / "tied", **MODELS["multi-head, tied"])


@pytest.mark.parametrize("to", ["hf", "maxtext", "megatron"])
def test_the_embedding_once_more_is_left_and_named(tied: Path, tmp_path: Path, to: str) -> None:
    port.run(tied, tmp_path / "once", to="hf")
    arrays = tensors(tied)
    save_tensors(tied, {**arrays, HEAD: arrays[EMBEDDING].copy()})
    plan = port.plan(tied, tmp_path / "out", to=to)
    assert plan.ignored == (HEAD,)
    assert f"ignored, as it holds nothing of its own: {HEAD}" in str(plan)
    port.run(tied, tmp_path / "out", to=to)
    port.run(tmp_path / "out", tmp_path / "back", to="hf")
    assert same_bytes(tmp_path / "once", tmp_path / "back")
    assert port.verify(tied, tmp_path / "once").identical


@pytest.mark.parametrize("change", ["one bit", "the sign of a zero", "dtype", "shape"])
def test_anything_else_is_refused(tied: Path, tmp_path: Path, change: str) -> None:
    arrays = tensors(tied)
    head = arrays[EMBEDDING].copy()
    if change == "one bit":
        head.view(np.uint16)[-1, -1] ^= 1
    elif change == "the sign of a zero":
        arrays[EMBEDDING].view(np.uint16)[3, 5] = 0
        head.view(np.uint16)[3, 5] = 0x8000
    elif change == "dtype":
        head = head.view(np.float16)
    else:
        head = head[:-1]
    save_tensors(tied, {**arrays, HEAD: head})
    text = r"lm_head\.weight \(tie_word_embeddings is true, and it is not the embedding once more"
    refused(tied, tmp_path / "out", text)


def test_parts_of_large_embeddings_are_compared(
    tied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xlayout.port.twice._ROOM", 1000)
    arrays = tensors(tied)
    save_tensors(tied, {**arrays, HEAD: arrays[EMBEDDING].copy()})
    assert port.plan(tied, tmp_path / "out", to="hf").ignored == (HEAD,)
    head = arrays[EMBEDDING].copy()
    head.view(np.uint16)[-1, -1] ^= 1
    save_tensors(tied, {**arrays, HEAD: head})
    refused(tied, tmp_path / "out", "is not the embedding once more")
