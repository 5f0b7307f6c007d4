"""A layout survives a process boundary: equal, equally hashed, and checked on the way in."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given

import xlayout as xl
from tests.strategies import layouts
from xlayout import Layout


@given(layouts())
def test_a_pickled_layout_is_the_same_layout(layout: Layout) -> None:
    for other in (pickle.loads(pickle.dumps(layout)), copy.copy(layout), copy.deepcopy(layout)):
        assert (other, hash(other), other.pieces) == (layout, hash(layout), layout.pieces)


def test_a_forged_pickle_is_refused() -> None:
    layout = xl.interleave.layout((6,))
    cls, (ins, _, pieces) = layout.__reduce__()
    with pytest.raises(xl.SizeError, match="outside the index spaces"):
        cls(ins, ((5,),), pieces)
