"""Every call of a contest gives the answer, and one that does not is refused by name."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from xlayout.bench import contest as contest_module
from xlayout.bench.cases import CASES
from xlayout.bench.contest import NAMES, memcpys
from xlayout.bench.frameworks import FRAMEWORKS, contest
from xlayout.bench.rows import Row, Settings, Work, measure, raced, work

MB = 1 << 20
ONCE = Settings(1, rounds=3, seconds=0.01, compiled=False, peaks=False)
COLUMNS = {
    "torch": {"xlayout reused", "eager reused", "xlayout fresh", "eager fresh"},
    "jax": {"xlayout fresh", "eager fresh", "compiled fresh", "xlayout compiled"},
    "numpy": {"xlayout reused", "eager reused", "xlayout fresh", "eager fresh"},
}
COMPILED = {"compiled reused", "compiled fresh", "xlayout compiled"}


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip(name)
    return name


def measured(op: str, framework: str, dtype: str = "bfloat16") -> Row:
    return measure(work(op, dtype, 2 * MB), framework, 2 * MB, ONCE)


@pytest.mark.parametrize("op", CASES)
def test_every_call_of_a_case_gives_the_answer(op: str, framework: str) -> None:
    pytest.importorskip("einops")
    row = measured(op, framework)
    beyond = "fuse qkv", "split qkv", "pad rows", "pad columns", "trim columns"
    einops = set() if op in beyond else {"einops fresh"}
    assert set(row.times) == COLUMNS[framework] | einops
    assert row.family == CASES[op].family
    assert all(time.ratio > 0 and time.rounds == 3 for time in row.times.values())
    assert Row.from_json(row.to_json()).key == row.key


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_every_dtype_gives_the_answer(framework: str, dtype: str) -> None:
    assert measured("zip", framework, dtype).dtype == dtype


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what inductor itself imports
def test_compiled_calls_give_the_answer() -> None:
    pytest.importorskip("torch")
    from xlayout.bench.by_torch import can_compile

    if not can_compile():
        pytest.skip("torch.compile needs a C++ compiler")
    with_compiled = replace(ONCE, compiled=True)
    for op in ("fuse qkv", "zip", "split columns"):
        row = measure(work(op, "uint8", MB), "torch", MB, with_compiled)
        assert set(row.times) >= COMPILED
    assert set(NAMES) >= set(row.times)


@pytest.fixture
def held() -> Work:
    return work("zip", "uint8", MB)


def refused(held: Work, name: str, call: Any) -> None:
    """Race the contest of numpy with one of its calls replaced."""
    real = contest("numpy", held.case, held.content, "uint8", threads=1)
    fake = replace(real, calls={**real.calls, name: call(real)})
    key = "zip", "numpy", "uint8", MB
    raced(fake, held.wanted.view(np.uint8), key, "zips", ONCE)


def test_an_answer_that_turns_wrong_later_is_refused_by_name(held: Work) -> None:
    right, wrong = held.wanted.copy(), held.wanted.copy()
    wrong[0] ^= 1
    answers = iter([right])
    with pytest.raises(
        AssertionError, match=r"zip, numpy, uint8, eager fresh: byte 0 of 1048576 is wrong"
    ):
        refused(held, "eager fresh", lambda _real: lambda: next(answers, wrong))


def test_a_wrong_answer_is_refused_by_name(held: Work) -> None:
    wrong = held.wanted.copy()
    wrong[-1] ^= 1
    with pytest.raises(
        AssertionError, match=r"zip, numpy, uint8, eager fresh: byte 1048575 of 1048576 is wrong"
    ):
        refused(held, "eager fresh", lambda _real: lambda: wrong)


def test_a_call_that_writes_nothing_cannot_pass_with_an_older_answer(held: Work) -> None:
    with pytest.raises(AssertionError, match=r"eager reused: byte 0 of 1048576 is wrong"):
        refused(held, "eager reused", lambda real: lambda: last_written(real))


def test_memory_that_holds_an_older_answer_cannot_pass_for_a_fresh_one(held: Work) -> None:
    kept = held.wanted.copy()
    with pytest.raises(AssertionError, match=r"eager fresh: byte \d+ of 1048576 is wrong"):
        refused(held, "eager fresh", lambda _real: lambda: kept)


def last_written(real: Any) -> Any:
    """The array that is reused, as the last call left it."""
    variables = dict(zip(real.clear.__code__.co_freevars, real.clear.__closure__, strict=True))
    return variables["target"].cell_contents


def test_calls_that_are_left_out_are_not_made(held: Work) -> None:
    row = measure(held, "numpy", MB, ONCE, without={"eager fresh": "slow", "compiled fresh": "x"})
    assert "eager fresh" not in row.times
    assert row.left_out == {"eager fresh": "slow"}


def test_a_memcpy_holds_its_memory_where_there_is_no_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contest_module, "find_spec", {}.get)
    source, target = np.ones(MB, np.uint8), np.zeros(MB, np.uint8)
    here, there = weakref.ref(source), weakref.ref(target)
    (copy,) = memcpys(source, target, 1).values()
    del source, target
    assert here() is not None
    made = there()
    assert made is not None
    copy()
    assert made.all()
