"""Program: a part that measures something and then ends in the way it was told to."""

from __future__ import annotations

import sys
import time
from typing import Any

from bench.gpu.checks import show

ROW: dict[str, Any] = {"framework": "torch", "op": "zip", "dtype": "uint8", "mib": 64}
FIGURE = {"share": 0.9, "spread": 0.01, "seconds": 1e-4, "host": 1e-5}
GOOD = ROW | {"calls": {"xlayout": FIGURE}}
WRONG = ROW | {"calls": {"xlayout": "zip, xlayout: wrong answer", "eager": FIGURE}}


def main(end: str) -> None:
    """Print a good row, and come to an end."""
    if end == "wrong":
        show([GOOD, WRONG, GOOD])
    show([GOOD])
    if end == "half":
        sys.stdout.write('{"op": "zip", "dty')
    elif end == "late":
        time.sleep(60)
    elif end == "raises":
        raise RuntimeError("no memory")


if __name__ == "__main__":
    main(sys.argv[1])
