"""The compiled keys are those of Python, and tell apart what one recipe does not serve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from xlayout_native import keys

ARRAYS: dict[str, tuple[Any, ...]] = {
    "one": (np.zeros((2, 3)),),
    "two shapes": (np.zeros((2, 3)), np.ones(4)),
    "torch": (torch.zeros(2), torch.zeros(2, 2), torch.zeros(())),
    "two dtypes": (np.zeros(2), np.zeros(2, np.float32)),
    "equal dtypes": (np.zeros(2), np.zeros(2, np.dtype("<f8"))),
    "byte orders": (np.zeros(2), np.zeros(2, ">f8")),
    "two types": (torch.zeros(2), torch.nn.Parameter(torch.zeros(2))),
    "two frameworks": (np.zeros(2), torch.zeros(2)),
    "no array": (np.zeros(2), [0.0, 0.0]),
}
OPTIONS: list[dict[str, Any]] = [{}, {"axis": 1}, {"sizes": (2, 1), "groups": None}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("case", ARRAYS)
def test_both_forms_agree(case: str, options: dict[str, Any]) -> None:
    arrays = ARRAYS[case]
    assert keys.key_of_many(arrays, options) == keys._key_of_many(arrays, options)
    args = ((1, 0),)
    one = keys.key_of_one(arrays[0], args, options)
    assert one == keys._key_of_one(arrays[0], args, options)
    assert hash(one) == hash(keys._key_of_one(arrays[0], args, options))


def test_what_differs_has_another_key() -> None:
    x = np.zeros((2, 3))
    found = [
        keys.key_of_one(x, (), {}),
        keys.key_of_one(x, (1,), {}),
        keys.key_of_one(x, (), {"axis": 1}),
        keys.key_of_one(x, (), {"block": 1}),
        keys.key_of_one(x.T, (), {}),
        keys.key_of_one(torch.zeros(2, 3), (), {}),
        keys.key_of_many((x,), {}),
        keys.key_of_many((x, x), {}),
    ]
    assert len(set(found)) == len(found)


def test_what_cannot_be_a_key_says_so() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(keys.key_of_one(np.zeros(2), (), {"sizes": [1, 1]}))
    with pytest.raises(AttributeError, match="shape"):
        keys.key_of_one(3, (), {})
