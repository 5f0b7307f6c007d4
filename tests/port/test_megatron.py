"""Megatron-core loads what is ported for it and computes the same; what it saves is ported back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.port import on_megatron
from tests.port.models import (
    DECODERS,
    MODELS,
    STEEP_ROPE,
    same_bytes,
    save_model,
    torch_logits,
)
from xlayout import Mesh, port
from xlayout.port.formats.base import Bounds
from xlayout.port.formats.dcp_metadata import parse_metadata
from xlayout.port.show_family import rules_table

pytestmark = pytest.mark.distributed

ALL = {"llama": ("Llama", MODELS["grouped"]), **DECODERS}
IDS = [pytest.param(name, id=name.replace(", ", "-")) for name in ALL]


def job(config: Path, out: Path, *, load: Path | None = None, save: Path | None = None) -> Any:
    return {
        "config": json.loads((config / "config.json").read_text()),
        "load": load and str(load),
        "logits": str(out),
        "save": save and str(save),
    }


def megatron(folder: Path, jobs: list[Any], *, ranks: int = 1) -> None:
    """Have Megatron-core do the jobs."""
    file = folder / "jobs.json"
    file.write_text(json.dumps(jobs))
    command = [sys.executable, on_megatron.__file__]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(ranks), str(folder / "meeting"), str(file)],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for process in processes:
        _, error = process.communicate(timeout=300)
        assert process.returncode == 0, error[-3000:]


def close(found: Any, wanted: Any) -> bool:
    return bool(np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each family: a model, its port, the logits of it, and a model that Megatron-core made."""
    folder = tmp_path_factory.mktemp("megatron")
    jobs = []
    for name, (kind, config) in ALL.items():
        home = folder / name
        save_model(home / "hf", kind, rope_parameters=STEEP_ROPE, **config)
        port.run(home / "hf", home / "ported", to="megatron")
        jobs += [
            job(home / "hf", home / "ported.npy", load=home / "ported"),
            job(home / "hf", home / "own.npy", save=home / "own"),
        ]
    megatron(folder, jobs)
    return folder


@pytest.mark.parametrize("name", IDS)
def test_megatron_computes_the_same_from_a_port(made: Path, name: str) -> None:
    wanted = torch_logits(made / name / "hf", on_megatron.IDS)
    assert close(np.load(made / name / "ported.npy"), wanted)


@pytest.mark.parametrize("name", IDS)
def test_what_megatron_saved_is_the_same_model_elsewhere(
    made: Path, tmp_path: Path, name: str
) -> None:
    own = made / name / "own"
    (own / "config.json").write_bytes((made / name / "hf" / "config.json").read_bytes())
    plan = port.plan(own, tmp_path / "hf", to="hf")
    assert plan.dialects == ("megatron", "hf")
    assert all("_extra_state" in name for name in plan.unkept)
    port.run(own, tmp_path / "hf", to="hf")
    assert close(torch_logits(tmp_path / "hf", on_megatron.IDS), np.load(made / name / "own.npy"))


def boxes(folder: Path) -> dict[str, set[Bounds]]:
    """The chunks of each tensor."""
    found = parse_metadata((folder / ".metadata").read_bytes(), where="x").tensors
    return {name: {chunk.box for chunk in entry.chunks} for name, entry in found.items()}


@pytest.mark.parametrize("name", IDS)
def test_a_port_is_cut_as_megatron_saves(made: Path, name: str) -> None:
    """For each layer that it asks for, torch reads the chunk around it."""
    own, ported = boxes(made / name / "own"), boxes(made / name / "ported")
    assert ported == {tensor: own[tensor] for tensor in ported}
    assert len(ported["decoder.layers.self_attention.linear_qkv.weight"]) == 3


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("to", ["megatron", "megatron-per-layer"])
def test_every_byte_comes_back(made: Path, tmp_path: Path, name: str, to: str) -> None:
    source = made / name / "hf"
    there = port.run(source, tmp_path / "there", to=to, max_ram="16kB")
    assert there.plan.buffer_bytes <= 16_000
    assert port.verify(tmp_path / "there", made / name / "ported").identical
    port.run(tmp_path / "there", tmp_path / "back", to="hf")
    assert same_bytes(source, tmp_path / "back")


def test_the_plan_and_the_rules_name_the_parts(made: Path, tmp_path: Path) -> None:
    plan = str(port.plan(made / "mixtral" / "hf", tmp_path / "out", to="megatron"))
    assert "as it is, 3 along axis 0, part 2 of group dim + dim + dim" in plan
    assert "as it is, 3 along axis 0, 5 along axis 1, part 1 of mlp + mlp" in plan
    assert "writes beside them: metadata.json, common.pt" in plan
    rules = str(rules_table("mixtral", "megatron"))
    assert "(kv dim) embed -> layer (kv dim) embed, part 3 of group dim + dim + dim" in rules


def test_a_padded_vocabulary_is_filled_from_a_port(made: Path, tmp_path: Path) -> None:
    home = made / "llama"
    padded = job(home / "hf", tmp_path / "padded.npy", load=home / "ported")
    padded["config"]["vocab_size"] += 32
    megatron(tmp_path, [padded])
    found = np.load(tmp_path / "padded.npy")
    assert close(found[:, :-32], torch_logits(home / "hf", on_megatron.IDS))
    assert not found[:, -32:].any()


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_of_tensor_parallelism_take_their_parts(
    made: Path, tmp_path: Path, ranks: int
) -> None:
    """Of two groups of queries; for more ranks, Megatron-core cuts through them."""
    home, mesh = made / "llama", Mesh((ranks,), ("tp",))
    parts = port.run(home / "hf", tmp_path / "parts", to="megatron", mesh=mesh)
    assert len(parts.plan.files) == ranks
    jobs = [
        job(home / "hf", tmp_path / "ported.npy", load=home / "ported"),
        job(home / "hf", tmp_path / "parts.npy", load=tmp_path / "parts"),
        job(home / "hf", tmp_path / "own.npy", save=tmp_path / "own"),
    ]
    megatron(tmp_path, jobs, ranks=ranks)
    for found in ("ported.npy", "parts.npy"):
        assert close(np.load(tmp_path / found), np.load(home / "ported.npy"))
    own, cut = boxes(tmp_path / "own"), boxes(tmp_path / "parts")
    assert cut == {tensor: own[tensor] for tensor in cut}
    (tmp_path / "own" / "config.json").write_bytes((home / "hf" / "config.json").read_bytes())
    port.run(tmp_path / "own", tmp_path / "hf", to="hf")
    found = torch_logits(tmp_path / "hf", on_megatron.IDS)
    assert close(found, np.load(tmp_path / "own.npy"))
