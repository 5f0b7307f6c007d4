"""Whole checkpoints from one format to another, beside scripts written with the formats' libraries.

    python -m bench porting [--layers 16] [--rounds 3] [--folder /dev/shm]

A Llama of random bfloat16 weights, 1.7 GB with the default settings, goes from Hugging Face
safetensors to DCP and to MaxText, and from MaxText back. Every run is a process of its own that
imports its libraries before the clock starts; `GB/s` counts the bytes of the tensors once, and the
peak is that of the whole process. `copy` reads and writes the files in blocks of 16 MiB. `xlayout`
also reads back and compares what it wrote, before the output appears; `unverified` does not, nor do
the others. Rounds alternate and medians are taken. The outputs are compared as the formats' own
readers return them.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.child import child
from bench.report import count, parser, save, show

WAYS = {"hf to dcp": "hf", "hf to maxtext": "hf", "maxtext to hf": "maxtext"}
LAYERS, ROUNDS = 16, 3  # as in the recorded results
WHO = ("copy", "xlayout", "unverified", "by hand")


def race(way: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Run every contender on one way, in turns, and compare their outputs."""
    source = folder / WAYS[way]
    runs: dict[str, list[dict[str, float]]] = {who: [] for who in WHO}
    for _ in range(rounds):
        for who, spent in runs.items():
            out = folder / f"{way} {who}"
            shutil.rmtree(out, ignore_errors=True)
            spent.append(child("porting_case", "run", way, who, str(source), str(out)))
    ours, theirs = (str(folder / f"{way} {who}") for who in ("xlayout", "by hand"))
    child("porting_case", "compare", way, ours, theirs)
    for who in WHO:
        shutil.rmtree(folder / f"{way} {who}")
    return {
        "way": way,
        "bytes": int(runs["xlayout"][0]["bytes"]),
        **{
            who: {
                name: round(statistics.median(run[name] for run in spent), 3)
                for name in ("seconds", "peak")
            }
            for who, spent in runs.items()
        },
    }


def asked(name: str, text: str | None, arguments: Sequence[str]) -> Namespace:
    """The options of a benchmark of the Llama: its layers, the rounds, and where its files go."""
    wanted = parser(name, text)
    wanted.add_argument(
        "--layers", type=count, default=LAYERS, help="layers of the model (default: %(default)s)"
    )
    wanted.add_argument(
        "--rounds", type=count, default=ROUNDS, help="times each is timed (default: %(default)s)"
    )
    wanted.add_argument(
        "--folder", type=Path, help="folder for the files; default: a temporary one"
    )
    options = wanted.parse_args(arguments)
    if options.folder and not options.folder.is_dir():
        wanted.error(f"--folder: {options.folder}; wanted a folder that is there")
    return options


def main(arguments: Sequence[str]) -> int:
    """Print the table and save it; return 1 if a script by hand beats an unverified port."""
    options = asked("porting", __doc__, arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        child("porting_case", "make", str(folder), str(options.layers))
        rows = [race(way, folder, options.rounds) for way in WAYS]
    printed = [
        (
            row["way"] if who == WHO[0] else "",
            who,
            f"{row[who]['seconds']:.2f}",
            f"{row['bytes'] / row[who]['seconds'] / 1e9:.2f}",
            f"{row[who]['peak'] / 1e6:,.0f}",
        )
        for row in rows
        for who in WHO
    ]
    size = f"{rows[0]['bytes'] / 1e9:.2f} GB"
    show(f"a checkpoint of {size}", ("way", "who", "s", "GB/s", "peak MB"), printed)
    if (options.layers, options.rounds) == (LAYERS, ROUNDS):
        print(f"written to {save('porting', rows)}")
    return int(any(row["unverified"]["seconds"] > row["by hand"]["seconds"] for row in rows))
