"""A killed run goes on from what it wrote, and its output is that of a run that was not killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from xlayout import port
from xlayout.port import Report
from xlayout.port.demo.weights import make_tiny
from xlayout.port.formats import open_source
from xlayout.port.formats.journal import JOURNAL
from xlayout.port.resume import key_of

MAX_RAM = 100_000  # the embedding goes through in several tiles
SHARD = 120_000
DIALECTS = ["hf", "maxtext", "maxtext-unscanned", "dcp"]

KILLED = f"""
import os, signal, sys
from xlayout import port

for module in ("value", "run"):
    sys.modules["xlayout.port." + module].SHARD_BYTES = {SHARD}
src, dst, to, when = sys.argv[1:]
written, pwrite = 0, os.pwrite

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def tear(handle, data, position):
    if when == "in a write" and written > 200_000:
        pwrite(handle, bytes(data)[: len(data) // 2], position)
        die()
    return pwrite(handle, data, position)

def count(nbytes):
    global written
    written += nbytes
    if when == "between writes" and written > 200_000:
        die()

def sync(handle):
    if when == "at the end":
        die()

os.pwrite, os.fsync = tear, sync
port.run(src, dst, to=to, max_ram={MAX_RAM}, progress=count)
"""


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(make_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf"))


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("value", "run"):
        monkeypatch.setattr(sys.modules[f"xlayout.port.{module}"], "SHARD_BYTES", SHARD)


def kill(src: Path, dst: Path, to: str, when: str = "between writes") -> Path:
    """Let a run be killed; return the hidden folder it leaves, and nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(src), str(dst), to, when], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not dst.exists()
    (stage,) = stages(dst)
    return stage


def stages(dst: Path) -> list[Path]:
    return sorted(dst.parent.glob(f".{dst.name}.*.partial"))


def run(src: Path, dst: Path, to: str, **options: object) -> Report:
    return port.run(src, dst, to=to, **{"max_ram": MAX_RAM, **options})  # type: ignore[arg-type]


def content(path: Path) -> dict[str, object]:
    """Every tensor, and every file whose name and bytes we determine."""
    with open_source(path) as source:
        found: dict[str, object] = {name: source.read(name).tobytes() for name in source.tensors}
    ours = [p for p in path.rglob("*") if p.is_file() and "ocdbt" not in str(p.relative_to(path))]
    ours = [p for p in ours if p.parent.name != "d"]
    return found | {str(p.relative_to(path)): p.read_bytes() for p in ours}


@pytest.fixture(scope="module")
def whole(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], object]:
    """What runs that were not interrupted wrote."""
    made: dict[str, object] = {}

    def get(to: str) -> object:
        if to not in made:
            out = tmp_path_factory.mktemp("whole") / "out"
            assert run(gguf, out, to, resume=False).kept_bytes == 0
            made[to] = content(out)
        return made[to]

    return get


CASES = [(to, when) for to in DIALECTS for when in ("between writes", "at the end")]


@pytest.mark.parametrize(("to", "when"), [("hf", "in a write"), *CASES])
def test_a_killed_run_is_finished_by_the_next(
    gguf: Path, tmp_path: Path, whole: Callable[[str], object], to: str, when: str
) -> None:
    out = tmp_path / "out"
    kill(gguf, out, to, when)
    progress: list[int] = []
    report = run(gguf, out, to, progress=progress.append)
    assert 200_000 < report.kept_bytes <= report.plan.write_bytes
    assert (report.kept_bytes == report.plan.write_bytes) is (when == "at the end")
    assert sum(progress) == report.plan.write_bytes
    assert "went on from a run that was interrupted" in str(report)
    assert report.comparison is not None
    assert report.comparison.identical
    assert content(out) == whole(to)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not list(out.rglob(JOURNAL))


def test_a_run_may_be_killed_again_and_again(
    gguf: Path, tmp_path: Path, whole: Callable[[str], object]
) -> None:
    out = tmp_path / "out"
    first = kill(gguf, out, "hf", "in a write")
    with (first / JOURNAL).open("a") as journal:
        journal.write('["model.norm.wei')  # cut off in the middle of a line
    assert kill(gguf, out, "hf") == first
    assert kill(gguf, out, "hf", "at the end") == first
    run(gguf, out, "hf")
    assert content(out) == whole("hf")


