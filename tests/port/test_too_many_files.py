"""A port in a process that may open few files gets by with few, or says how many it may have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xlayout import port
from xlayout.port.demo.weights import make_tiny
from xlayout.port.formats import open_source

KEPT = "what was written is kept, and the same command goes on from there"

LIMITED = """
import resource, sys
from xlayout import port

for module in ("value", "run"):
    sys.modules["xlayout.port." + module].SHARD_BYTES = 1
src, dst, to, soft, hard = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(soft), int(hard)))
try:
    print(port.run(src, dst, to=to).comparison.identical)
except Exception as error:
    print(type(error).__name__, error, *getattr(error, "__notes__", ()), sep="\\n")
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama in each format, with a file for each of its 20 tensors."""
    folder = tmp_path_factory.mktemp("models")
    make_tiny(folder / "tiny.gguf")
    with pytest.MonkeyPatch.context() as patch:
        for module in ("value", "run"):
            patch.setattr(sys.modules[f"xlayout.port.{module}"], "SHARD_BYTES", 1)
        for to in ("hf", "dcp"):
            port.run(folder / "tiny.gguf", folder / to, to=to)
    return folder


def limited(src: Path, dst: Path, to: str, soft: int, hard: int = 100) -> list[str]:
    """Port in a process that may open so many files; return whether all is well, or the error."""
    program = [sys.executable, "-c", LIMITED, src, dst, to, str(soft), str(hard)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(("to", "files"), [("hf", 20), ("dcp", 21)])
@pytest.mark.parametrize("name", ["tiny.gguf", "hf", "dcp"])
def test_directories_of_more_files_than_may_be_open_are_read_and_written(
    models: Path, tmp_path: Path, name: str, to: str, files: int
) -> None:
    assert limited(models / name, tmp_path / "out", to, 14) == ["True"]
    with open_source(tmp_path / "out") as source:
        assert len(source.files) == files


@pytest.mark.parametrize(
    ("hard", "helps"), [(100, "ulimit -n 100"), (5, "ulimit -n, as an administrator")]
)
def test_a_limit_at_which_nothing_can_be_begun_is_named(
    models: Path, tmp_path: Path, hard: int, helps: str
) -> None:
    kind, text = limited(models / "hf", tmp_path / "out", "dcp", 5, hard)
    assert kind == "OSError"
    head = "[Errno 24] Too many open files: this process may have 5; wanted a higher limit"
    assert text.startswith(f"{head} ({helps}): '")
    assert not list(tmp_path.iterdir())


def test_an_output_that_is_begun_is_kept_when_files_are_wanting(
    models: Path, tmp_path: Path
) -> None:
    kind, text, note = limited(models / "tiny.gguf", tmp_path / "out", "hf", 6)
    assert kind == "OSError"
    assert "Too many open files: this process may have 6; wanted a higher limit" in text
    assert note == KEPT
    assert not (tmp_path / "out").exists()
    assert limited(models / "tiny.gguf", tmp_path / "out", "hf", 100) == ["True"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(("name", "to"), [("hf", "hf"), ("hf", "maxtext"), ("dcp", "dcp")])
def test_whatever_may_be_open_the_port_succeeds_or_the_limit_is_named(
    models: Path, tmp_path: Path, name: str, to: str
) -> None:
    for soft in (8, 25, 26, 28):
        out = tmp_path / str(soft) / "out"
        said = limited(models / name, out, to, soft)
        assert said == ["True"] or said[0] == "OSError"
        assert said == ["True"] or f"files: this process may have {soft}; wanted a" in said[1]
        assert limited(models / name, out, to, 100) == ["True"] or out.exists()
        assert [path.name for path in out.parent.iterdir()] == ["out"]
