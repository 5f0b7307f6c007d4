"""Every benchmark that a CPU can answer: `python -m bench grid --quick`, or another name.

The modules beside it, from the bottom up:

    record, report, child                         files of results; tables; processes
    hand_numpy, hand_torch, hand_jax, contenders  ops on a kilobyte, by hand and otherwise
    plan, small, compare, grid                    the grid: what it measures, and what changed
    verdict, page, plot                           it beside its targets; in the guide; drawn
    overhead, exchange                            calls over and over; the same memory elsewhere
    memory_case, memory                           what a call holds at its peak
    porting_case, porting                         whole checkpoints
    loading_case, loading                         what ranks load of them
    sharding_cases, sharding_bytes                layouts between shardings, and what they move
    sharding_seconds, sharding                    how long that takes; all of it
    gpu                                           the same on an accelerator (`make gpu`)
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

_ALL = {
    "grid": "times of every op and of its alternatives, in memcpys",
    "compare": "what became slower or faster between two results of the grid",
    "page": "writes the figures of the results into the guide",
    "exchange": "to_torch, to_jax and to_numpy, beside the frameworks' from_dlpack",
    "memory": "peak memory of a call, in multiples of its input",
    "overhead": "repeated calls on a kilobyte, in microseconds",
    "porting": "whole checkpoints, beside scripts with the formats' own libraries",
    "loading": "what ranks read of a checkpoint, stored whole and cut for them",
    "sharding": "bytes and seconds of resharding, beside XLA and DTensor",
}
_NEEDS = {
    "exchange": ("numpy", "torch", "jax"),
    "porting": ("numpy", "torch", "safetensors", "tensorstore", "orbax"),
    "loading": ("numpy", "torch", "safetensors", "tensorstore", "orbax"),
    "sharding": ("numpy", "torch", "jax"),
}


def main(arguments: list[str]) -> int:
    """Run the benchmark that is named first, with the rest as its own arguments."""
    name, *rest = arguments or [""]
    if name in ("", "-h", "--help"):
        print("python -m bench NAME [...]; `NAME --help` lists its options. NAME is one of")
        print("\n".join(f"    {each:<9} {what}" for each, what in _ALL.items()))
        print("On an accelerator: python -m bench.gpu (`make gpu`).")
        return 0 if name else 2
    if name not in _ALL:
        print(f"bench: no {name!r}; there are {', '.join(_ALL)}", file=sys.stderr)
        return 2
    if absent := [needed for needed in _NEEDS.get(name, ("numpy",)) if not find_spec(needed)]:
        told = f"bench: {name} needs {' and '.join(absent)}, which the extra `bench` brings"
        print(told, file=sys.stderr)
        return 2
    status: int = import_module(f"bench.{name}").main(rest)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
