"""Ask: questions in a process of their own, which may crash or hang without harm to the next."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["ASK", "KEPT", "LEAST", "ROOT", "SECONDS", "ask", "lines_of", "rows_of"]

ROOT = Path(__file__).parents[2]
SECONDS = 60
"""What a case may take."""

LEAST = 15
"""Seconds under which nothing is begun: the imports alone take half of that."""

KEPT = 40
"""Lines of standard error that are kept of what ends badly."""

ASK = "import sys; from bench.gpu.case import main; main(*sys.argv[1:])"

Answer = dict[str, Any]

_SHARES = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "PYTHONUNBUFFERED": "1",
}
_ERROR = re.compile(r"[\w.]+(Error|Exception|Interrupt|Exit)\b")
_WATCHDOG = re.compile(r"Timeout \((.*)\)!")


def ask(
    module: str,
    names: Sequence[str],
    environment: dict[str, str],
    end: float,
    seconds: float = SECONDS,
) -> Iterator[tuple[str, Answer]]:
    """The answers to cases of a module, which share a process until one of them brings it down."""
    left = end - time.monotonic()
    if left < LEAST:
        for name in names:
            yield name, {"verdict": "LATE", "finding": "no time left"}
        return
    most = seconds * (len(names) + 1) + LEAST
    arguments = ["-c", ASK, "ask", module, str(seconds), *names]
    lines, how = lines_of(arguments, environment, min(left, most))
    if how is not None and how["verdict"] == "LATE" and most < left:
        how["verdict"] = "HANGS"  # its own watchdog could not end it
    found = {row.pop("case"): row for row in rows_of(lines) if "case" in row}
    if how is not None and len(found) == len(names):
        del found[names[-1]]  # it answered, but then the process ended badly
    yield from found.items()
    for name in names:
        if name in found:
            continue
        if len(names) > 1:
            yield from ask(module, [name], environment, end, seconds)
        else:
            yield name, how or {"verdict": "FAILS", "finding": "no message"}


def rows_of(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The JSON objects among the lines; the last may have been cut off, and others be noise."""
    found = []
    for line in lines:
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


def lines_of(
    arguments: Sequence[str], environment: dict[str, str], timeout: float
) -> tuple[list[str], Answer | None]:
    """The lines a Python program prints, and how it ended if it ended badly."""
    path = [str(ROOT), str(ROOT / "backends"), *filter(None, [os.environ.get("PYTHONPATH")])]
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | _SHARES | environment | {"PYTHONPATH": os.pathsep.join(path)},
            cwd=ROOT,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as cut:
        return _lines(cut.stdout), {
            "verdict": "LATE",
            "finding": f"cut off after {timeout:.0f} s",
            "stderr": _lines(cut.stderr)[-KEPT:],
        }
    if done.returncode == 0:
        return _lines(done.stdout), None
    verdict, finding = _end(done.returncode, _lines(done.stderr))
    return _lines(done.stdout), {
        "verdict": verdict,
        "finding": finding,
        "stderr": _lines(done.stderr)[-KEPT:],
    }


def _end(code: int, errors: list[str]) -> tuple[str, str]:
    """(verdict, finding); frameworks end their errors with advice, so not just the last line."""
    if code < 0:
        return "CRASHES", signal.Signals(-code).name
    if waited := [found[1] for line in errors if (found := _WATCHDOG.match(line))]:
        return "HANGS", f"no answer in {waited[-1]}"
    said = [line for line in errors if line.strip()] or ["no message"]
    return "FAILS", ([line for line in said if _ERROR.match(line)] or said)[-1][:200]


def _lines(raw: bytes | None) -> list[str]:
    return (raw or b"").decode("utf-8", "replace").splitlines()
