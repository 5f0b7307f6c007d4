"""What only an accelerator can answer: every question in a process of its own, one table, one file.

    PYTHONPATH=.:backends python -m bench.gpu [PART ...] [--only CASE ...] [--minutes 9.5]

Needs torch with CUDA and JAX with CUDA, and nothing else: no network, no installation; `tests` runs
where pytest is. Ends with 0: all holds; 1: a promise is broken, or an answer is wrong; 3: there is
no accelerator, so that only what a CPU can answer was asked, and nothing is recorded.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from typing import Any

from bench.gpu_ask import TIMEOUT, ask, lines_of
from bench.gpu_report import misses, record, table

PARTS = ("kernel", "speed", "state", "jax", "promises", "compiled", "questions", "tests")
EXTRA = ("tune",)
NO_ACCELERATOR = 3

_ON_GPU = {
    "speed": (["bench.gpu_speed"], 150),
    "state": (["bench.gpu_state"], 60),
    "jax": (["bench.gpu_jax"], 120),
    "compiled": (["bench.gpu_speed", "--compiled", "--dtype", "bfloat16"], 150),
    "tune": (["bench.gpu_tune", "--mib", "1024"], 300),
}
"""Part -> program and its seconds; each prints a line of JSON for each row."""

_ON_CPU = {
    "speed": ["--mib", "2", "--dtype", "bfloat16"],
    "state": ["--mib", "8"],
    "jax": ["--mib", "2", "--dtype", "bfloat16"],
}
"""Part -> what a CPU can be asked: whether the answers are right."""


def main() -> int:
    """Run the parts there is time for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join((*PARTS, *EXTRA)))
    parser.add_argument("--only", nargs="+", metavar="CASE", help="these cases alone")
    parser.add_argument("--minutes", type=float, default=9.5)
    options = parser.parse_args()
    if unknown := set(options.parts) - {*PARTS, *EXTRA}:
        parser.error(f"no part {unknown.pop()!r}; there are {', '.join((*PARTS, *EXTRA))}")
    end = time.monotonic() + 60 * options.minutes
    base = platforms()
    listed = ask("list", base)
    if "cases" not in listed:
        print(f"torch and JAX do not both run here: {listed['finding']}")
        return 1
    where = listed["surroundings"]
    cuda = where["platform"] != "cpu"
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    if not cuda:
        print("No accelerator here: only what a CPU can answer is asked, and nothing is recorded.")
    run = Run(base, listed["cases"], where["devices"], end, cuda=cuda, only=options.only)
    for part in options.parts or PARTS:
        run.part(part)
    if run.rows:
        print(table(run.rows, cuda=cuda))
    if cuda:
        print("\n".join(misses(run.rows)))
        print(f"written to {record(where, run.answers, run.rows)}")
    print(f"broken: {', '.join(run.broken) or 'nothing'}")
    if run.late:
        print(f"no time left for: {', '.join(run.late)}")
    if run.broken:
        return 1
    return 0 if cuda else NO_ACCELERATOR


class Run:
    """The parts that were run, and what they said."""

    def __init__(
        self,
        base: dict[str, str],
        cases: dict[str, Any],
        devices: int,
        end: float,
        *,
        cuda: bool,
        only: list[str] | None,
    ) -> None:
        self.answers: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.broken: list[str] = []
        self.late: list[str] = []
        self._base, self._cases, self._devices, self._end = base, cases, devices, end
        self._cuda, self._only = cuda, only

    def part(self, name: str) -> None:
        """Run one part, in the time that is left."""
        if name in _ON_GPU:
            self._program(name)
        elif name == "tests":
            self._tests()
        else:
            self._asked(name)

    def _left(self, most: float) -> float:
        return min(most, self._end - time.monotonic())

    def _asked(self, part: str) -> None:
        for name, case in self._cases.items():
            if case["part"] != part or (self._only and name not in self._only):
                continue
            if case["devices"] > self._devices:
                answer = {"verdict": "-", "finding": f"needs {case['devices']} devices"}
            elif not (self._cuda or case["on_cpu"]):
                answer = {"verdict": "-", "finding": "needs an accelerator"}
            elif self._left(TIMEOUT) < 15:
                self.late.append(name)
                continue
            else:
                answer = ask(name, self._base | case["environment"], self._left(TIMEOUT))
            self.answers[name] = {"question": case["question"], **answer}
            print(f"{answer['verdict']:8} {name:34} {answer['finding']}", flush=True)
            if part != "questions" and answer["verdict"] not in ("ok", "-"):
                self.broken.append(name)

    def _program(self, name: str) -> None:
        (program, seconds), left = _ON_GPU[name], self._left(_ON_GPU[name][1])
        if not self._cuda and name not in _ON_CPU:
            return
        if left < 15:
            self.late.append(name)
            return
        more = [] if self._cuda else _ON_CPU[name]
        start = time.monotonic()
        lines, how = lines_of(["-m", *program, *more], self._base, left)
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        self.rows += [{"part": name, **row} for row in rows]
        verdict, finding = ("ok", "") if how is None else (how["verdict"], how["finding"])
        finding = f"{len(rows)} rows in {time.monotonic() - start:.0f} s  {finding}"
        print(f"{verdict:8} {name:34} {finding}", flush=True)
        if verdict == "HANGS" and left < seconds:
            self.late.append(f"the rest of {name}")
        elif how is not None:
            self.broken.append(name)

    def _tests(self) -> None:
        if not all(map(importlib.util.find_spec, ("pytest", "hypothesis"))):
            print(f"{'-':8} {'tests':34} pytest and hypothesis are not here")
            return
        if self._left(TIMEOUT) < 15:
            self.late.append("tests")
            return
        environment = self._base | ({} if self._cuda else {"TRITON_INTERPRET": "1"})
        arguments = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "tests/triton"]
        lines, how = lines_of(arguments, environment, self._left(TIMEOUT))
        said = how["finding"] if how is not None and not lines else (lines or ["nothing"])[-1]
        verdict = "ok" if how is None else how["verdict"]
        print(f"{verdict:8} {'tests':34} {said}", flush=True)
        self.answers["tests"] = {"verdict": verdict, "finding": said}
        if how is not None:
            self.broken.append("tests")


def platforms() -> dict[str, str]:
    """The environment in which JAX sees the accelerator beside the CPU, if there is one."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    seen = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.is_available())"],
        capture_output=True,
        text=True,
        check=False,
    )
    cuda = seen.stdout.strip() == "True"
    return {"JAX_PLATFORMS": "cuda,cpu"} if cuda else {"JAX_PLATFORMS": "cpu", **flags}


if __name__ == "__main__":
    sys.exit(main())
