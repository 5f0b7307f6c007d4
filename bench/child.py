"""Child: one step of a benchmark in a process of its own, in memory that nothing has touched."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

__all__ = ["child"]


def child(module: str, *arguments: str) -> Any:
    """Run a module of this folder; return what it prints last, as JSON.

    Raises:
        RuntimeError: if it failed, with its output.
    """
    command = [sys.executable, "-m", f"bench.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
