"""Run: the parts of a run on an accelerator, one after another, each in the time that is left."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.gpu.ask import LEAST, ask, lines_of, rows_of
from bench.gpu.checks import troubles
from bench.gpu.here import Here

__all__ = ["EXTRA", "PARTS", "Run"]

PARTS = ("kernel", "calls", "promises", "speed", "state", "jax", "compiled", "questions", "tests")
"""In the order of what must not be missed, for the last may find no time."""

EXTRA = ("tune",)

ABREAST = 4
"""Processes that are asked at a time: most of what one takes are its imports."""

JAX = ("calls", "promises", "jax", "questions")

_ON_GPU = {
    "speed": (["bench.gpu.speed"], 130),
    "state": (["bench.gpu.state"], 40),
    "jax": (["bench.gpu.jax"], 120),
    "compiled": (["bench.gpu.speed", "--compiled", "--dtype", "bfloat16"], 80),
    "tune": (["bench.gpu.tune", "--mib", "1024"], 300),
}
"""Part -> program and its seconds; each prints a line of JSON for each row."""

_ON_CPU = {
    "speed": ["--mib", "2", "--dtype", "bfloat16"],
    "state": ["--mib", "8"],
    "jax": ["--mib", "2", "--dtype", "bfloat16"],
}
"""Part -> what a CPU can be asked: whether the answers are right."""

_PYTEST = (
    *("-v", "--maxfail=20", "-p", "no:cacheprovider"),
    # pytest may be another version here, and warnings of its or torch's are no fault of the kernel.
    *("-W", "default", "-o", "minversion=8", "-o", "addopts=--import-mode=importlib"),
)
_TESTED = "tests/triton"
_XDIST = ("-n", "8", "--dist", "loadfile")  # a GPU's host has enough processors
_SECONDS_OF_TESTS = 180


class Run:
    """The parts that were run, and their output."""

    def __init__(self, here: Here, end: float, only: Collection[str] = ()) -> None:
        self.answers: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []
        self.broken: list[str] = []
        self.unasked: list[str] = []
        self._here, self._end, self._only = here, end, only

    def part(self, name: str) -> None:
        """Run one part."""
        if name in JAX and self._here.no_jax:
            print(f"{'-':8} {name:34} no JAX: {self._here.no_jax}", flush=True)
            self.unasked.append(name)
        elif name in _ON_GPU:
            self._program(name)
        elif name == "tests":
            self._tests()
        else:
            self._asked(name)

    def _say(self, name: str, answer: dict[str, Any]) -> None:
        self.answers[name] = answer
        print(f"{answer['verdict']:8} {name:34} {answer['finding']}", flush=True)

    def _left(self, most: float) -> float:
        return min(most, self._end - time.monotonic())

    def _asked(self, part: str) -> None:
        together, alone = [], []
        for name, case in self._here.cases.items():
            if case["part"] != part or (self._only and name not in self._only):
                continue
            question = {"question": case["question"]}
            if case["devices"] > self._here.where["devices"]:
                needs = f"needs {case['devices']} devices"
                self._say(name, question | {"verdict": "-", "finding": needs})
            elif not (self._here.cuda or case["on_cpu"]):
                self._say(name, question | {"verdict": "-", "finding": "needs an accelerator"})
            elif case["alone"]:
                alone.append([name])
            else:
                together.append(name)
        with ThreadPoolExecutor(ABREAST) as pool:
            groups = filter(None, (together, *alone))
            answers = [pair for some in pool.map(self._ask, groups) for pair in some]
        for name, answer in answers:
            self._say(name, {"question": self._here.cases[name]["question"], **answer})
            if answer["verdict"] == "LATE":
                self.unasked.append(name)
            elif answer["verdict"] != "ok" and part != "questions":
                self.broken.append(name)

    def _ask(self, names: list[str]) -> list[tuple[str, dict[str, Any]]]:
        first = self._here.cases[names[0]]
        environment = self._here.environment | first["environment"]
        return list(ask(first["module"], names, environment, self._end))

    def _program(self, name: str) -> None:
        program, seconds = _ON_GPU[name]
        if not self._here.cuda and name not in _ON_CPU:
            return
        if self._left(seconds) < LEAST:
            self.unasked.append(name)
            return
        more = [] if self._here.cuda else _ON_CPU[name]
        start = time.monotonic()
        arguments, environment = ["-m", *program, *more], self._here.environment
        lines, how = lines_of(arguments, environment, self._left(seconds))
        rows = [{"part": name, **row} for row in rows_of(lines) if "op" in row]
        self.rows += rows
        said = [text for row in rows for text in troubles(row)]
        took = f"{len(rows)} rows in {time.monotonic() - start:.0f} s"
        self._ended(name, how, said, took)

    def _tests(self) -> None:
        if not all(map(importlib.util.find_spec, ("pytest", "hypothesis"))):
            self._say("tests", {"verdict": "-", "finding": "pytest and hypothesis are not here"})
            return
        if self._left(_SECONDS_OF_TESTS) < LEAST:
            self.unasked.append("tests")
            return
        environment = self._here.environment | {"COLUMNS": "200"}
        if not self._here.cuda:
            environment["TRITON_INTERPRET"] = "1"
        several = self._here.cuda and importlib.util.find_spec("xdist")
        arguments = ["-m", "pytest", *_PYTEST, *(_XDIST if several else ()), _TESTED]
        lines, how = lines_of(arguments, environment, self._left(_SECONDS_OF_TESTS))
        said = [line for line in lines if re.match(r"(FAILED|ERROR)\b", line)]
        if not said:  # cut off before the summary
            said = [line for line in lines if re.search(r"::.* (FAILED|ERROR)\b", line)]
        self._ended("tests", how, said, (lines or ["nothing"])[-1].strip("= "))

    def _ended(self, name: str, how: dict[str, Any] | None, said: list[str], took: str) -> None:
        """Record how a program ended; what it said before it was cut off still counts."""
        how = how or {"verdict": "ok", "finding": ""}
        first = said[0] if said else how["finding"]
        self._say(
            name, how | {"finding": f"{took}  {first}".strip()} | ({"said": said} if said else {})
        )
        if how["verdict"] == "LATE":
            self.unasked.append(f"the rest of {name}")
        if said or how["verdict"] not in ("ok", "LATE"):
            self.broken.append(name)
