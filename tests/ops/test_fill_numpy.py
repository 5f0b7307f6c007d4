"""What numpy alone holds, text, records, dates and long doubles, is filled alike on every path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xlayout as xl
from xlayout.errors import ShapeError


def test_zero_is_written_alike_in_strings_of_any_kind() -> None:
    for dtype in ("U3", np.dtypes.StringDType()):
        assert xl.pad(np.array(["a"], dtype), to=2).tolist() == ["a", "0"]


@pytest.mark.parametrize("dtype", ["U1", "S3"])
@pytest.mark.parametrize("count", [3, 20_000])
def test_zero_is_written_alike_in_strings_of_any_number(dtype: str, count: int) -> None:
    x, y = np.full(count, "a", dtype), np.full(count + 2, "z", dtype)
    wanted = [*x.tolist(), *np.full(2, "0", dtype).tolist()]
    layout = xl.pad.layout((count,), to=count + 2)
    for _ in range(3):  # what repeats may go another way
        assert xl.pad(x, to=count + 2).tolist() == wanted
        assert layout(x, fill=0).tolist() == wanted
        for out in (y, y[::-1]):
            out[:] = "z"
            xl.pad(x, to=count + 2, out=out)
            assert out.tolist() == wanted


RECORD = np.dtype([("a", np.int32), ("b", np.float32)])


@pytest.mark.parametrize("count", [3, 5000, 100_000])  # by numpy's own ops, views, the kernel
@pytest.mark.parametrize("dtype", ["V6", RECORD, "M8[s]", "m8[s]", "m8[10s]"], ids=str)
def test_records_and_dates_are_filled_alike_whatever_their_size(dtype: Any, count: int) -> None:
    x, zero = np.zeros(count, dtype), np.zeros(1, dtype)
    x.view(np.uint8)[:] = 1
    ways: list[tuple[str, Callable[[Any], Any]]] = [
        ("value", lambda n: xl.pad(x, to=count + 1, value=n)),
        ("value", lambda n: xl.pad(x, to=count + 1, value=n, out=np.ones(count + 1, dtype))),
        ("value", lambda n: xl.pad(x.reshape(1, -1), to=2, value=n)),
        ("fill", lambda n: xl.pad.layout((count,), to=count + 1)(x, fill=n)),
    ]
    for argument, way in ways:
        made = way(0).reshape(-1)
        assert made[:count].tobytes() == x.tobytes()
        assert made[count:].tobytes() == zero.tobytes() * (made.size - count)
        refusal = rf"^{argument}: 2\.5 in an array of .*; wanted (0, for|an int)"
        with pytest.raises(ShapeError, match=refusal):
            way(2.5)
        with pytest.raises(ShapeError, match=refusal.replace(r"2\.5", str(2**63))):
            way(2**63)


@pytest.mark.parametrize("dtype", ["U3", "S3"])
def test_a_number_is_written_whole_in_strings_or_refused(dtype: str) -> None:
    x = np.array(["ab", "c"], dtype)
    assert xl.pad(x, to=3, value=123).tolist() == np.array(["ab", "c", "123"], dtype).tolist()
    for value in (1000, -123, 1.25):
        refusal = rf"^value: {value} in an array of .*; wanted what is written in 3 characters"
        with pytest.raises(ShapeError, match=refusal):
            xl.pad(x, to=3, value=value)


def test_records_by_another_name_are_filled_alike() -> None:
    x = np.rec.array([(1, 2.0)], dtype=[("a", np.int32), ("b", np.float32)])
    assert xl.pad(x, to=2)[1].tolist() == (0, 0.0)
    refusal = r"^value: -1 in an array of record64; wanted 0, for bytes that are all zero$"
    with pytest.raises(ShapeError, match=refusal):
        xl.pad(x, to=2, value=-1)


@pytest.mark.parametrize("name", ["Particle", "Key<", "bool", "int", "str", "bfloat16"])
def test_records_of_a_class_of_their_own_are_filled_alike_whatever_its_name(name: str) -> None:
    own = np.dtype((type(name, (np.void,), {}), RECORD))
    assert own == RECORD  # so that nothing which was allowed for one of them is for the other
    layout = xl.pad.layout((2,), to=3)
    for dtype in (own, RECORD):
        x = np.ones(2, dtype)
        ways: list[tuple[str, Callable[[Any], Any]]] = [
            ("value", lambda n, x=x: xl.pad(x, to=3, value=n)),
            ("value", lambda n, x=x: xl.pad(x, to=3, value=n, out=np.ones(3, x.dtype))),
            ("fill", lambda n, x=x: layout(x, fill=n)),
        ]
        for argument, way in ways:
            assert way(0).tolist() == [(1, 1.0), (1, 1.0), (0, 0.0)]
            for value in (7, float("nan")):
                with pytest.raises(
                    ShapeError, match=rf"^{argument}: {value} in an array of {dtype.name}; wanted 0"
                ):
                    way(value)


@pytest.mark.parametrize("unit", ["s", "ns", "D", "Y"])
@pytest.mark.parametrize("kind", [np.datetime64, np.timedelta64])
@pytest.mark.parametrize("dtype", ["M8[s]", "m8[Y]", "f8", "i8"])
def test_a_date_is_no_number_whatever_its_unit(dtype: str, kind: Any, unit: str) -> None:
    """Of some units `item` gives a date, of others an int."""
    x, date = np.zeros(2, dtype), kind(20, unit)
    fill = xl.pad.layout((2,), to=3)
    ways: list[tuple[str, Callable[[], Any]]] = [
        ("value", lambda: xl.pad(x, to=3, value=date)),
        ("value", lambda: xl.pad(x, to=3, value=date, out=np.zeros(3, dtype))),
        ("fill", lambda: fill(x, fill=date)),
    ]
    for argument, way in ways:
        with pytest.raises(
            TypeError, match=rf"^{argument}: np\..*\(.*\) is a numpy.{kind.__name__}"
        ):
            way()
    with pytest.raises(TypeError, match=r"^block: np\..* is a numpy\..*; wanted an int"):
        xl.interleave(x, block=date)


@pytest.mark.parametrize("dtype", ["M8[s]", "m8[10s]"])
@pytest.mark.parametrize("count", [3, 20_000])
def test_a_float_makes_no_date_however_many_there_are(dtype: str, count: int) -> None:
    x = np.zeros(count, dtype)
    for options in ({}, {"out": np.zeros(count + 1, dtype)}):
        assert xl.pad(x, to=count + 1, value=3, **options)[-1] == np.array(3, dtype)
        with pytest.raises(ShapeError, match=r"^value: 3\.0 in an array of .*; wanted an integer"):
            xl.pad(x, to=count + 1, value=3.0, **options)


@pytest.mark.parametrize("count", [3, 20_000])
def test_dates_without_a_unit_hold_no_number(count: int) -> None:
    x = np.full(count, "NaT", "M8")
    layout = xl.pad.layout((count,), to=count + 1)
    ways: list[tuple[str, Callable[[Any], Any]]] = [
        ("value", lambda n: xl.pad(x, to=count + 1, value=n)),
        ("value", lambda n: xl.pad(x, to=count + 1, value=n, out=np.full(count + 1, "NaT", "M8"))),
        ("fill", lambda n: layout(x, fill=n)),
        ("fill", lambda n: layout(x, fill=n, out=np.full(count + 1, "NaT", "M8"))),
    ]
    for argument, way in ways * 2:  # what repeats may go another way
        for value in (0, 7):
            with pytest.raises(
                ShapeError, match=rf"^{argument}: {value} in an array of datetime64; wanted a unit"
            ):
                way(value)
    assert np.isnat(xl.interleave(x[: count // 2 * 2])).all()
    assert xl.pad(x.astype("M8[s]"), to=count + 1, value=7)[-1] == np.datetime64(7, "s")
    assert xl.pad(np.zeros(count, "m8"), to=count + 1, value=7)[-1] == np.timedelta64(7)


def test_a_long_double_fills_if_a_float_holds_it() -> None:
    x, layout = np.ones(2, np.longdouble), xl.pad.layout((2,), to=3)
    for value in (np.longdouble(2.5), np.longdouble("inf"), np.longdouble("nan")):
        for made in (xl.pad(x, to=3, value=value), layout(x, fill=value)):
            assert made[:2].tolist() == [1, 1]
            assert np.array_equal(made[2:], [value], equal_nan=True)
    filled = xl.pad(x.astype(np.clongdouble), to=3, value=np.clongdouble(1 - 2j))
    assert filled[2] == 1 - 2j
    for value in (np.longdouble(2) ** -16000, 1 + np.longdouble(2) ** -60):
        with pytest.raises(TypeError, match=r"^value: np.longdouble\(.*; wanted a number"):
            xl.pad(x, to=3, value=value)
    with pytest.raises(TypeError, match=r"^block: 2\.0 is a float; wanted an int"):
        xl.interleave(x, block=np.longdouble(2))
