"""Every benchmark that a CPU can answer: `python -m bench grid --quick`, or another name."""

from __future__ import annotations

import subprocess
import sys

_SCRIPTS = ("exchange", "memory", "overhead", "porting", "sharding")
_ALL = ("grid", "compare", "page", *_SCRIPTS)


def main(arguments: list[str]) -> int:
    """Run the benchmark that is named first, with the rest as its own arguments."""
    name, *rest = arguments or [""]
    match name:
        case "" | "-h" | "--help":
            print(f"python -m bench NAME [...]; NAME is one of {', '.join(_ALL)}")
            return 0 if name else 2
        case "grid":
            from bench.grid import main as grid

            return grid(rest)
        case "compare":
            from bench.compare import main as compare

            return compare(rest)
        case "page":
            from bench.page import main as page

            return page(rest)
        case _ if name in _SCRIPTS:
            command = [sys.executable, "-m", f"bench.{name}", *rest]
            return subprocess.run(command, check=False).returncode
        case _:
            print(f"bench: no {name!r}; there are {', '.join(_ALL)}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