def flip(stage: Path) -> None:
    """Damage a region that is claimed to be written."""
    file = min(stage.glob("output/*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def cut(stage: Path) -> None:
    os.truncate(min(stage.glob("output/*.safetensors")), 1000)


def remove(stage: Path) -> None:
    min(stage.glob("output/*.safetensors")).unlink()


def forge(stage: Path) -> None:
    """Claim regions that were not written, with sums that cannot be right."""
    key, *lines = (stage / JOURNAL).read_text().splitlines()
    forged = [line.rpartition(",")[0] + ",1]" for line in lines]
    (stage / JOURNAL).write_text("\n".join([key, *forged, "null", "[1, 2]", '["a", [], 1]', ""]))


def link(stage: Path) -> None:
    """Point a file out of the stage; it must be neither read nor written through."""
    file = min(stage.glob("output/*.safetensors"))
    file.rename(stage.parent / "elsewhere")
    file.symlink_to(stage.parent / "elsewhere")


def no_manifest(stage: Path) -> None:
    (stage / "output/0/items/manifest.ocdbt").write_bytes(b"")


def no_data(stage: Path) -> None:
    for file in (stage / "output/0/items/d").iterdir():
        file.unlink()


DAMAGE = [("hf", flip), ("hf", cut), ("hf", remove), ("hf", forge), ("hf", link)]
DAMAGE += [("maxtext", forge), ("maxtext", no_manifest), ("maxtext", no_data)]


@pytest.mark.parametrize(("to", "damage"), DAMAGE, ids=lambda v: getattr(v, "__name__", v))
def test_what_is_not_sound_is_written_again(
    gguf: Path,
    tmp_path: Path,
    whole: Callable[[str], object],
    to: str,
    damage: Callable[[Path], None],
) -> None:
    out, twin = tmp_path / "out", tmp_path / "twin"
    stage = kill(gguf, out, to)
    shutil.copytree(stage, twin / stage.name)
    sound = run(gguf, twin / "out", to, verify=False).kept_bytes
    damage(stage)
    before = (tmp_path / "elsewhere").read_bytes() if damage is link else b""
    assert run(gguf, out, to, verify=False).kept_bytes < sound
    assert content(out) == whole(to)
    assert before == ((tmp_path / "elsewhere").read_bytes() if damage is link else b"")
    assert not stages(out)


def test_another_plan_starts_afresh(gguf: Path, tmp_path: Path) -> None:
    for number, change in enumerate([{"max_ram": 90_000}, {"dtype": "float64"}, {"resume": False}]):
        out = tmp_path / str(number)
        kill(gguf, out, "hf")
        assert run(gguf, out, "hf", **change).kept_bytes == 0
        assert not stages(out)
    out = tmp_path / "other"
    kill(gguf, out, "maxtext")
    assert run(gguf, out, "maxtext-unscanned").kept_bytes == 0


@pytest.mark.parametrize("change", ["time", "size", "content"])
def test_another_source_starts_afresh(gguf: Path, tmp_path: Path, change: str) -> None:
    source = tmp_path / "source.gguf"
    source.write_bytes(gguf.read_bytes())
    when = source.stat().st_mtime_ns
    kill(source, tmp_path / "out", "hf")
    if change == "size":
        source.write_bytes(gguf.read_bytes() + b"\0" * 32)
    if change == "content":
        source.write_bytes(gguf.read_bytes()[:500_000] + b"??" + gguf.read_bytes()[500_002:])
    os.utime(source, ns=(when, when + (change == "time")))
    assert run(source, tmp_path / "out", "hf").kept_bytes == 0


def test_the_key_is_of_all_that_the_bytes_follow_from(gguf: Path, tmp_path: Path) -> None:
    plan = port.plan(gguf, tmp_path / "out", to="maxtext")
    others = [
        replace(plan, moves=plan.moves[::-1]),
        replace(plan, specs=dict(list(plan.specs.items())[1:])),
        replace(plan, chunks={**plan.chunks, "": ()}),
        replace(plan, config={**plan.config, "note": 1}),
        replace(plan, format="other"),
    ]
    with open_source(gguf) as source:
        keys = {key_of(other, source) for other in (plan, *others)}
        assert len(keys) == len(others) + 1
        assert key_of(replace(plan, dst=tmp_path / "elsewhere"), source) in keys


def test_an_interrupt_leaves_what_the_next_run_needs(
    gguf: Path, tmp_path: Path, whole: Callable[[str], object]
) -> None:
    def interrupt(_nbytes: int) -> None:
        raise KeyboardInterrupt("by hand")

    out = tmp_path / "new" / "out"
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        run(gguf, out, "hf", resume=False, progress=interrupt)
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt, match="by hand"):
        run(gguf, out, "hf", progress=interrupt)
    assert len(stages(out)) == 1
    assert run(gguf, out, "hf").kept_bytes > 0
    assert content(out) == whole("hf")


def test_the_stage_of_a_longer_name_is_let_be(gguf: Path, tmp_path: Path) -> None:
    stage = kill(gguf, tmp_path / "out.more", "hf")
    assert run(gguf, tmp_path / "out", "hf").kept_bytes == 0
    assert stage.is_dir()
    assert run(gguf, tmp_path / "out.more", "hf").kept_bytes > 0


def test_the_tokenizer_appears_with_the_weights(gguf: Path, tmp_path: Path) -> None:
    hf = tmp_path / "hf"
    run(gguf, hf, "hf")
    (hf / "tokenizer.json").write_text("{}")
    stage = kill(hf, tmp_path / "out", "maxtext", "at the end")
    assert (stage / "output/tokenizer.json").read_text() == "{}"
    assert run(hf, tmp_path / "out", "maxtext").companions == ("tokenizer.json",)
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"


@pytest.mark.parametrize("to", ["hf", "maxtext"])
def test_a_tokenizer_that_is_gone_by_then_does_not_appear(
    gguf: Path, tmp_path: Path, to: str
) -> None:
    hf = tmp_path / "hf"
    run(gguf, hf, "hf")
    (hf / "tokenizer.json").write_text("{}")
    stage = kill(hf, tmp_path / "out", to, "at the end")
    assert (stage / "output/tokenizer.json").read_text() == "{}"
    (hf / "tokenizer.json").unlink()
    report = run(hf, tmp_path / "out", to)
    assert report.companions == ()
    assert report.kept_bytes == report.plan.write_bytes
    assert not (tmp_path / "out" / "tokenizer.json").exists()
