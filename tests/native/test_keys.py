"""What is kept for a call, compiled or in Python, is found by equal calls and by no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch

from xlayout_native import keys

Call = tuple[Any, Any, dict[str, Any]]


class Placed(np.ndarray):
    """An array of another type that has a sharding attribute."""

    sharding = None


class Broken:
    """An array whose shape raises an error."""

    whole = False

    @property
    def shape(self) -> Any:
        raise ZeroDivisionError("no shape today")

    @property
    def sharding(self) -> Any:
        if not self.whole:
            raise ZeroDivisionError("no place today")
        return X


def elsewhere(x: Any) -> Any:
    """The same array under a sharding of another type."""
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    return jax.device_put(x, jax.NamedSharding(mesh, jax.P()))


class Form(NamedTuple):
    find: Callable[..., Any]
    keep: Callable[..., Any]


FORMS = {
    "compiled, by shape": Form(keys.find_by_shape, keys.keep_by_shape),
    "in Python, by shape": Form(keys._find_by_shape, keys._keep_by_shape),
    "compiled, by place": Form(keys.find_by_place, keys.keep_by_place),
    "in Python, by place": Form(keys._find_by_place, keys._keep_by_place),
}
BY_SHAPE = [name for name in FORMS if name.endswith("shape")]
BY_PLACE = [name for name in FORMS if name.endswith("place")]

X = np.zeros((2, 3))
KEPT: list[Call] = [
    (X, (), {}),
    (X, ((1, 0),), {}),
    (X, (), {"axis": 1}),
    (X, (), {"axis": -1}),
    (X, (), {"axis": 1.0}),
    (X, (), {"axis": True}),
    (X, (), {"block": 1}),
    (X, (), {"axis": "1"}),
    (X, (), {"axis": None}),
    (X, (), {"value": 0.0}),
    (X, (), {"value": -0.0}),
    (X, (), {"value": float("nan")}),
    (X, (), {"sizes": (2, 1), "groups": None}),
    (X.T, (), {}),
    (torch.zeros(2, 3), (), {}),
    (torch.nn.Parameter(torch.zeros(2, 3)), (), {}),
    ((X,), None, {}),
    ((X, X), None, {}),
    ((X, X), None, {"axis": 1}),
    ((X, X.T), None, {}),
    (X, (), {"out": X}),
    (X, (), {"out": None}),
    (X, (), {"copy": True, "out": X}),
]
UNKEPT: list[Call] = [
    (X, ((1, 0.0),), {}),
    (X, (), {"sizes": (2, 1.0), "groups": None}),
    (X, (), {"sizes": [2, 1]}),
    (X, (), {"block": np.int64(1)}),
    ([0.0], (), {}),
    ((np.zeros(2), np.zeros(2, np.float32)), None, {}),
    ((np.zeros(2), np.zeros(2, ">f8")), None, {}),
    ((torch.zeros(2), torch.nn.Parameter(torch.zeros(2))), None, {}),
    ((np.zeros(2), torch.zeros(2)), None, {}),
    ((np.zeros(2), [0.0, 0.0]), None, {}),
    ((), None, {}),
]
"""What a key does not tell from others: lists, arrays, integers of numpy, arrays of two kinds."""
CALLS = KEPT + UNKEPT


ZEROS = jax.numpy.zeros(3)
LONG = 10**30  # so large that no two are one object
PLACED: list[Call] = [
    (ZEROS, (), {}),
    (ZEROS, (1,), {}),
    (ZEROS, (1, 2), {}),
    (ZEROS, ((1, 0),), {}),
    (ZEROS, (), {"axis": 1}),
    (ZEROS, (), {"axis": 1.0}),
    (ZEROS, (), {"axis": True}),
    (ZEROS, (), {"block": 1}),
    (ZEROS, (), {"block": 1, "axis": 1}),
    (ZEROS, (), {"block": LONG}),
    (X[0].view(Placed), (), {}),
    ((ZEROS,), None, {}),
    ((ZEROS, ZEROS), None, {}),
    ((ZEROS, ZEROS), None, {"axis": 1}),
]


@pytest.mark.parametrize("form", BY_SHAPE)
@pytest.mark.parametrize("number", range(len(CALLS)))
def test_a_call_is_found_by_itself_alone(form: str, number: int) -> None:
    runs: dict[Any, Any] = {}
    FORMS[form].keep(runs, *CALLS[number], print)
    found = [k for k, call in enumerate(CALLS) if FORMS[form].find(runs, *call) is print]
    assert found == ([number] if number < len(KEPT) else [])


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_both_forms_make_the_same_keys(number: int) -> None:
    compiled: dict[Any, Any] = {}
    python: dict[Any, Any] = {}
    FORMS["compiled, by shape"].keep(compiled, *CALLS[number], print)
    FORMS["in Python, by shape"].keep(python, *CALLS[number], print)
    assert compiled == python


@pytest.mark.parametrize("form", BY_SHAPE)
def test_values_and_equal_dtypes_do_not_matter(form: str) -> None:
    runs: dict[Any, Any] = {}
    FORMS[form].keep(runs, (X, X), None, {"to": (4, 3)}, print)
    likes = (np.ones((2, 3)), np.ones((2, 3), np.dtype("<f8")))
    assert FORMS[form].find(runs, likes, None, {"to": (4, 3)}) is print


@pytest.mark.parametrize("form", BY_SHAPE)
def test_of_what_is_to_be_written_a_key_says_that_there_is_something(form: str) -> None:
    runs: dict[Any, Any] = {}
    FORMS[form].keep(runs, X, (), {"out": X}, print)
    for out in (np.zeros(3), torch.zeros(3), [X, X], 1, True, "out"):
        assert FORMS[form].find(runs, X, (), {"out": out}) is print
    assert FORMS[form].find(runs, X, (), {"out": None}) is None
    assert FORMS[form].find(runs, X, (), {"axis": True}) is None
    (key,) = runs
    assert all(part is not X for part in key)


@pytest.mark.parametrize("form", BY_PLACE)
def test_by_place_the_shape_does_not_matter(form: str) -> None:
    runs: dict[Any, Any] = {}
    FORMS[form].keep(runs, ZEROS, (), {}, print, False)
    assert FORMS[form].find(runs, jax.numpy.zeros((2, 2)), (), {}) is print
    assert FORMS[form].find(runs, elsewhere(ZEROS), (), {}) is None
    assert FORMS[form].find(runs, X, (), {}) is None
    FORMS[form].keep(runs, (ZEROS, ZEROS), None, {}, print, False)
    assert FORMS[form].find(runs, (ZEROS, jax.numpy.zeros(2, int)), None, {}) is print
    assert FORMS[form].find(runs, (ZEROS, elsewhere(ZEROS)), None, {}) is None
    assert FORMS[form].find(runs, (ZEROS, X[0].view(Placed)), None, {}) is None


@pytest.mark.parametrize("form", BY_PLACE)
@pytest.mark.parametrize("anywhere", [False, True])
@pytest.mark.parametrize("number", range(len(PLACED)))
def test_by_place_a_call_is_found_by_itself_alone(form: str, anywhere: bool, number: int) -> None:
    runs: dict[Any, Any] = {}
    for kept, run in ((number, print), (-1, len), (number, print)):  # the latest of several wins
        FORMS[form].keep(runs, *PLACED[kept], run, anywhere)
    found = [k for k, call in enumerate(PLACED) if FORMS[form].find(runs, *call) is print]
    assert found == [number]
    assert FORMS[form].find(runs, *PLACED[-1]) is (len if number < len(PLACED) - 1 else print)


def test_no_place_is_asked_of_the_latest_where_all_are_one() -> None:
    asked = []

    class Counted:
        @property
        def sharding(self) -> Any:
            asked.append(self)
            return X

    runs: dict[Any, Any] = {}
    for anywhere, times in ((False, 2), (True, 1)):
        asked.clear()
        keys.keep_by_place(runs, Counted(), (), {"axis": 1}, print, anywhere)
        assert keys.find_by_place(runs, Counted(), (), {"axis": 1}) is print
        assert len(asked) == (times if keys.native.available else 2)


@pytest.mark.parametrize("form", BY_PLACE)
def test_what_is_found_may_be_let_go_meanwhile(form: str) -> None:
    runs: dict[Any, Any] = {}

    class Forgetting:
        """Its sharding is computed in Python, so that another thread may intervene."""

        @property
        def sharding(self) -> Any:
            runs.clear()
            taken.extend((k, k, k) for k in range(100))  # reuses memory that was freed
            return X

    taken: list[Any] = []
    x, options = Forgetting(), {"axis": int("1")}
    FORMS[form].keep(runs, x, (), options, lambda: 1, False)
    for _ in range(3):
        found = FORMS[form].find(runs, x, (), options)
        assert found is None or found() == 1
        FORMS[form].keep(runs, x, (), options, lambda: 1, False)


@pytest.mark.parametrize("form", BY_SHAPE)
def test_other_errors_of_an_array_are_not_hidden(form: str) -> None:
    with pytest.raises(ZeroDivisionError, match="no shape today"):
        FORMS[form].find({}, Broken(), (), {})


@pytest.mark.parametrize("form", BY_SHAPE)
def test_options_that_nest_too_deep_make_no_key(form: str) -> None:
    runs: dict[Any, Any] = {}
    deep: tuple[Any, ...] = ()
    for depth in range(100_000):
        if depth in (14, 20, 99_999):
            FORMS[form].keep(runs, X, (), {"axes": deep}, print)
            assert (FORMS[form].find(runs, X, (), {"axes": deep}) is None) == (depth > 16)
        deep = (deep,)


@pytest.mark.parametrize("form", BY_PLACE)
def test_nor_where_the_latest_is_asked_for_its_place(form: str) -> None:
    runs: dict[Any, Any] = {}
    x = Broken()
    x.whole = True
    FORMS[form].keep(runs, x, (), {}, print, False)
    assert FORMS[form].find(runs, x, (), {}) is print
    with pytest.raises(ZeroDivisionError, match="no place today"):
        FORMS[form].find(runs, Broken(), (), {})
