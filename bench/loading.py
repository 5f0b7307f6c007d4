"""A DCP loaded by four ranks, stored whole and cut for them.

    python -m bench loading [--layers 16] [--rounds 3] [--folder /dev/shm]

The Llama of bench/porting.py goes to DCP twice: as whole tensors, and with `mesh=`. Four processes
then load it with `torch.distributed.checkpoint.load`, into DTensors of FSDP over tensor
parallelism, 2 x 2. Rounds alternate and medians are taken, of the slowest rank and of what the one
that reads most reads. `peak` is what the process takes beyond the memory of the model while it
loads. Every rank compares the whole tensors with those of the source.
"""

from __future__ import annotations

import math
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.child import child, children
from bench.loading_case import HOW, SHAPE
from bench.porting import LAYERS, ROUNDS, asked
from bench.report import save, show


def load(path: Path, hf: Path) -> dict[str, float]:
    """Load a DCP on all ranks; the most of each figure."""
    ranks = math.prod(SHAPE)
    with tempfile.TemporaryDirectory() as folder:
        told = [str(ranks), f"{folder}/meeting", str(path), str(hf)]
        found = children("loading_case", [["load", str(rank), *told] for rank in range(ranks)])
    return {name: max(each[name] for each in found) for name in found[0]}


def race(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Write and load in both ways, in turns."""
    hf = folder / "hf"
    written: dict[str, list[float]] = {how: [] for how in HOW}
    runs: dict[str, list[dict[str, float]]] = {how: [] for how in HOW}
    for _ in range(rounds):
        for how in HOW:
            shutil.rmtree(folder / how, ignore_errors=True)
            written[how].append(
                child("loading_case", "port", how, str(hf), str(folder / how))["seconds"]
            )
            runs[how].append(load(folder / how, hf))
    return [
        {
            "how": how,
            "written": round(statistics.median(written[how]), 3),
            **{
                name: round(statistics.median(run[name] for run in runs[how]), 3)
                for name in ("seconds", "read", "peak", "bytes")
            },
        }
        for how in HOW
    ]


def main(arguments: Sequence[str]) -> int:
    """Print the table and save it; return 1 if ranks read no less of what is cut for them."""
    options = asked("loading", __doc__, arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        child("porting_case", "make", name, str(options.layers))
        rows = race(Path(name), options.rounds)
    printed = [
        (
            row["how"],
            f"{row['written']:.2f}",
            f"{row['seconds']:.2f}",
            f"{row['read'] / 1e6:,.0f}",
            f"{row['bytes'] / 1e6:,.0f}",
            f"{row['peak'] / 1e6:,.0f}",
        )
        for row in rows
    ]
    heads = ("stored", "written s", "loaded s", "MB a rank reads", "holds", "takes beside")
    show("a DCP loaded by four ranks", heads, printed)
    if (options.layers, options.rounds) == (LAYERS, ROUNDS):
        print(f"written to {save('loading', rows)}")
    whole, cut = rows
    return int(cut["read"] >= whole["read"])
