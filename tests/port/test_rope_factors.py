"""GGUF's table of rope factors becomes the config it came from, or stops the port."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest

from xlayout import port
from xlayout.errors import PortError
from xlayout.port.demo.weights import make_tiny
from xlayout.port.rope_factors import TABLE, llama3_factors, with_rope_scaling

LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
THETA = 500_000.0
DIM = 64


def transformers_factors(dim: int, factor: float, **scaling: Any) -> np.ndarray:
    """The factors by which transformers divides its frequencies."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": "llama3", "rope_theta": THETA, "factor": factor, **LLAMA3, **scaling}
    config = LlamaConfig(head_dim=dim, rope_parameters=rope, max_position_embeddings=131072)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 1.0 / THETA ** (np.arange(0, dim, 2) / dim)
    return np.asarray(plain / scaled.numpy(), np.float32)


def with_table(
    path: Path, table: np.ndarray, monkeypatch: pytest.MonkeyPatch, theta: float = THETA
) -> Path:
    """A tiny Llama whose GGUF file has this table, and the base of Llama 3."""
    write, base = gguf.GGUFWriter.write_header_to_file, gguf.GGUFWriter.add_rope_freq_base

    def add(writer: Any) -> None:
        writer.add_tensor(TABLE, table)
        write(writer)

    with monkeypatch.context() as patch:
        patch.setattr(gguf.GGUFWriter, "write_header_to_file", add)
        patch.setattr(gguf.GGUFWriter, "add_rope_freq_base", lambda w, _: base(w, theta))
        return make_tiny(path)


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_factors_are_those_of_transformers(dim: int, factor: float) -> None:
    ours = llama3_factors(THETA, dim, factor=factor, **LLAMA3)
    assert np.allclose(ours, transformers_factors(dim, factor), rtol=1e-5)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_config_says_what_the_table_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    table = transformers_factors(DIM, factor)
    file = with_table(tmp_path / "x.gguf", table, monkeypatch)
    report = port.run(file, tmp_path / "hf", to="hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert config["rope_scaling"] == {"rope_type": "llama3", "factor": factor, **LLAMA3}
    assert config["rope_theta"] == THETA
    assert report.plan.ignored == (TABLE,)
    assert port.verify(file, tmp_path / "hf").identical
    assert [what for what, *_ in port.diff(file, tmp_path / "hf").lines] == ["config: dtype"]


def test_maxtext_is_told_to_scale_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = with_table(tmp_path / "x.gguf", transformers_factors(DIM, 8.0), monkeypatch)
    assert port.plan(file, tmp_path / "out", to="maxtext").config["maxtext"]["rope_use_scale"]
    other = with_table(tmp_path / "y.gguf", transformers_factors(DIM, 32.0), monkeypatch)
    with pytest.raises(PortError, match="MaxText scales by"):
        port.plan(other, tmp_path / "out", to="maxtext")


def test_a_table_of_ones_scales_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = with_table(tmp_path / "x.gguf", np.ones(DIM // 2, np.float32), monkeypatch)
    assert "rope_scaling" not in port.plan(file, tmp_path / "out", to="hf").config


ODD = {
    "other context": lambda: transformers_factors(DIM, 8.0, original_max_position_embeddings=4096),
    "one entry": lambda: transformers_factors(DIM, 8.0) + np.eye(1, DIM // 2, 5, np.float32)[0],
    "for other heads": lambda: transformers_factors(2 * DIM, 8.0),
    "zeros": lambda: np.zeros(DIM // 2, np.float32),
    "no end": lambda: np.full(DIM // 2, np.inf, np.float32),
    "no number": lambda: np.full(DIM // 2, np.nan, np.float32),
    "one factor": lambda: np.ones(1, np.float32) * 2,
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_another_table_stops_the_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    file = with_table(tmp_path / "x.gguf", make(), monkeypatch)
    with pytest.raises(PortError, match=rf"{TABLE}: .* that can be told"):
        port.run(file, tmp_path / "out", to="hf")
    assert "that can be told" in str(port.inspect(file))
    assert [path.name for path in tmp_path.iterdir()] == ["x.gguf"]


def test_a_table_beside_another_scaling_stops_the_port() -> None:
    table = transformers_factors(DIM, 8.0)
    source: Any = SimpleNamespace(
        path="x.gguf", format="gguf", tensors={TABLE: table}, read=lambda _: table
    )
    config = {"rope_theta": THETA, "head_dim": DIM}
    assert with_rope_scaling(source, config)["rope_scaling"]["factor"] == 8.0
    scaled = {"rope_type": "linear", "factor": 4.0}
    text = f"x.gguf: {TABLE}: factors up to 8, beside {scaled}; wanted one of the two, because only"
    with pytest.raises(PortError, match=f"^{re.escape(text)}"):
        with_rope_scaling(source, {**config, "rope_scaling": scaled})


def test_a_base_below_zero_stops_the_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = with_table(tmp_path / "x.gguf", transformers_factors(DIM, 8.0), monkeypatch, -5.0)
    text = "config: rope_theta is -5.0; wanted a positive number"
    with pytest.raises(PortError, match=f"^{re.escape(text)}$"):
        port.plan(file, tmp_path / "out", to="hf")


def test_a_table_that_no_head_has_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = with_table(tmp_path / "x.gguf", np.ones(4097, np.float32), monkeypatch)
    text = f"{file}: {TABLE}: 4,097 factors; wanted at most 4,096, one for each pair of a head"
    with pytest.raises(PortError, match=f"^{re.escape(text)}$"):
        port.plan(file, tmp_path / "out", to="hf")
