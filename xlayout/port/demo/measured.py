"""A step of the demo run in a process of its own, with its result and its peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from xlayout.errors import PortError

__all__ = ["Measured", "measured"]

_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "JAX_PLATFORMS": "cpu",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What a step returned, and its peak resident memory in bytes."""

    result: dict[str, Any]
    peak_rss: int


def measured(step: str, /, **arguments: Any) -> Measured:
    """Run a step of `xlayout.port.demo.steps`.

    Raises:
        PortError: It failed; the message ends with the step's own.
    """
    command = [sys.executable, "-m", "xlayout.port.demo.steps", step, json.dumps(arguments)]
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, **_OFFLINE, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise PortError(f"{step}: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))
