"""Classes that a program makes as it goes live as long as caches of types have room for them."""

from __future__ import annotations

import gc
import weakref
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import xlayout as xl
from xlayout.registry import MOST_TYPES, backend_of

X, T = np.zeros(2), torch.zeros(2)


def array() -> Any:
    return type("Array", (np.ndarray,), {})


def tensor() -> Any:
    return type("Tensor", (torch.Tensor,), {})


def pair() -> Any:
    return namedtuple("Pair", "a b")


def state() -> Any:
    return type("State", (dict,), {})


USES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "array": (array, lambda cls: backend_of(X.view(cls))),
    "tensor": (tensor, lambda cls: backend_of(T.as_subclass(cls))),
    "exchange": (array, lambda cls: xl.to_torch(X.view(cls))),
    "named tuple": (pair, lambda cls: xl.to_torch(cls(X, X))),
    "dict": (state, lambda cls: xl.to_torch(cls(a=X))),
}


@pytest.mark.parametrize(("make", "use"), USES.values(), ids=USES)
def test_a_class_that_is_no_longer_used_dies(
    make: Callable[[], Any], use: Callable[[Any], Any]
) -> None:
    first = make()
    seen = weakref.ref(first)
    use(first)
    del first
    for _ in range(MOST_TYPES):
        use(make())
    gc.collect()
    assert seen() is None
