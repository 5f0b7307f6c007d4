"""A folder that is not a checkpoint but contains one is refused, and the error names the latter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.port.formats.arrays import save
from xlayout.errors import FormatError
from xlayout.port.formats import sniff


def made(path: Path, format_: str) -> None:
    save(path, format_, {"x": np.zeros(2, np.int8)})


def told(path: Path) -> str:
    """What a refusal says after what is wanted."""
    with pytest.raises(FormatError, match=r"; wanted ") as caught:
        sniff(path)
    return str(caught.value).partition("; wanted ")[2].partition("; ")[2]


def test_a_training_run_tells_its_iterations_the_latest_last(tmp_path: Path) -> None:
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    for step in (1, 2, 3, 9, 10):
        made(tmp_path / f"iter_{step}", "dcp")
    assert told(tmp_path) == "name the one that is meant in it: iter_2, iter_3, iter_9, iter_10"


@pytest.mark.parametrize("format_", ["safetensors", "maxtext", "dcp"])
def test_a_model_in_a_cache_tells_its_revision(tmp_path: Path, format_: str) -> None:
    (tmp_path / "blobs").mkdir()
    made(tmp_path / "snapshots" / "abc", format_)
    assert told(tmp_path) == "name the one that is meant in it: snapshots/abc"


@pytest.mark.parametrize("format_", ["maxtext", "dcp"])
def test_a_hidden_file_does_not_make_another_format_of_it(tmp_path: Path, format_: str) -> None:
    made(tmp_path / "x", format_)
    for name in ("._model.safetensors", ".model.safetensors.index.json"):
        (tmp_path / "x" / name).write_bytes(b"")
    assert sniff(tmp_path / "x") == format_


def test_gguf_files_are_named_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "snapshots" / "abc").mkdir(parents=True)
    (tmp_path / "snapshots" / "abc" / "x.gguf").write_bytes(b"GGUF")
    assert told(tmp_path) == "name the one that is meant in it: snapshots/abc/x.gguf"


def test_what_torch_or_an_older_megatron_wrote_says_what_reads_it(tmp_path: Path) -> None:
    weights = tmp_path / "run" / "iter_1" / "mp_rank_00" / "model_optim_rng.pt"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"PK")
    for place in (tmp_path, tmp_path / "run", *weights.parents[:2], weights):
        assert "--ckpt-convert-format torch_dist" in told(place)
    (tmp_path / "model").mkdir()
    for name in ("pytorch_model.bin", "consolidated.00.pth", "model.pt", "last.ckpt"):
        weights = tmp_path / "model" / name
        weights.write_bytes(b"PK")
        assert told(weights).startswith("what torch pickled is not read: load it, and save it as")
    assert told(weights.parent).startswith("what torch pickled is not read")


@pytest.mark.parametrize(
    ("form", "name"),
    [("safetensors", "config.json"), ("dcp", ".metadata"), ("maxtext", "_METADATA")],
)
def test_a_file_in_a_checkpoint_leads_to_it(tmp_path: Path, form: str, name: str) -> None:
    folder = tmp_path / "x"
    made(folder, form)
    (folder / name).touch()
    assert told(folder / name) == f"name the directory that it is in: {folder}"


def test_hidden_folders_and_other_files_are_nothing_to_name(tmp_path: Path) -> None:
    made(tmp_path / ".out.01234567.partial", "safetensors")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c" / "x.gguf").touch()  # one level deeper than in a cache
    for name in (".metadata", "_METADATA"):  # of which only a file makes a checkpoint
        (tmp_path / "a" / name).mkdir()
    assert told(tmp_path) == ""
    assert told(tmp_path / "notes.txt") == ""


def test_what_cannot_be_looked_at_is_nothing_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as names in a folder so deep that their paths are too long for the system."""
    folder = tmp_path
    while len(str(folder)) < 3900:
        monkeypatch.chdir(folder)
        folder = folder / ("x" * 100)
        Path(folder.name).mkdir()
    monkeypatch.chdir(folder)
    Path("y" * 250).mkdir()
    assert told(folder) == ""
