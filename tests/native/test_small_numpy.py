"""A small layout is one call of the kernel on row-major arrays, and numpy's own ops on others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import xlayout as xl
import xlayout_native
from tests.table import by_table
from xlayout.lower.moves import moves_of
from xlayout_numpy.small import quick

pytestmark = pytest.mark.skipif(not xlayout_native.available, reason="there is no kernel")

SHAPE = (16, 12)
LAYOUTS = {
    "rows": xl.interleave.layout(SHAPE),
    "three pieces": xl.regroup.layout(SHAPE, sizes=(8, 4, 4), groups=2),
    "three results": xl.split_qkv.layout(SHAPE, heads=4, kv_heads=2),
    "three arrays": xl.fuse_qkv.layout((8, 12), (4, 12), (4, 12), heads=2, kv_heads=1),
}
VIEWS = {
    "matrix_transpose": xl.matrix_transpose.layout(SHAPE),
    "permute_dims": xl.permute_dims.layout((4, 4, 12), (2, 0, 1)),
    "trim": xl.trim.layout(SHAPE, to=9),
    "unstack": xl.unstack.layout(SHAPE),
}
DTYPES: list[Any] = ["i1", "f2", "f4", ">f4", "f8", "c16", "M8[s]", "S4", ml_dtypes.bfloat16]
OTHERS: dict[str, Any] = {
    "of objects": lambda x: x.astype(object),
    "of no power of two": lambda x: x.astype("S3"),
    "column-major": lambda x: np.asfortranarray(x),
    "every other row": lambda x: np.repeat(x, 2, 0)[::2],
    "masked": lambda x: np.ma.masked_equal(x, 3),
}


def by_numpy(*_arrays: Any) -> str:
    return "numpy"


def made(layout: xl.Layout, arrays: list[Any]) -> Any:
    return quick(by_numpy, moves_of(layout), len(arrays), layout.out_shapes)(*arrays)


def inputs(layout: xl.Layout, dtype: Any) -> list[Any]:
    return [
        (np.arange(np.prod(shape)) + 50 * k).astype("i1").reshape(shape).astype(dtype)
        for k, shape in enumerate(layout.in_shapes)
    ]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_element_is_where_the_table_says(name: str, dtype: Any) -> None:
    layout = LAYOUTS[name]
    arrays = inputs(layout, dtype)
    found = made(layout, arrays)
    outputs = found if isinstance(found, tuple) else (found,)
    for y, wanted in zip(outputs, by_table(layout, arrays), strict=True):
        assert y.dtype == arrays[0].dtype
        assert y.shape == wanted.shape
        assert y.tobytes() == wanted.astype(y.dtype).tobytes()


HOLES = [
    xl.pad.layout(SHAPE, to=20),
    xl.Layout([SHAPE], [(200,)], [xl.Piece(0, 3, ((12, 1, 16), (16, 12, 1)))]),
]


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != "S4"], ids=str)
@pytest.mark.parametrize("layout", HOLES, ids=str)
def test_what_is_not_written_is_zero(layout: xl.Layout, dtype: Any) -> None:
    arrays = inputs(layout, dtype)
    np.ones(200, dtype)  # the memory of results, perhaps
    assert np.array_equal(made(layout, arrays), by_table(layout, arrays)[0])


@pytest.mark.parametrize("dtype", ["S4", "U1"])
def test_what_is_not_written_of_text_is_numpys(dtype: str) -> None:
    assert made(HOLES[0], inputs(HOLES[0], dtype)) == "numpy"
    assert xl.pad(np.array(["a"], dtype), to=2).tolist() == np.array(["a", 0], dtype).tolist()


def test_several_results_or_arrays_with_holes_go_to_numpy() -> None:
    x = np.zeros(12, "f4")
    move = 0, 0, (0, 0, ((12, 1, 1),))
    assert quick(by_numpy, (move,), 1, [(12,), (12,)])(x) == "numpy"
    assert quick(by_numpy, (move,), 2, [(13,)])(x, x) == "numpy"


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_may_not_be_written_may_be_read(name: str) -> None:
    arrays = inputs(LAYOUTS[name], "f4")
    for x in arrays:
        x.flags.writeable = False
    assert not isinstance(made(LAYOUTS[name], arrays), str)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_no_row_of_plain_bytes_goes_to_numpy(name: str, other: str) -> None:
    arrays = inputs(LAYOUTS[name], "f4")
    for k in range(len(arrays)):
        given = [OTHERS[other](x) if j == k else x for j, x in enumerate(arrays)]
        if len({x.dtype for x in given}) == 1:
            assert made(LAYOUTS[name], given) == "numpy"


@pytest.mark.parametrize("name", VIEWS)
def test_copies_of_views_go_to_numpy(name: str) -> None:
    assert made(VIEWS[name], inputs(VIEWS[name], "f4")) == "numpy"


WHOLE = np.dtype([("a", "i4"), ("in", [("x", "i2"), ("y", "i2")]), ("b", "i4")])
HALF = np.dtype({"names": ["x"], "formats": ["i2"], "itemsize": 4})
PARTS = {
    "no first": WHOLE[["in", "b"]],
    "no middle": WHOLE[["a", "b"]],
    "no last": WHOLE[["a", "in"]],
    "half a middle": np.dtype([("a", "i4"), ("in", HALF), ("b", "i4")]),
    "half of several": np.dtype([("a", "i4"), ("in", HALF, (2,))]),
}


@pytest.mark.parametrize("count", [8, 1 << 16])  # one call of the kernel, and its threads
@pytest.mark.parametrize("part", PARTS)
def test_fields_that_out_does_not_show_stay(part: str, count: int) -> None:
    memory = np.full(12 * count, 7, np.uint8)
    out, wanted = memory.view(PARTS[part]), memory.copy()
    wanted.view(PARTS[part])[:] = np.zeros(count, PARTS[part])
    for _ in range(3):  # the first time, and from the cache
        xl.interleave(np.zeros(count, PARTS[part]), out=out)
        assert np.array_equal(memory, wanted)
    assert 0 < np.count_nonzero(memory) < memory.size


def test_plans_are_prepared_for_dtypes_that_come(prepared_widths: list[int]) -> None:
    layout = LAYOUTS["three pieces"]
    run = quick(by_numpy, moves_of(layout), 1, layout.out_shapes)
    assert prepared_widths == []
    for dtype in ("f4", "f4", "i4", "S3", "c16", "S3"):
        run(*inputs(layout, dtype))
    assert prepared_widths == [4, 16]
