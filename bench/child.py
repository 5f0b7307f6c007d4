"""Child: one step of a benchmark in a process of its own, in memory that nothing has touched."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["bytes_read", "child", "children"]


def child(module: str, *arguments: str) -> Any:
    """Run a module of this folder; return what it prints last, as JSON.

    Raises:
        RuntimeError: if it failed, with its output.
    """
    return children(module, [arguments])[0]


def children(module: str, calls: Sequence[Sequence[str]]) -> list[Any]:
    """The same for several processes that run at once, each with its own arguments."""
    commands = [[sys.executable, "-m", f"bench.{module}", *arguments] for arguments in calls]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    told = [process.communicate() for process in processes]
    for process, command, (_, error) in zip(processes, commands, told, strict=True):
        if process.returncode:
            raise RuntimeError(f"{' '.join(command[1:])}\n{error}")
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


def bytes_read() -> int:
    """Bytes that this process has read so far, from files in memory too."""
    return int(Path("/proc/self/io").read_text().split()[1])
