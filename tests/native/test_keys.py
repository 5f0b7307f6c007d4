"""Compiled or in Python, what is kept for a call is found by such calls and by no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch

from xlayout_native import keys

Call = tuple[Any, Any, dict[str, Any]]


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
]
UNKEPT: list[Call] = [
    (X, ((1, 0.0),), {}),
    (X, (), {"sizes": (2, 1.0), "groups": None}),
    (X, (), {"sizes": [2, 1]}),
    (X, (), {"block": np.int64(1)}),
    (X, (), {"out": X}),
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


@pytest.mark.parametrize("form", BY_PLACE)
def test_by_place_the_shape_does_not_matter(form: str) -> None:
    runs: dict[Any, Any] = {}
    FORMS[form].keep(runs, jax.numpy.zeros(3), (), {}, print)
    assert FORMS[form].find(runs, jax.numpy.zeros((2, 2)), (), {}) is print
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    elsewhere = jax.NamedSharding(mesh, jax.P())
    assert FORMS[form].find(runs, jax.device_put(jax.numpy.zeros(3), elsewhere), (), {}) is None
    assert FORMS[form].find(runs, X, (), {}) is None


@pytest.mark.parametrize("form", BY_SHAPE)
def test_other_errors_of_an_array_are_not_hidden(form: str) -> None:
    class Broken:
        @property
        def shape(self) -> Any:
            raise ZeroDivisionError("no shape today")

    with pytest.raises(ZeroDivisionError, match="no shape today"):
        FORMS[form].find({}, Broken(), (), {})
