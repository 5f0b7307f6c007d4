"""A list that holds itself is refused by the name of its argument, wherever an op takes a list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xlayout as xl

ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
HOLDER = np.empty(1, object)
HOLDER[0] = HOLDER
X = np.zeros((2, 2))
SAME = xl.Layout.identity((2, 2))

OPTIONS: list[tuple[str, Callable[[Any], Any]]] = [
    ("axes", lambda bad: xl.permute_dims(X, bad)),
    ("axes", lambda bad: xl.permute_dims(X, axes=[bad, 0])),
    ("axes", lambda bad: xl.permute_dims(X, (0, bad))),
    ("axes", lambda bad: xl.permute_dims.layout((2, 2), bad)),
    ("sizes", lambda bad: xl.regroup(X, sizes=bad, groups=1)),
    ("to", lambda bad: xl.pad(X, to=bad)),
    ("a", lambda bad: xl.rearrange(X, "(a b) c -> b a c", a=bad)),
]
ARRAYS: list[tuple[str, Callable[[], Any]]] = [
    ("arrays", lambda: SAME(ENDLESS)),
    ("arrays", lambda: SAME((ENDLESS,))),
    ("arrays", lambda: SAME(ENDLESS, fill=1)),
    ("arrays", lambda: SAME(ENDLESS, out=X)),
    ("arrays", lambda: SAME(ENDLESS, copy=None)),
    ("x", lambda: xl.apply(SAME, ENDLESS)),
    ("x", lambda: xl.interleave(ENDLESS)),
]


@pytest.mark.parametrize("bad", [ENDLESS, HOLDER], ids=["list", "array"])
@pytest.mark.parametrize(("argument", "call"), OPTIONS)
def test_as_an_option(argument: str, call: Callable[[Any], Any], bad: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{argument}: .*; wanted (an int|a sequence of ints)"):
        call(bad)


@pytest.mark.parametrize(("argument", "call"), ARRAYS)
def test_for_an_array(argument: str, call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError, match=rf"^{argument}(\[0\])?: expected a torch.*builtins.list;"):
        call()


def test_arrays_are_given_in_one_list_and_no_deeper() -> None:
    assert SAME([X]).tolist() == SAME((X,)).tolist() == X.tolist()
    with pytest.raises(TypeError, match=r"^arrays\[0\]: expected a torch.*builtins.list;"):
        SAME([[X]])
