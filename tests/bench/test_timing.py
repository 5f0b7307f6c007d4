"""A race gives each call's time relative to the fastest memcpy of its round, on any machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from xlayout.bench.timing import Timed, race, spread_of


class Machine:
    """A clock that moves when work is done on it, and slows down by rounds."""

    def __init__(self, slowness: Callable[[int], float] = lambda _work: 1.0) -> None:
        self.now = 0.0
        self.made = 0
        self.slowness = slowness
        self.names: list[str] = []

    def __call__(self) -> float:
        return self.now

    def work(self, name: str, seconds: float) -> Callable[[], object]:
        def call() -> None:
            self.now += seconds * self.slowness(self.made)
            self.made += 1
            self.names.append(name)

        return call


def raced(machine: Machine, *, seconds: float = 100.0) -> dict[str, Timed]:
    calls = {"two": machine.work("two", 2.0), "five": machine.work("five", 5.0)}
    units = {"slow": machine.work("slow", 3.0), "quick": machine.work("quick", 1.0)}
    found, _ = race(calls, units, rounds=9, seconds=seconds, clock=machine)
    return found


def test_the_unit_is_the_fastest_memcpy() -> None:
    found = raced(Machine())
    assert found["two"] == Timed(2.0, 0.0, 2.0, 9)
    assert found["five"] == Timed(5.0, 0.0, 5.0, 9)


def test_a_slow_round_is_slow_for_all() -> None:
    # Each round of four readings is slower than the one before: the seconds grow, no ratio does.
    found = raced(Machine(lambda work: 1.0 + work // 4))
    assert found["two"].ratio == pytest.approx(2.0)
    assert found["two"].spread == pytest.approx(0.0)
    assert found["two"].seconds > 4.0


def test_a_slow_moment_does_not_move_the_median() -> None:
    assert raced(Machine(lambda work: 50.0 if work == 13 else 1.0))["two"].ratio == 2.0


def test_a_slow_call_takes_part_in_fewer_rounds_but_three() -> None:
    found = raced(Machine(), seconds=8.0)
    assert (found["two"].rounds, found["five"].rounds) == (4, 3)


def test_the_order_changes_from_round_to_round() -> None:
    machine = Machine()
    raced(machine)
    orders = {tuple(machine.names[k : k + 4]) for k in range(4, len(machine.names), 4)}
    assert len(orders) > 4
    assert {tuple(sorted(order)) for order in orders} == {("five", "quick", "slow", "two")}


def test_a_short_call_is_made_many_times_a_reading() -> None:
    machine = Machine()
    units = {"unit": machine.work("unit", 1e-6)}
    found, unit = race({"it": machine.work("it", 1e-5)}, units, rounds=3, seconds=1, clock=machine)
    assert unit == pytest.approx(1e-6)
    assert found["it"].seconds == pytest.approx(1e-5)
    assert machine.names.count("unit") >= 3 * 200


def test_the_clock_waits_for_a_result_and_not_for_its_end() -> None:
    machine = Machine()

    class Result:
        def __del__(self) -> None:
            machine.now += 1000.0

    def call() -> Result:
        machine.now += 1.0
        return Result()

    def finish(_made: object) -> None:
        machine.now += 2.0

    found, _ = race(
        {"it": call}, {"unit": lambda: None}, rounds=3, seconds=99, clock=machine, finish=finish
    )
    assert found["it"].seconds == 3.0


def test_a_reading_and_the_end_of_its_result_are_inside_of_what_is_around() -> None:
    machine = Machine()

    class Result:
        def __del__(self) -> None:
            machine.names.append("let go")

    def call() -> Result:
        machine.work("it", 2.0)()
        return Result()

    @contextmanager
    def around() -> Iterator[None]:
        machine.now += 1000.0
        machine.names.append("open")
        yield
        machine.now += 1000.0
        machine.names.append("close")

    calls, units = {"it": call}, {"unit": machine.work("unit", 1.0)}
    found, unit = race(calls, units, rounds=3, seconds=99, clock=machine, around=around)
    assert (found["it"].seconds, unit) == (2.0, 1.0)
    made = " ".join(machine.names)
    assert made.count("open it let go close") == made.count("open unit close") == 3


@pytest.mark.parametrize(
    ("values", "spread"), [([7.0], 0.0), ([1.0, 3.0], 0.5), ([1.0, 2.0, 3.0, 4.0, 900.0], 1.0)]
)
def test_the_spread_is_half_the_distance_of_the_quartiles(
    values: list[float], spread: float
) -> None:
    assert spread_of(values) == spread
