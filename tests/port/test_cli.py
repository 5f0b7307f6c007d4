"""The command line says what the library says, with an exit code to act on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import xlayout_native
from tests.port.models import same_bytes
from xlayout import __version__
from xlayout.cli import app


def xlayout(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_plan_shows_every_rule_and_writes_nothing(wide_llama: Path, tmp_path: Path) -> None:
    result = xlayout("plan", wide_llama, tmp_path / "out", "--to", "maxtext")
    assert result.exit_code == 0
    for text in (
        "model.layers.{0..2}.self_attn.q_proj.weight",
        "to params/params/…",
        "decoder/layers/self_attention/query/kernel",
        "(a=4 b=2 c=64) d=64 -> d a (c b), 3 along axis 1",
        "bfloat16 → float32, × 1/√dim = 0.0883883",
        "every source tensor is accounted for",
        "is stored wider than its origin, which makes its factor exactly invertible",
        "exact: every element comes back bit for bit",
    ):
        assert text in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_port_verify_and_diff_follow_one_another(wide_llama: Path, tmp_path: Path) -> None:
    there = xlayout("port", wide_llama, tmp_path / "tree", "--to", "maxtext", "--max-ram", "1MB")
    assert there.exit_code == 0
    assert "30 canonical tensors, every element identical" in there.stdout
    back = xlayout("port", tmp_path / "tree", tmp_path / "hf", "--to", "hf", "--no-verify")
    assert back.exit_code == 0
    assert "verified" not in back.stdout
    assert same_bytes(wide_llama, tmp_path / "hf")
    verified = xlayout("verify", tmp_path / "tree", tmp_path / "hf")
    assert verified.exit_code == 0
    assert "every element identical" in verified.stdout
    assert xlayout("diff", wide_llama, tmp_path / "hf").exit_code == 0
    assert xlayout("diff", wide_llama, tmp_path / "tree").exit_code == 1


def test_a_difference_is_an_exit_code_too(wide_llama: Path, tmp_path: Path) -> None:
    xlayout("port", wide_llama, tmp_path / "x", "--to", "maxtext", "--dtype", "bfloat16", "--lossy")
    result = xlayout("verify", wide_llama, tmp_path / "x")
    assert result.exit_code == 1
    assert "second rounded: 14." in result.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--to", "onnx"), "error: to: 'onnx'; hf, maxtext"),
        (("--to", "maxtext", "--dtype", "bfloat16"), "Leave dtype out to store them in float32"),
        (("--to", "maxtext", "--max-ram", "1KiB"), "which is the least that works"),
    ],
)
def test_a_refusal_is_a_message_and_no_traceback(
    wide_llama: Path, tmp_path: Path, arguments: tuple[str, ...], text: str
) -> None:
    for verb in ("plan", "port"):
        result = xlayout(verb, wide_llama, tmp_path / "out", *arguments)
        assert result.exit_code == 1
        assert text in result.stderr
        assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_plan_for_a_place_that_is_taken_is_shown_and_is_no_success(
    wide_llama: Path, tmp_path: Path
) -> None:
    """`xlayout plan … && xlayout port …` then stops where the port would."""
    (tmp_path / "something").touch()
    for taken in (wide_llama, tmp_path):
        planned = xlayout("plan", wide_llama, taken, "--to", "hf")
        assert "every source tensor is accounted for" in planned.stdout
        *_, told = planned.stdout.splitlines()
        refused = xlayout("port", wide_llama, taken, "--to", "hf")
        assert told == f"a run is refused: {refused.stderr.strip().removeprefix('error: ')}"
        assert (planned.exit_code, refused.exit_code) == (1, 1)


def test_a_path_where_nothing_is_says_so(tmp_path: Path) -> None:
    result = xlayout("inspect", tmp_path / "nothing:smile:")
    assert result.exit_code == 1
    assert "nothing:smile:: nothing is there; wanted a checkpoint file or" in result.stderr


def test_inspect_families_explain_and_info_answer(wide_llama: Path) -> None:
    assert "512 × 64" in xlayout("inspect", wide_llama).stdout
    families = [line.split(maxsplit=3) for line in xlayout("families").stdout.splitlines()]
    assert ["llama", "maxtext-unscanned", "maxtext", "yes"] in families
    assert ["llama", "gguf", "gguf", "read only"] in families
    lines = xlayout("families", "--to", "gguf").stdout.splitlines()
    assert [line.split() for line in lines[3:]] == [
        [name, "gguf", "gguf", "read", "only"]
        for name in ("llama", "mixtral", "qwen2", "qwen3", "qwen3-moe")
    ]
    rules = xlayout("families", "llama", "--to", "gguf").stdout
    assert "(heads two half) embed -> (heads half two) embed" in rules
    told = [line for line in xlayout("families", "llama").stdout.splitlines() if "√" in line]
    assert len(told) == 1
    assert "q_proj" in told[0]
    assert told[0].endswith("× 1/√dim")
    for name in (["llama"], []):
        unknown = xlayout("families", *name, "--to", "gg")
        assert unknown.exit_code == 1
        assert "to: 'gg'; hf, gguf, maxtext, " in unknown.stderr
    explained = xlayout("explain", "(h d) m -> m h d", "h=2", "d=3", "m=4").stdout
    assert "a=4 b=2 c=3 -> (b c) a" in explained
    assert "1 piece" in explained
    info = xlayout("info").stdout
    assert "xlayout" in info
    assert "safetensors" in info
    assert xlayout_native.status() in info
    assert "on CUDA" in info


def test_the_version_is_asked_for_without_a_command() -> None:
    result = xlayout("--version")
    assert (result.exit_code, result.stdout) == (0, f"xlayout {__version__}\n")
    assert "port them exactly" in xlayout("--help").stdout
    assert xlayout("--version", "inspect", "/nothing").exit_code == 0


def test_explain_says_what_undoes_a_layout_that_drops_or_repeats() -> None:
    assert "(3,) -> (6,) {2<-0:" in xlayout("explain", "(6,) -> (3,) {0<-2: (3, 1, 1)}").stdout
    twice = xlayout("explain", "(1,) -> (2,) {0<-0: (2, 0, 1)}").stdout
    assert "none: it repeats elements" in twice


def test_a_full_disk_behind_the_messages_is_no_failed_port(
    wide_llama: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "xlayout.cli", "port", str(wide_llama), str(tmp_path / "out")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*command, "--to", "hf"], stderr=full, stdout=subprocess.DEVNULL)
    assert done.returncode == 0


def test_explain_points_into_a_bad_pattern() -> None:
    assert xlayout("explain", "(h d m -> m h d", "h=2").exit_code == 1
    for size in ("h:2", "=2", "h=" + 5000 * "9"):
        result = xlayout("explain", "h d -> d h", size, "d=2")
        assert result.exit_code == 2
        told = " ".join(result.stderr.replace("│", "").split())
        assert f"Invalid value for sizes: '{size[:40]}" in told
        assert "wanted sizes such as h=8 d=64, of at most 18 digits" in told


def test_explain_refuses_two_sizes_of_one_axis() -> None:
    assert xlayout("explain", "h d -> d h", "h=3", "d=2", "h=3").exit_code == 0
    result = xlayout("explain", "h d -> d h", "h=3", "d=2", "h=4")
    assert result.exit_code == 2
    assert "h=4; it was h=3 before" in " ".join(result.stderr.split())


def process(*arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """The command line in a process of its own, whose two outputs are pipes."""
    command = [sys.executable, "-m", "xlayout.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_a_reader_that_has_seen_enough_is_no_failure(wide_llama: Path, tmp_path: Path) -> None:
    with process("port", wide_llama, tmp_path / "out", "--to", "hf") as port:
        assert port.stdout is not None
        port.stdout.close()
        assert port.stderr is not None
        assert port.stderr.read().strip() == b""
    assert port.returncode == 0
    assert same_bytes(wide_llama, tmp_path / "out")


def test_what_an_encoding_lacks_is_shown_as_its_escape(wide_llama: Path, tmp_path: Path) -> None:
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    with process("plan", wide_llama, tmp_path / "out", "--to", "hf", env=latin) as plan:
        shown, said = plan.communicate()
    assert said == b""
    assert shown.startswith(f"{wide_llama} (hf) \\u2192 {tmp_path}/out (hf)".encode("latin-1"))


@pytest.mark.parametrize(
    ("framework", "error", "why"),
    [
        ("torch", "OSError", "libcublas.so.12: cannot open shared object file"),
        ("jax", "RuntimeError", "jaxlib version 0.12.0 is newer than jax version 0.10.2"),
    ],
    ids=["torch", "jax"],
)
def test_info_bears_a_framework_that_cannot_be_loaded(
    tmp_path: Path, framework: str, error: str, why: str
) -> None:
    (tmp_path / f"{framework}.py").write_text(f"raise {error}({why!r})", "utf-8")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    with process("info", env={**os.environ, "PYTHONPATH": path}) as info:
        shown, said = info.communicate()
    assert said == b""
    assert f"not in use: {why}".encode() in shown


@pytest.mark.parametrize("verb", ["info", "families", "verify", "diff", "inspect"])
def test_a_disk_that_is_full_behind_the_output_is_a_message(wide_llama: Path, verb: str) -> None:
    paths = {"verify": 2, "diff": 2, "inspect": 1}.get(verb, 0) * [str(wide_llama)]
    command = [sys.executable, "-m", "xlayout.cli", verb, *paths]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.stderr == "error: [Errno 28] No space left on device: '<stdout>'\n"
    assert done.returncode == 1


@pytest.mark.parametrize("verb", ["families", "inspect", "verify"])
def test_an_output_that_is_closed_is_no_failure(wide_llama: Path, verb: str) -> None:
    paths = {"verify": 2, "inspect": 1}.get(verb, 0) * [str(wide_llama)]
    command = [sys.executable, "-m", "xlayout.cli", verb, *paths]
    closed = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE)
    assert (closed.returncode, closed.stderr) == (0, b"")


INTERRUPTED = """
import os, sys
from xlayout.cli import app

fsync, where = os.fsync, sys.argv.pop(1)

def interrupt(handle):
    if os.readlink(f"/proc/self/fd/{handle}").endswith(where):
        raise KeyboardInterrupt
    fsync(handle)

os.fsync = interrupt
app()
"""


@pytest.mark.parametrize(
    ("where", "options", "said"),
    [
        ("output", [], "; what was written is kept, and the same command goes on from there"),
        ("output", ["--no-resume"], ""),
        ("here", [], "; the output was complete by then"),
    ],
)
def test_an_interrupt_says_what_is_left(
    wide_llama: Path, tmp_path: Path, where: str, options: list[str], said: str
) -> None:
    out = tmp_path / "here" / "out"
    command = [sys.executable, "-c", INTERRUPTED, where, "port", wide_llama, out, "--to", "hf"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    assert done.stderr.strip() == f"interrupted{said}"
    assert done.returncode == 130
    assert out.exists() is ("complete" in said)
    assert bool(list(tmp_path.glob("here/.out.*"))) is ("kept" in said)
