"""What only an accelerator can answer: promises, questions and speed, in one table and one file.

    python -m bench.gpu [PART ...] [--only CASE ...] [--minutes 9.5] [--out FILE]

`backends` and the root have to be on PYTHONPATH, as `make gpu` sets it. It needs numpy, torch with
CUDA, for some parts JAX with CUDA, and nothing else: no network, no installation; `tests` runs
where pytest is installed. Whatever is known is recorded after every part. The exit status is

    0: if everything holds
    1: if a promise is broken, an answer is wrong, or torch does not start
    2: if the command line names what does not exist, or a file of something else; nothing was run
    3: if torch sees no accelerator: only what a CPU can answer was asked, recorded only with --out
    4: if nothing is broken, but parts were left out for lack of time or of JAX

The modules beside it, from the bottom up:

    ask, case, here               what to ask, how, and what this machine has
    timing, checks, report, run   how answers are timed, checked, told and asked for
    speed, state, pallas, jax     speed, by framework
    kernel, calls                 what the Triton kernel promises
    promises, questions           what an exchange promises; what frameworks do
    tune                          other sizes of tiles
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bench.gpu.here import Here, here
from bench.gpu.report import file_of, misses, record, table, takes_record
from bench.gpu.run import EXTRA, PARTS, Run

NO_ACCELERATOR = 3
UNASKED = 4


def main() -> int:
    """Run the parts there is time for."""
    parser = argparse.ArgumentParser(
        "python -m bench.gpu", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"what to run: {', '.join((*PARTS, *EXTRA))}; default: all but {EXTRA[0]}",
    )
    parser.add_argument(
        "--only", nargs="+", metavar="CASE", default=(), help="run only these cases"
    )
    parser.add_argument(
        "--minutes", type=float, default=9.5, help="time limit (default: %(default)s)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where to write the results; default: a file in bench/results",
    )
    options = parser.parse_args()
    if unknown := set(options.parts) - {*PARTS, *EXTRA}:
        parser.error(f"no part {unknown.pop()!r}; there are {', '.join((*PARTS, *EXTRA))}")
    if options.out and not takes_record(options.out):
        parser.error(
            f"--out: {options.out} holds something else; wanted a new file, or one of ours"
        )
    end = time.monotonic() + 60 * options.minutes
    place = here()
    if place.no_torch:
        print(f"torch does not start here: {place.no_torch}")
        return 1
    if unknown := sorted(set(options.only) - place.cases.keys()):
        missing = f"; of those for JAX, which does not start, nothing is known: {place.no_jax}"
        known = f"there are {', '.join(place.cases)}"
        parser.error(f"no case {unknown[0]!r}; {known}{missing if place.no_jax else ''}")
    introduce(place)
    file = options.out or (file_of(place.where["device"]) if place.cuda else None)
    run = Run(place, end, options.only)
    for part in options.parts or parts_of(place, options.only) or PARTS:
        run.part(part)
        if file is not None:
            record(file, place.where, run.answers, run.rows)
    if file is not None:
        print(f"written to {file}")
    return conclude(run, cuda=place.cuda)


def parts_of(place: Here, only: list[str]) -> list[str]:
    """The parts that hold these cases."""
    found = {place.cases[name]["part"] for name in only}
    return [part for part in PARTS if part in found]


def introduce(place: Here) -> None:
    """Print what this machine has, and what is missing."""
    print(", ".join(f"{key} {value}" for key, value in place.where.items()))
    if not place.cuda:
        print("torch sees no accelerator here: only what a CPU can answer is asked.")
    if place.no_jax:
        print(f"JAX does not start here, and parts that need it are left out: {place.no_jax}")


def conclude(run: Run, *, cuda: bool) -> int:
    """Print the table and what is wrong; return the exit status."""
    if run.rows:
        print(table(run.rows, cuda=cuda))
    if cuda:
        print("\n".join(misses(run.rows)))
    print(f"broken: {', '.join(run.broken) or 'nothing'}")
    if run.unasked:
        print(f"not asked: {', '.join(run.unasked)}")
    if run.broken:
        return 1
    if not cuda:
        return NO_ACCELERATOR
    return UNASKED if run.unasked else 0


if __name__ == "__main__":
    sys.exit(main())
