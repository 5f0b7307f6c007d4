"""What is no array: refused by the name of its argument, whatever stands beside it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import xlayout as xl

X = np.zeros(8, np.float32)
TWO = xl.Layout.concat([(8,), (8,)])

CALLS = {
    "x": [
        lambda bad: xl.interleave(bad),
        lambda bad: xl.interleave(bad, out=X),
        lambda bad: xl.split_qkv(bad, heads=2, kv_heads=1),
        lambda bad: xl.to_tiles(bad, grid=(1, 1)),
        lambda bad: xl.rearrange(bad, "(a b) -> b a", a=2),
        lambda bad: xl.tiled_linear(bad, [[X.reshape(2, 4)]]),
    ],
    "q": [lambda bad: xl.fuse_qkv(bad, X, X, heads=2, kv_heads=2)],
    "v": [lambda bad: xl.fuse_qkv(X, X, bad, heads=2, kv_heads=2)],
    "bias": [lambda bad: xl.tiled_linear(X[:4], [[X.reshape(2, 4)]], bad)],
    "xs[0]": [lambda bad: xl.stack([bad]), lambda bad: xl.stack([bad, X])],
    "xs[1]": [lambda bad: xl.stack([X, bad]), lambda bad: xl.stack([X, bad], axis=1)],
    "arrays[0]": [
        lambda bad: xl.Layout.identity(8)(bad),
        lambda bad: xl.Layout.identity(8)(bad, fill=1),
        lambda bad: xl.apply_many([xl.Layout.identity(8)], [bad]),
    ],
    "arrays[1]": [
        lambda bad: TWO(X, bad),
        lambda bad: xl.apply_many([xl.Layout.identity(8)] * 2, [X, bad]),
    ],
    "arrays[1][1]": [lambda bad: xl.apply_many([xl.Layout.identity(8), TWO], [X, (X, bad)])],
}


NUMPYS = [
    np.dtype("f4"),
    np.random.default_rng(),
    X.flat,
    np.add,
    np.poly1d([1, 2]),
    np.finfo("f4"),
]


@pytest.mark.parametrize("bad", NUMPYS, ids=lambda bad: type(bad).__name__)
def test_what_is_numpys_but_no_array_is_refused_like_anything(bad: Any) -> None:
    wanted = "x: expected a torch.Tensor, jax.Array or numpy.ndarray, got numpy."
    with pytest.raises(TypeError, match=f"^{re.escape(wanted)}.*{type(bad).__name__}; convert it"):
        xl.interleave(bad)


@pytest.mark.parametrize("bad", [3, "x"])
@pytest.mark.parametrize(
    ("name", "call"), [(n, call) for n, calls in CALLS.items() for call in calls]
)
def test_it_is_refused_by_its_name(name: str, call: Any, bad: Any) -> None:
    wanted = f"{name}: expected a torch.Tensor, jax.Array or numpy.ndarray, got builtins."
    with pytest.raises(TypeError, match=f"^{re.escape(wanted)}{type(bad).__name__}; convert it"):
        call(bad)
