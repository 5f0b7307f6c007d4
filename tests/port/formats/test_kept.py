"""What a run wrote is kept until it is proven wrong, or another run takes its place for good."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.port.formats.failing import failing
from tests.port.formats.programs import script, with_mount
from tests.port.formats.test_journal import FORMATS, SPECS, finish, interrupted
from xlayout.errors import PortError
from xlayout.port.formats import Sink, TensorSpec, create_sink, numpy_dtype, open_source
from xlayout.port.formats.journal import JOURNAL

COMMITS = """
        import ml_dtypes
        specs = {"a": TensorSpec("int8", (4,)), "b": TensorSpec("bfloat16", (2, 3))}
        with create_sink(*sys.argv[1:3], specs, key="key") as sink:
            sink.write("a", np.arange(4, dtype=np.int8))
            sink.write("b", np.ones((2, 3), ml_dtypes.bfloat16))
            sink.commit()
        """
"""Of a program: a whole run, to the place and in the format that it is given."""

KEPT = "what was written is kept, and the same command goes on from there"


def stages(out: Path) -> list[Path]:
    return sorted(out.parent.glob(f".{out.name}.*.partial"))


def ran(program: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(program, capture_output=True, text=True, **options)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_run_that_is_refused_removes_no_other_plans_work(tmp_path: Path, format_: str) -> None:
    out = tmp_path / "out"
    interrupted(out, format_)
    with pytest.raises(PortError, match="the disk is full"):
        create_sink(out, format_, {"x": TensorSpec("int8", (1 << 60,))}, key="other")
    out.touch()
    with pytest.raises(PortError, match="already holds something"):
        create_sink(out, format_, SPECS, key="key")
    out.unlink()
    assert finish(out, format_, "key") == ["a"]


def test_a_run_without_tensorstore_removes_no_other_plans_work(tmp_path: Path) -> None:
    out = tmp_path / "here" / "out"
    out.parent.mkdir()
    interrupted(out, "maxtext")
    (tmp_path / "tensorstore.py").write_text("raise ImportError('halfway')")
    program = script(
        "create_sink(sys.argv[1], 'maxtext', {'x': TensorSpec('int8', (4,))}, key='other')", out
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = ran(program, env={**os.environ, "PYTHONPATH": path})
    assert "ImportError: halfway" in done.stderr
    assert finish(out, "maxtext", "key") == ["a"]


def test_what_will_be_removed_counts_as_room(tmp_path: Path) -> None:
    """On a real filesystem of 4 MB, of which another plan's work occupies three."""
    program = script(
        """
        out, specs = Path(sys.argv[1]) / "out", {"x": TensorSpec("int8", (3 << 20,))}
        for key in ("one", "other"):
            try:
                with create_sink(out, "safetensors", specs, key=key) as sink:
                    sink.write("x", np.ones(3 << 20, np.int8))
                    if key == "one":
                        raise KeyboardInterrupt
                    sink.commit()
            except KeyboardInterrupt:
                pass
        print([path.name for path in out.parent.iterdir()])
        """,
        tmp_path,
    )
    done = ran([*with_mount(tmp_path, "size=4m"), *program])
    assert done.stdout == "['out']\n", done.stderr


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "Input/output error"), ImportError("halfway"), MemoryError()]
)
def test_what_says_nothing_against_the_bytes_leaves_them(
    tmp_path: Path, format_: str, error: Exception
) -> None:
    def fail(key: str | None) -> None:
        with create_sink(tmp_path / "out", format_, SPECS, key=key) as sink:
            sink.write("a", np.arange(4, dtype=np.int8))
            raise type(error)(*error.args)

    with pytest.raises(type(error)) as caught:
        fail("key")
    assert caught.value.__notes__ == [KEPT]
    assert finish(tmp_path / "out", format_, "key") == ["a"]
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(type(error)):
        fail(None)
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_opened_for_now_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path / "out", "safetensors")
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output error") as caught:
            create_sink(tmp_path / "out", "safetensors", SPECS, key="key")
    assert caught.value.filename == str(tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", failing(errno.EIO))
        with pytest.raises(OSError, match="Input/output error") as caught:
            create_sink(tmp_path / "out", "safetensors", SPECS, key="key")
    assert caught.value.filename.endswith(f".partial/{JOURNAL}")
    assert finish(tmp_path / "out", "safetensors", "key") == ["a"]


@pytest.mark.parametrize("format_", FORMATS)
def test_what_was_refused_leaves_nothing(tmp_path: Path, format_: str) -> None:
    def fail() -> None:
        with create_sink(tmp_path / "out", format_, SPECS, key="key") as sink:
            sink.write("a", np.arange(4, dtype=np.int8))
            raise PortError("not what was written")

    with pytest.raises(PortError, match="not what was written") as caught:
        fail()
    assert not hasattr(caught.value, "__notes__")
    assert not list(tmp_path.iterdir())


LIMITED = """
import resource
out, format_, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
specs = {"a": TensorSpec("int8", (1 << 20,)), "b": TensorSpec("int8", (1 << 20,))}
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
with create_sink(out, format_, specs, key="key") as sink:
    for name, spec in specs.items():
        if not sink.holds(name, (slice(0, 1 << 20),), np.empty(1 << 20, np.int8)):
            sink.write(name, np.ones(1 << 20, np.int8))
        else:
            print("held", name)
        if limit < 0:
            raise KeyboardInterrupt
    sink.commit()
"""


@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_that_may_not_grow_is_named_and_what_is_there_is_kept(
    tmp_path: Path, format_: str
) -> None:
    out = tmp_path / "out"
    begin, limited = (script(LIMITED, out, format_, limit) for limit in (-1, 500_000))
    assert "KeyboardInterrupt" in ran(begin).stderr
    (stage,) = stages(out)
    done = ran(limited)
    assert "OSError: [Errno 27] a file may not grow that large here" in done.stderr
    assert f"(ulimit -f): '{out}'\n{KEPT}\n" in done.stderr
    assert stages(out) == [stage]
    assert ran(begin).stdout == "held a\n"


@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_that_may_not_grow_at_all_leaves_no_empty_stage(
    tmp_path: Path, format_: str
) -> None:
    done = ran(script(LIMITED, tmp_path / "out", format_, 0))
    assert done.returncode
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format_", FORMATS)
def test_a_run_that_is_killed_before_the_rename_is_gone_on_with(
    tmp_path: Path, format_: str
) -> None:
    program = script(
        """
        import signal
        fsync = os.fsync

        def die(handle):
            if os.readlink(f"/proc/self/fd/{handle}").endswith("output"):
                os.kill(os.getpid(), signal.SIGKILL)
            fsync(handle)

        os.fsync = die
        """
        + COMMITS,
        tmp_path / "out",
        format_,
    )
    assert ran(program).returncode == -signal.SIGKILL
    assert finish(tmp_path / "out", format_, "key") == ["a", "b"]


@pytest.mark.parametrize("step", ["rename", "unlink"])
def test_a_run_that_is_killed_while_its_folder_appears_loses_nothing(
    tmp_path: Path, step: str
) -> None:
    program = script(
        """
        import signal
        setattr(Path, sys.argv[3], lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        """
        + COMMITS,
        tmp_path / "out",
        "safetensors",
        step,
    )
    assert ran(program).returncode == -signal.SIGKILL
    if step == "rename":
        assert finish(tmp_path / "out", "safetensors", "key") == ["a", "b"]
    else:  # the folder in which it grew is still there
        with pytest.raises(PortError, match="already holds something"):
            create_sink(tmp_path / "out", "safetensors", SPECS, key="key")
    with open_source(tmp_path / "out") as source:
        assert source.read("a").tolist() == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "model.safetensors"]


