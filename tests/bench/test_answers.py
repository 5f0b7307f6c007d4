"""The answer that a benchmark checks its calls by is the index table's; any other is refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from tests.strategies import layouts
from tests.table import by_table
from xlayout import Layout
from xlayout.bench.answers import UNSIGNED, answer, differs, elements
from xlayout.bench.cases import CASES, make_case

FLOATS = {"bfloat16": ml_dtypes.bfloat16, "float32": np.float32}


def looked_up(layout: Layout, content: np.ndarray) -> np.ndarray:
    """All outputs by the brute-force table, one after another; holes are zero."""
    return np.concatenate([y.ravel() for y in by_table(layout, [content])])


@given(layouts())
def test_the_answer_is_the_index_table_s(layout: Layout) -> None:
    content = elements(max(1, layout.in_size), "float32")
    assert np.array_equal(answer(layout, content), looked_up(layout, content))


@pytest.mark.parametrize("op", CASES)
def test_the_answer_of_a_case_is_the_index_table_s(op: str) -> None:
    case = make_case(op, 1 << 20)
    content = elements(case.layout.in_size, "uint8")
    assert np.array_equal(answer(case.layout, content), looked_up(case.layout, content))


@pytest.mark.parametrize("op", CASES)
def test_a_case_has_about_the_elements_asked_for(op: str) -> None:
    assert 0.9 < make_case(op, 1 << 22).layout.in_size / (1 << 22) <= 1


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_elements_differ(dtype: str) -> None:
    made = elements(1 << 16, dtype)
    assert made.dtype == UNSIGNED[dtype]
    assert len(np.unique(made)) > 0.2 * min(len(made), 2 ** (8 * made.itemsize))


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_survive_a_conversion(dtype: str) -> None:
    values = elements(1 << 16, dtype).view(FLOATS[dtype]).astype(np.float32)
    assert np.isfinite(values).all()
    assert (np.abs(values) >= np.finfo(np.float32).tiny).all()


WANTED = np.arange(200_000, dtype=np.uint32).view(np.uint8)


def test_the_right_bytes_pass_however_they_are_cut() -> None:
    assert differs("it", [WANTED], WANTED) is None
    assert differs("it", [WANTED[:7], WANTED[7:70_000], WANTED[70_000:]], WANTED) is None


@pytest.mark.parametrize("at", [0, 65_535, 65_536, 799_999])
def test_one_wrong_byte_is_found(at: int) -> None:
    made = WANTED.copy()
    made[at] ^= 1
    parts = [made[:300_000], made[300_000:]]
    assert differs("it", parts, WANTED) == f"it: byte {at} of 800000 is wrong"


def test_missing_and_surplus_bytes_are_found() -> None:
    assert differs("it", [WANTED[:-1]], WANTED) == "it: 799999 bytes, the answer has 800000"
    assert differs("it", [WANTED, WANTED[:1]], WANTED) == (
        "it: more than the 800000 bytes of the answer"
    )
