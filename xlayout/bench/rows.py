"""Rows: what was measured of one op, framework, dtype and size, from the race to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlayout.bench.answers import UNSIGNED, Bits, answer, differs, elements
from xlayout.bench.cases import CASES, Case, make_case
from xlayout.bench.contest import Contest
from xlayout.bench.frameworks import contest
from xlayout.bench.pages import Stock
from xlayout.bench.peak import peak_of
from xlayout.bench.timing import Call, Timed, clock_of, race

__all__ = ["Key", "Row", "Settings", "Work", "measure", "raced", "work"]

Key = tuple[str, str, str, int]

_LARGE = 32 << 20
"""Bytes of a result from which its pages go back to the system: allocators keep smaller ones."""

_MOST = 2
"""Results that a call holds at once: one that goes step by step holds the step before, too."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table.

    Args:
        op: its name, of `CASES`.
        framework: whose arrays.
        dtype: of the elements.
        size: bytes of the input.
        family: the kind of op.
        unit: seconds of the fastest memcpy of the same number of bytes.
        times: by name of the call.
        peaks: the most memory a call held beyond its input, in multiples of the input.
        left_out: calls that were not made, and why.
    """

    op: str
    framework: str
    dtype: str
    size: int
    family: str
    unit: float
    times: Mapping[str, Timed]
    peaks: Mapping[str, float]
    left_out: Mapping[str, str]

    @property
    def key(self) -> Key:
        """What distinguishes the row from every other."""
        return self.op, self.framework, self.dtype, self.size

    def to_json(self) -> dict[str, Any]:
        """The row as JSON values, rounded to what the clock can resolve."""
        found = asdict(self)
        found["unit"] = float(f"{self.unit:.4g}")
        found["times"] = {
            name: [*(float(f"{x:.4g}") for x in (t.ratio, t.spread, t.seconds)), t.rounds]
            for name, t in self.times.items()
        }
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Row:
        """The row that `to_json` described."""
        times = {name: Timed(*values) for name, values in found["times"].items()}
        return cls(**{**found, "times": times})


@dataclass(frozen=True, slots=True)
class Settings:
    """How thoroughly to measure.

    Args:
        threads: how many each contender may use.
        rounds: the most readings of a call.
        seconds: the time for a call in one row; a slow call gets fewer rounds.
        compiled: whether `torch.compile` takes part.
        peaks: whether to note the highest memory of each call.
    """

    threads: int
    rounds: int = 9
    seconds: float = 1.0
    compiled: bool = True
    peaks: bool = True


@dataclass(frozen=True, slots=True)
class Work:
    """An op on concrete elements, for any framework, with the answer."""

    op: str
    dtype: str
    case: Case
    content: Bits
    wanted: Bits


def work(op: str, dtype: str, size: int) -> Work:
    """The elements of an op on about `size` bytes, and the answer that its layout defines.

    >>> work("zip", "uint8", 1 << 20).wanted.size
    1048576
    """
    item = np.dtype(UNSIGNED[dtype]).itemsize
    case = make_case(op, size // item)
    content = elements(case.layout.in_size, dtype)
    return Work(op, dtype, case, content, answer(case.layout, content))


def measure(
    work: Work,
    framework: str,
    size: int,
    settings: Settings,
    *,
    without: Mapping[str, str] = MappingProxyType({}),
) -> Row:
    """The row of an op on a framework's arrays; for the options see `raced`."""
    held = contest(
        framework,
        work.case,
        work.content,
        work.dtype,
        threads=settings.threads,
        compiled=settings.compiled,
    )
    key = work.op, framework, work.dtype, size
    family = CASES[work.op].family
    return raced(held, work.wanted.view(np.uint8), key, family, settings, without=without)


def raced(
    held: Contest,
    wanted: NDArray[np.uint8],
    key: Key,
    family: str,
    settings: Settings,
    *,
    without: Mapping[str, str] = MappingProxyType({}),
) -> Row:
    """A row: every call is checked, timed in a race with the others, and checked again.

    Args:
        held: the calls.
        wanted: the bytes of the answer.
        key: the key of the row; its size is in bytes.
        family: the kind of op.
        settings: how thoroughly to measure.
        without: calls to leave out, and why.

    Raises:
        AssertionError: naming a call whose answer is wrong.
    """
    calls = {name: call for name, call in held.calls.items() if name not in without}
    _check(calls, held, wanted, key)
    times, unit = race(
        calls,
        held.units,
        rounds=settings.rounds,
        seconds=settings.seconds,
        clock=clock_of(settings.threads),
        finish=held.finish,
        around=Stock(_MOST * wanted.size).free if wanted.size >= _LARGE else nullcontext,
    )
    _check(calls, held, wanted, key)  # by now a call uses what its first call cached
    peaks = {}
    for name, call in calls.items() if settings.peaks else ():
        peak = peak_of(call, held.finish)
        if peak is not None:
            peaks[name] = round(peak / wanted.size, 2)
    left = {name: why for name, why in without.items() if name in held.calls}
    return Row(*key, family, unit, times, peaks, left)


def _check(calls: Mapping[str, Call], held: Contest, wanted: NDArray[np.uint8], key: Key) -> None:
    for name, call in calls.items():
        if name.endswith("reused"):
            held.clear()
        made = call()
        held.finish(made)
        if wrong := differs(name, held.seen(made), wanted):
            raise AssertionError(f"{', '.join(key[:3])}, {wrong}")
        for part in held.seen(made):
            if part.flags.writeable:  # JAX's are not
                # Or an allocator may hand out the same memory again, with this answer in it.
                part.fill(0)
        del made