def finished(sink: Sink) -> None:
    sink.write("a", np.arange(4, dtype=np.int8))
    sink.write("b", np.ones((2, 3), numpy_dtype("bfloat16")))
    sink.commit()


def committed(out: Path, key: str | None = "key") -> None:
    with create_sink(out, "safetensors", SPECS, key=key) as sink:
        finished(sink)


@pytest.mark.parametrize("mode", [0o755, 0o500])
def test_a_rename_that_is_interrupted_leaves_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("by hand")

    out = tmp_path / "out"
    out.mkdir()
    out.chmod(mode)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupt)
        with pytest.raises(KeyboardInterrupt, match="by hand") as caught:
            committed(out)
    assert caught.value.__notes__ == [KEPT]
    assert finish(out, "safetensors", "key") == ["a", "b"]


@pytest.mark.parametrize("name", ["out", "x.safetensors"])
def test_an_interrupt_after_the_output_appeared_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fsync = os.fsync

    def interrupt(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink() == tmp_path:
            raise KeyboardInterrupt("by hand")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt, match="by hand") as caught:
        committed(tmp_path / name)
    assert caught.value.__notes__ == ["the output was complete by then"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_run_that_is_killed_after_the_link_leaves_a_folder_that_the_next_one_removes(
    tmp_path: Path,
) -> None:
    out = tmp_path / "x.safetensors"
    program = script(
        """
        import signal
        os.link = lambda *names, link=os.link: (link(*names), os.kill(os.getpid(), signal.SIGKILL))
        with create_sink(sys.argv[1], "safetensors", {"a": TensorSpec("int8", (4,))}) as sink:
            sink.write("a", np.ones(4, np.int8))
            sink.commit()
        """,
        out,
    )
    assert ran(program).returncode == -signal.SIGKILL
    assert stages(out)
    with pytest.raises(PortError, match="already holds something"):
        create_sink(out, "safetensors", SPECS)
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]
