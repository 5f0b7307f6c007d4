"""Partition: the size rules of real systems, one by one, and what holds for all of them."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlayout.algebra import partition
from xlayout.errors import LayoutError, SizeError

RULES = ["balanced", "ceil", "back", "last"]
totals, counts, units = st.integers(0, 200), st.integers(1, 12), st.integers(1, 9)
rules = st.sampled_from(RULES)


@given(totals, counts, units, rules)
def test_the_parts_add_up(total: int, parts: int, unit: int, rule: str) -> None:
    sizes = partition(total, parts, rule=rule, unit=unit)
    assert len(sizes) == parts
    assert sum(sizes) == total
    assert min(sizes) >= 0


@given(totals, counts, units, rules)
def test_all_parts_but_the_last_are_whole_units(
    total: int, parts: int, unit: int, rule: str
) -> None:
    sizes = partition(total, parts, rule=rule, unit=unit)
    assert all(n % unit == 0 for n in sizes[:-1])
    assert sizes[-1] % unit == total % unit


@given(totals, counts, units, rules)
def test_units_scale(total: int, parts: int, unit: int, rule: str) -> None:
    whole = partition(total, parts, rule=rule)
    assert partition(total * unit, parts, rule=rule, unit=unit) == tuple(n * unit for n in whole)


@given(totals, counts)
def test_balanced_parts_differ_by_one_and_the_larger_come_first(total: int, parts: int) -> None:
    sizes = partition(total, parts)
    assert sizes[0] - sizes[-1] in (0, 1)
    assert list(sizes) == sorted(sizes, reverse=True)
    assert partition(total, parts, rule="back") == sizes[::-1]


@given(totals, counts)
def test_balanced_is_the_edge_formula(total: int, parts: int) -> None:
    """edge_q = q * (n // p) + min(q, n % p), as DeepSpeed's `partition_uniform`."""
    edges = [q * (total // parts) + min(q, total % parts) for q in range(parts + 1)]
    assert [0, *accumulate(partition(total, parts))] == edges


@given(totals, counts)
def test_ceil_is_torch_chunk_with_its_empty_parts_kept(total: int, parts: int) -> None:
    torch = pytest.importorskip("torch")
    chunks = [c.numel() for c in torch.empty(total).chunk(parts)]
    sizes = partition(total, parts, rule="ceil")
    assert list(sizes) == [*chunks, *[0] * (parts - len(chunks))]


@given(st.integers(0, 20), counts, units)
def test_every_rule_agrees_where_it_is_even(each: int, parts: int, unit: int) -> None:
    wanted = (each * unit,) * parts
    for rule in [*RULES, "even"]:
        assert partition(each * unit * parts, parts, rule=rule, unit=unit) == wanted


@pytest.mark.parametrize(
    ("total", "parts", "edges"),
    [
        (10, 4, (0, 3, 6, 8, 10)),
        (38, 8, (0, 5, 10, 15, 20, 25, 30, 34, 38)),
        (7, 3, (0, 3, 5, 7)),
        (3, 5, (0, 1, 2, 3, 3, 3)),
        (0, 3, (0, 0, 0, 0)),
    ],
)
def test_balanced_is_partition_uniform(total: int, parts: int, edges: tuple[int, ...]) -> None:
    assert (0, *accumulate(partition(total, parts))) == edges


@pytest.mark.parametrize(
    ("total", "parts", "edges"),
    [
        (10, 4, (0, 2, 4, 6, 10)),
        (38, 8, (0, 4, 8, 12, 16, 20, 24, 28, 38)),
        (7, 3, (0, 2, 4, 7)),
    ],
)
def test_last_is_partition_uniform_as_it_was(
    total: int, parts: int, edges: tuple[int, ...]
) -> None:
    assert (0, *accumulate(partition(total, parts, rule="last"))) == edges


@pytest.mark.parametrize(
    ("rule", "sizes"),
    [
        ("balanced", (3, 3, 2, 2)),
        ("ceil", (3, 3, 3, 1)),
        ("back", (2, 2, 3, 3)),
        ("last", (2, 2, 2, 4)),
    ],
)
def test_ten_in_four(rule: str, sizes: tuple[int, ...]) -> None:
    assert partition(10, 4, rule=rule) == sizes


@pytest.mark.parametrize(
    ("total", "parts", "unit", "sizes"),
    [
        (384, 4, 64, (128, 128, 64, 64)),
        (8, 4, 4, (4, 4, 0, 0)),
        (12, 2, 12, (12, 0)),
        (50257, 8, 64, (6336, *[6272] * 6, 6289)),
        (100, 4, 64, (64, 0, 0, 36)),
        (11008, 3, 64, (3712, 3648, 3648)),
    ],
)
def test_units_are_heads_and_grains(
    total: int, parts: int, unit: int, sizes: tuple[int, ...]
) -> None:
    assert partition(total, parts, unit=unit) == sizes


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((10, 4), {"rule": "even"}, r"total: 10 .* evenly into 4 parts; .*would: 1, 2, 5, 10$"),
        ((30, 4), {"rule": "even", "unit": 5}, r"4 parts of whole units of 5; .*would: 1, 2, 3, 6"),
        ((21, 4), {"rule": "even", "unit": 5}, r"the total must be a multiple of 5"),
        ((720720, 17), {"rule": "even"}, r"would: 1, 2, 3, 4, 5, 6, \.\.\., 144144, .*, 720720$"),
        ((-1, 4), {}, r"total: -1; wanted at least 0"),
        ((10, 0), {}, r"parts: 0; wanted at least 1"),
        ((10, 4), {"unit": 0}, r"unit: 0; wanted at least 1"),
    ],
)
def test_a_partition_that_cannot_be_is_refused(
    args: tuple[int, int], options: dict[str, object], message: str
) -> None:
    with pytest.raises(SizeError, match=message):
        partition(*args, **options)


def test_a_rule_that_is_not_known_is_no_size() -> None:
    wanted = r"^rule: 'fair'; wanted one of 'balanced', 'ceil', 'back', 'last', 'even'$"
    with pytest.raises(LayoutError, match=wanted) as refused:
        partition(10, 4, rule="fair")  # type: ignore[arg-type]
    assert not isinstance(refused.value, SizeError)


@pytest.mark.parametrize("total", [2.5, "8", True, None])
def test_a_total_is_an_int(total: object) -> None:
    with pytest.raises(TypeError, match=r"total: .*wanted an int"):
        partition(total, 2)
