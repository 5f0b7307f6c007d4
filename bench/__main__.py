"""Every benchmark that a CPU can answer: `make bench`, or `python -m bench overhead` for one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_ALL = ("overhead", "exchange", "memory", "speed", "sharding")


def main(names: list[str]) -> int:
    """Run these benchmarks, or all of them, each in a process of its own."""
    unknown = [name for name in names if name not in _ALL]
    if unknown:
        print(f"bench: no {unknown[0]!r}; there are {', '.join(_ALL)}")
        return 2
    path = os.pathsep.join([str(_HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    failed = 0
    for name in names or _ALL:
        print(f"\n{name}", flush=True)
        script = str(_HERE / f"{name}.py")
        failed += subprocess.run([sys.executable, script], env=environment).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
