"""MaxText loads what is ported for it and computes the same; what it saves is ported back.

It has a Python, a JAX and a process of its own: `make test-maxtext` makes the environment, and
without that this is skipped.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.house.tree import ROOT
from tests.port import on_maxtext
from tests.port.models import (
    DECODERS,
    MODELS,
    STEEP_ROPE,
    same_bytes,
    save_model,
    torch_logits,
)
from xlayout import Mesh, port
from xlayout.port.formats import open_source

PYTHON = ROOT / ".venv-maxtext" / "bin" / "python"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="`make test-maxtext` installs MaxText"),
]

LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 50.0, "factor": 4.0}
ALL = {f"llama, {name}": ("Llama", config) for name, config in MODELS.items()} | DECODERS
PORTS = [
    *((name, to) for name in ALL for to in ("maxtext", "maxtext-unscanned")),
    ("llama, wide heads", "maxtext-default-rope"),
    ("llama, linear rope", "maxtext-default-rope-unscanned"),
]
ALL["llama, linear rope"] = ("Llama", {"num_key_value_heads": 2, "rope_parameters": LINEAR_ROPE})
RANKS = Mesh((2, 2), ("fsdp", "tp"))  # by whose parts some of the ports are cut
IDS = [pytest.param(*each, id="-".join(each).replace(", ", "-")) for each in PORTS]


def job(ported: Path, out: Path) -> dict[str, Any]:
    out.mkdir()
    config = json.loads((ported / "config.json").read_text())["maxtext"]
    del config["scan_layers"]  # the checkpoint says it
    return {"config": config, "load": str(ported / "0" / "items"), "out": str(out)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For each model: it, its ports, and what MaxText made of them."""
    folder = tmp_path_factory.mktemp("maxtext")
    for name, (kind, config) in ALL.items():
        save_model(folder / name / "hf", kind, **{"rope_parameters": STEEP_ROPE, **config})
    for name, to in PORTS:
        mesh = RANKS if to == "maxtext" else None
        port.run(folder / name / "hf", folder / name / to, to=to, mesh=mesh)
    jobs = [job(folder / name / to, folder / name / f"{to}-loaded") for name, to in PORTS]
    file = folder / "jobs.json"
    file.write_text(json.dumps(jobs))
    command = [str(PYTHON), on_maxtext.__file__, str(file)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.parametrize(("name", "to"), IDS)
def test_maxtext_computes_the_same_from_a_port(made: Path, name: str, to: str) -> None:
    wanted = torch_logits(made / name / "hf", on_maxtext.IDS)
    found = np.load(made / name / f"{to}-loaded" / "logits.npy")
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize(("name", "to"), IDS)
def test_a_port_has_just_the_parameters_that_maxtext_asks_for(
    made: Path, name: str, to: str
) -> None:
    asked = json.loads((made / name / f"{to}-loaded" / "shapes.json").read_text())
    with open_source(made / name / to) as source:
        there = {name: list(spec.shape) for name, spec in source.tensors.items()}
    assert there == {f"params/params/{name}": shape for name, shape in asked.items()}


@pytest.mark.parametrize("saved", ["params", "run/checkpoints"])
@pytest.mark.parametrize(("name", "to"), IDS)
def test_every_byte_comes_back_from_what_maxtext_saved(
    made: Path, tmp_path: Path, name: str, to: str, saved: str
) -> None:
    own = made / name / f"{to}-loaded" / saved
    (own / "config.json").write_bytes((made / name / to / "config.json").read_bytes())
    plan = port.run(own, tmp_path / "hf", to="hf", dtype="bfloat16").plan  # it saves float32
    of_training = {unkept.partition("/")[0] for unkept in plan.unkept}
    assert of_training == (set() if saved == "params" else {"opt_state", "step", "nnx_aux"})
    assert same_bytes(made / name / "hf", tmp_path / "hf")
