"""A tiled linear layer is the dense one, whatever the tiles, and checks them before it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import xlayout as xl
from tests.frameworks import FRAMEWORKS, Framework, missing
from xlayout.errors import AxisError, SizeError

HERE = [framework for framework in FRAMEWORKS if not missing(framework)]


def numbers(*shape: int, first: int = -3) -> np.ndarray:
    """Small whole numbers: their sums are exact in floats, in any order."""
    return ((np.arange(np.prod(shape)) * 5 + first) % 7 - 3).reshape(shape).astype(np.float32)


@st.composite
def cuts(draw: st.DrawFn, n: int) -> tuple[int, ...]:
    """Sizes that add up to `n`; some may be 0."""
    edges = sorted(draw(st.lists(st.integers(0, n), max_size=3)))
    return tuple(b - a for a, b in pairwise([0, *edges, n]))


def blocks(w: np.ndarray, heights: Sequence[int], widths: Sequence[int]) -> list[list[np.ndarray]]:
    rows = [slice(*e) for e in pairwise(accumulate(heights, initial=0))]
    columns = [slice(*e) for e in pairwise(accumulate(widths, initial=0))]
    return [[w[r, c] for c in columns] for r in rows]


@settings(max_examples=20)  # JAX compiles for each shape
@given(data=st.data(), batch=st.sampled_from([(), (2,), (2, 3), (0, 2)]), bias=st.booleans())
@pytest.mark.parametrize("framework", HERE, ids=lambda f: f.name)
def test_it_is_the_dense_layer(
    framework: Framework, data: st.DataObject, batch: tuple[int, ...], bias: bool
) -> None:
    out, width = data.draw(st.integers(0, 7)), data.draw(st.integers(0, 9))
    x, w, b = numbers(*batch, width, first=1), numbers(out, width), numbers(out, first=2)
    heights, widths = data.draw(cuts(out)), data.draw(cuts(width))
    tiles = [[framework.array(t) for t in row] for row in blocks(w, heights, widths)]
    given = framework.array(x)
    if data.draw(st.booleans(), "parts"):
        at = pairwise(accumulate(widths, initial=0))
        given = [framework.array(x[..., slice(*e)]) for e in at]
    made = framework.call(xl.tiled_linear, given, tiles, framework.array(b) if bias else None)
    dense = x @ w.T + (b if bias else 0)
    assert framework.numpy(made).dtype == np.float32
    assert framework.numpy(made).shape == dense.shape
    assert np.array_equal(framework.numpy(made), dense)


def test_more_parts_than_features_leave_empty_tiles(backend: Framework) -> None:
    x, w, b = numbers(2, 3), numbers(2, 3), numbers(2)
    tiles = xl.to_tiles(backend.array(w), grid=(4, 5))
    assert tiles[3][4].shape == (0, 0)
    made = backend.call(xl.tiled_linear, backend.array(x), tiles, backend.array(b))
    assert backend.numpy(made).tolist() == (x @ w.T + b).tolist()


def test_the_result_is_fresh_and_the_arguments_stay(backend: Framework) -> None:
    given = [numbers(2, 4), numbers(3, 4), numbers(3)]
    x, w, b = map(backend.array, given)
    made = xl.tiled_linear(x, [[w]], b)
    assert all(made is not a for a in (x, w, b))
    assert all(np.array_equal(backend.numpy(a), v) for a, v in zip((x, w, b), given, strict=True))


Make = Callable[..., Any]
REFUSED: dict[str, tuple[Callable[[Make], Any], type[Exception], str]] = {
    "no rows": (lambda z: xl.tiled_linear(z(4), []), SizeError, r"tiles: rows of \[\] blocks"),
    "no columns": (lambda z: xl.tiled_linear(z(4), [[]]), SizeError, r"tiles: rows of \[0\] block"),
    "no grid": (
        lambda z: xl.tiled_linear(z(4), z(3, 4)), TypeError,
        "wanted a list of rows, each a list of blocks",
    ),
    "ragged rows": (
        lambda z: xl.tiled_linear(z(4), [[z(3, 4)], [z(3, 2), z(3, 2)]]), SizeError,
        r"tiles: rows of \[1, 2\] blocks; every row needs the same number",
    ),
    "blocks that do not fit": (
        lambda z: xl.tiled_linear(z(4), [[z(3, 2), z(2, 2)]]), SizeError,
        r"tiles\[0\]\[1\]: shape \(2, 2\); its row and column want \(3, 2\)",
    ),
    "vectors": (
        lambda z: xl.tiled_linear(z(4), [[z(4)]]), AxisError,
        r"tiles: shapes \(\(4,\),\); every block needs at least 2 axes",
    ),
    "three axes": (
        lambda z: xl.tiled_linear(z(4), [[z(1, 3, 2), z(1, 3, 2)]]), AxisError,
        r"tiles\[0\]\[0\]: shape \(1, 3, 2\); wanted 2 axes, \(out, in\)",
    ),
    "x too narrow": (
        lambda z: xl.tiled_linear(z(2, 3), [[z(3, 2), z(3, 2)]]), SizeError,
        r"x: shape \(2, 3\), whose last axis has 3; the tiles take 4",
    ),
    "a scalar": (
        lambda z: xl.tiled_linear(z(), [[z(3, 2)]]), AxisError, r"x: no axes; wanted \(..., 2\)"
    ),
    "too few parts": (
        lambda z: xl.tiled_linear([z(4)], [[z(3, 2), z(3, 2)]]), SizeError,
        "x: 1 parts; the tiles have 2 columns",
    ),
    "a part too wide": (
        lambda z: xl.tiled_linear([z(2), z(3)], [[z(3, 2), z(3, 2)]]), SizeError,
        r"x\[1\]: shape \(3,\), whose last axis has 3; its column of tiles takes 2",
    ),
    "parts of two batches": (
        lambda z: xl.tiled_linear([z(1, 2), z(5, 2)], [[z(3, 2), z(3, 2)]]), SizeError,
        r"x\[1\]: shape \(5, 2\); x\[0\] has \(1, 2\): all but the last axis must agree",
    ),
    "a short bias": (
        lambda z: xl.tiled_linear(z(2), [[z(3, 2)], [z(2, 2)]], z(3)), SizeError,
        r"bias: shape \(3,\); the tiles make \(5,\)",
    ),
    "a bias of two axes": (
        lambda z: xl.tiled_linear(z(2), [[z(3, 2)]], z(1, 3)), SizeError,
        r"bias: shape \(1, 3\); the tiles make \(3,\)",
    ),
    "x is no array": (
        lambda z: xl.tiled_linear("x", [[z(3, 2)]]), TypeError, r"got builtins\.str; convert it"
    ),
    "a part is no array": (
        lambda z: xl.tiled_linear([z(2), 1.0], [[z(3, 2), z(3, 2)]]), TypeError,
        r"got builtins\.float; convert it",
    ),
    "tiles are no arrays": (
        lambda z: xl.tiled_linear(z(2), [[1, 2]]), TypeError, r"got builtins\.int; convert it"
    ),
    "a bias is no array": (
        lambda z: xl.tiled_linear(z(2), [[z(3, 2)]], True), TypeError, r"got builtins\.bool"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refuses(backend: Framework, what: str) -> None:
    call, error, text = REFUSED[what]
    with pytest.raises(error, match=text):
        call(lambda *shape: backend.array(np.zeros(shape, np.float32)))


@pytest.mark.parametrize("framework", [f for f in HERE if not f.name.startswith("numpy")],
                         ids=lambda f: f.name)  # fmt: skip
def test_refuses_arrays_of_two_frameworks(framework: Framework) -> None:
    name = framework.name.partition(":")[0]
    x, w = np.zeros(2, np.float32), np.zeros((3, 2), np.float32)
    tile, b = framework.array(w), np.zeros(3, np.float32)
    for of, call in (
        ("x is numpy", lambda: xl.tiled_linear(x, [[tile]])),
        (r"x\[0\] is numpy", lambda: xl.tiled_linear([x], [[tile]])),
        ("bias is numpy", lambda: xl.tiled_linear(framework.array(x), [[tile]], b)),
    ):
        with pytest.raises(TypeError, match=f"{of}, the tiles are {name}; one framework per call"):
            call()
    with pytest.raises(TypeError, match=f"tiles: 0 is {name}, 1 is numpy; one framework per call"):
        xl.tiled_linear(framework.array(x), [[tile, w]])


def test_tiles_are_of_one_dtype() -> None:
    wide = np.zeros((3, 2))
    with pytest.raises(TypeError, match="tiles: 0 is float64 on cpu, 1 is float32 on cpu"):
        xl.tiled_linear(np.zeros(4), [[wide, wide.astype(np.float32)]])


class Counted(np.ndarray):
    """Records the sizes of the arrays that operators make from it."""

    made: list[int]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
        y = getattr(ufunc, method)(*plain, **options)
        Counted.made.append(y.size)
        return y.view(Counted)


def test_nothing_as_large_as_the_weight_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "made", [], raising=False)
    w = numbers(60, 80)
    tiles = [[t.view(Counted) for t in row] for row in blocks(w, (20, 20, 20), (40, 40))]
    made = xl.tiled_linear(numbers(2, 80), tiles)
    assert np.array_equal(made, numbers(2, 80) @ w.T)
    assert Counted.made == [40] * 9  # for each row two products and their sum
