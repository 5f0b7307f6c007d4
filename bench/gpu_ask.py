"""Ask: a question in a process of its own, which may crash or hang without harm to the next."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["ROOT", "TIMEOUT", "ask", "lines_of"]

ROOT = Path(__file__).parents[1]
TIMEOUT = 180
ASK = (
    "import sys; import bench.gpu_kernel, bench.gpu_promises, bench.gpu_questions; "
    "from bench.gpu_case import main; main(sys.argv[1])"
)
_SHARES = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2"}


def ask(name: str, environment: dict[str, str], timeout: float = TIMEOUT) -> dict[str, Any]:
    """The answer to one case, or how its process ended."""
    lines, how = lines_of(["-c", ASK, name], environment, timeout)
    if how is not None:
        return how
    if not lines:
        return {"verdict": "FAILS", "finding": "no message"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def lines_of(
    arguments: Sequence[str], environment: dict[str, str], timeout: float
) -> tuple[list[str], dict[str, Any] | None]:
    """What a Python program prints, and how it ended if it ended badly."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "backends")))
    try:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=os.environ | _SHARES | environment | {"PYTHONPATH": path},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        printed = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        return printed.splitlines(), {
            "verdict": "HANGS",
            "finding": f"no answer in {timeout:.0f} s",
        }
    lines = done.stdout.splitlines()
    if done.returncode == 0:
        return lines, None
    if done.returncode < 0:
        return lines, {"verdict": "CRASHES", "finding": signal.Signals(-done.returncode).name}
    errors = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
    return lines, {"verdict": "FAILS", "finding": errors[-1][:200]}
