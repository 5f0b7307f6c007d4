"""The accelerator's questions can be asked anywhere, and whatever a case does is an answer."""

from __future__ import annotations

import importlib
import inspect
import os
import time
from pathlib import Path
from typing import Any

import pytest

from bench.gpu.ask import ASK, KEPT, ask, lines_of, rows_of
from bench.gpu.case import CASES, MODULES
from tests.devices import HOST_DEVICES

ON_CPU = {
    "JAX_PLATFORMS": "cpu",
    "XLA_FLAGS": f"--xla_force_host_platform_device_count={HOST_DEVICES}",
    "CUDA_VISIBLE_DEVICES": "",
}


def answers(module: str, *names: str, seconds: float = 60, within: float = 300) -> dict[str, Any]:
    return dict(ask(module, names, ON_CPU, time.monotonic() + within, seconds))


def test_a_case_is_answered_in_another_process() -> None:
    found = answers("bench.gpu.promises", "pointers_both_ways")  # a question may end in a crash
    assert found == {"pointers_both_ways": {"verdict": "ok", "finding": "14 dtypes on cpu:0"}}


def test_what_a_case_does_harms_no_other() -> None:
    names = ("fine", "untrue", "raises", "dies", "sleeps", "leaves", "also_fine")
    found = answers("tests.gpu.harmful", *names, seconds=4)
    assert list(found) == list(names)
    assert {name: answer["verdict"] for name, answer in found.items()} == {
        "fine": "ok",
        "untrue": "FAILS",
        "raises": "FAILS",
        "dies": "CRASHES",
        "sleeps": "HANGS",
        "leaves": "CRASHES",
        "also_fine": "ok",
    }
    assert {name: answer["finding"] for name, answer in found.items()} == {
        "fine": "well",
        "untrue": "two is not three",
        "raises": "RuntimeError: CUDA error: unspecified launch failure",
        "dies": "SIGKILL",
        "sleeps": "no answer in 0:00:04",
        "leaves": "SIGABRT",
        "also_fine": "well, too",
    }
    for name in ("untrue", "raises", "sleeps"):
        assert f"in {name}" in "\n".join(found[name]["stderr"]), name


def test_those_who_answer_share_a_process() -> None:
    start = time.monotonic()
    answers("tests.gpu.harmful", "fine")
    alone = time.monotonic() - start
    found = answers("tests.gpu.harmful", *["fine", "also_fine"] * 4)
    assert len(found) == 2
    assert time.monotonic() - start < 5 * alone


def test_each_case_has_time_of_its_own() -> None:
    lines, how = lines_of(["-c", ASK, "ask", "tests.gpu.harmful", "2", "naps", "naps"], ON_CPU, 60)
    assert how is None
    assert len(rows_of(lines)) == 2


def test_who_lets_jit_have_imported_memory_is_alone() -> None:
    """On a GPU XLA may end the process for it: "ForeignRawSEDeviceMemory cannot be donated"."""
    pytest.importorskip("jax")
    for module in MODULES["jax"]:
        importlib.import_module(module)
    found = [case for case in CASES.values() if "donate_argnums" in inspect.getsource(case.ask)]
    assert [case.risky for case in found] == [True, True]


def test_without_time_nothing_is_begun() -> None:
    start = time.monotonic()
    found = answers("tests.gpu.harmful", "fine", "dies", within=5)
    assert found == {k: {"verdict": "LATE", "finding": "no time left"} for k in ("fine", "dies")}
    assert time.monotonic() - start < 1


def ended(code: str, timeout: float = 60) -> dict[str, Any]:
    _, how = lines_of(["-c", f"import os, sys, time\n{code}"], {}, timeout)
    assert how is not None
    return how


@pytest.mark.parametrize(
    ("code", "verdict", "finding"),
    [
        ("os.abort()", "CRASHES", "SIGABRT"),
        ("sys.exit('no such device')", "FAILS", "no such device"),
        ("sys.exit('a.b.KeyError: 1\\nSet VERBOSE=1\\n\\n')", "FAILS", "a.b.KeyError: 1"),
        ("sys.exit('torch.Gone: 1\\n  in Error: 2\\nSystemExit: 3')", "FAILS", "SystemExit: 3"),
        ("sys.exit(1)", "FAILS", "no message"),
    ],
)
def test_the_error_is_found_before_the_advice(code: str, verdict: str, finding: str) -> None:
    how = ended(code)
    assert (how["verdict"], how["finding"]) == (verdict, finding)


def test_the_last_lines_are_kept_of_what_ends_badly() -> None:
    said = "for k in range(60): print(k, file=sys.stderr, flush=True)"
    lines = [str(k) for k in range(60)][-KEPT:]
    assert ended(f"{said}\nsys.exit(1)")["stderr"] == lines
    assert ended(f"{said}\nos.kill(os.getpid(), 9)")["stderr"] == lines
    assert ended(f"{said}\ntime.sleep(60)", 2)["stderr"] == lines


def test_what_was_printed_before_a_cut_is_kept() -> None:
    code = r"import os, time; os.write(1, b'{\"a\": 1}\n{\"b\": \"\xc3'); time.sleep(60)"
    lines, how = lines_of(["-c", code], {}, 2)
    assert rows_of(lines) == [{"a": 1}]
    assert how == {"verdict": "LATE", "finding": "cut off after 2 s", "stderr": []}


def test_the_users_own_path_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    lines, _ = lines_of(["-c", "import os; print(os.environ['PYTHONPATH'])"], {}, 60)
    assert lines[0].split(os.pathsep)[2:] == [str(tmp_path)]
