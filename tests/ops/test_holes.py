"""The holes of an output are found as boxes, and nothing else is filled, or written twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import xlayout as xl
import xlayout_native
import xlayout_numpy
import xlayout_torch
from tests.strategies import layouts, several
from tests.table import pairs
from xlayout.algebra import Layout
from xlayout.algebra.shapes import bounds
from xlayout.algebra.strided import row_major
from xlayout.errors import ShapeError
from xlayout.lower import recipe, run
from xlayout.lower.holes import copied_holes, fill_holes, holes_of


@given(st.one_of(layouts(), several()))
def test_boxes_are_the_holes_or_all_there_is(layout: Layout) -> None:
    holes = layout.index() < 0
    outputs = zip(bounds(layout.out_shapes), layout.out_shapes, holes_of(layout), strict=True)
    for (start, stop), shape, boxes in outputs:
        filled = np.zeros(shape, int)
        for box in boxes:
            filled[tuple(slice(*side) for side in box)] += 1
        assert np.array_equal(filled.reshape(-1), holes[start:stop]) or (filled == 1).all()


def addresses(moves: Any, target: int, side: int) -> list[int]:
    """What moves to an output read (side 0) or write (side 1), element by element."""
    copies = [copy for _, k, copy in moves if k == target]
    return [pair[side] for copy in copies for pair in pairs(*copy)]


@given(
    st.one_of(layouts(), several()),
    st.integers(1, 9),
    st.sampled_from([None, row_major, lambda shape: row_major(shape[::-1])[::-1]]),
)
def test_copies_of_a_row_write_each_hole_once(layout: Layout, row: int, order: Any) -> None:
    steps = None if order is None else tuple(map(order, layout.out_shapes))
    moves = copied_holes(layout, row, steps)
    holes = layout.index() < 0
    if moves is None:  # then some output is filled as a whole
        shapes = zip(layout.out_shapes, holes_of(layout), strict=True)
        assert any(boxes == (tuple((0, n) for n in shape),) for shape, boxes in shapes)
        return
    assert {source for source, _, _ in moves} <= {len(layout.in_shapes)}
    for k, (start, stop) in enumerate(bounds(layout.out_shapes)):
        places = np.arange(stop - start)
        if steps is not None:
            places = sum(map(np.multiply, np.indices(layout.out_shapes[k]), steps[k]), places[:1])
        missing = np.ravel(places)[holes[start:stop]]
        assert sorted(addresses(moves, k, 1)) == sorted(missing)
        assert all(0 <= x < row for x in addresses(moves, k, 0))


ROWS: dict[str, tuple[tuple[int, int], dict[str, int]]] = {
    "more columns": ((5000, 1000), {"axis": 1, "to": 1024}),
    "more rows": ((5000, 1000), {"axis": 0, "to": 5100}),
    "one more column": ((3000, 2047), {"axis": 1, "to": 2048}),
    "mostly holes": ((9, 1000), {"axis": 0, "to": 6000}),
}


@pytest.mark.skipif(not xlayout_native.available, reason="by the kernel")
@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("name", ROWS)
def test_of_many_long_rows_holes_are_copies_too(
    name: str, make: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(recipe, "fill_holes")
    (rows, columns), options = ROWS[name]
    values = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) + 1
    more = options["to"] - values.shape[options["axis"]]
    wider = [(0, more if axis == options["axis"] else 0) for axis in range(2)]
    for value in (0, -2.5):
        wanted = np.pad(values, wider, constant_values=value)
        assert np.array_equal(xl.pad(make(values), value=value, **options), wanted)
        out = make(np.full(wanted.shape[::-1], 9, np.float32)).T  # column-major
        xl.pad(make(values), value=value, out=out, **options)
        assert np.array_equal(out, wanted)


@pytest.mark.skipif(not xlayout_native.available, reason="by the kernel")
@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("shape", [(3, 4), (100, 3), (3, 5000), (2000, 100)])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_write_after_the_first_is_one_copy(
    make: Callable[[Any], Any], shape: tuple[int, int], axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = shape[axis] + 3
    layout = xl.pad.layout(shape, axis=axis, to=to)
    wider = [(0, 3 * (k == axis)) for k in range(2)]
    values = np.arange(1, shape[0] * shape[1] + 1, dtype=np.float32).reshape(shape)
    out = make(np.full(layout.out_shape, 9, np.float32))
    writes = (lambda x: xl.pad(x, axis=axis, to=to, out=out)), (lambda x: layout(x, out=out))
    for write in writes:
        write(make(values))
    monkeypatch.delattr(run, "write_pieces")
    for k, write in enumerate(writes, 2):
        out[:] = 9
        assert write(make(values * k)) is out
        assert np.array_equal(out, np.pad(values * k, wider))


@pytest.mark.parametrize("value", [1, -0.0, 0])
def test_what_is_written_over_and_over_is_what_was_asked_for(value: float) -> None:
    x, out = np.ones((3, 4), np.float32), np.zeros((3, 6), np.float32)
    for number in (value, 0, 7, value):
        xl.pad(x, axis=1, to=6, value=number, out=out)
        wanted = np.pad(x, ((0, 0), (0, 2)), constant_values=number)
        assert np.array_equal(out.view(np.int32), wanted.view(np.int32))
        xl.pad.layout((3, 4), axis=1, to=6)(x, out=out, fill=number)
        assert np.array_equal(out.view(np.int32), wanted.view(np.int32))


def test_a_dtype_without_zeros_is_refused_whatever_was_written_before() -> None:
    layout = xl.pad.layout((3, 4), axis=1, to=6)
    for dtype, fill in ((torch.float32, 0), (torch.float8_e8m0fnu, 1)):
        x, out = torch.ones((3, 4)).to(dtype), torch.ones((3, 6)).to(dtype)
        layout(x, out=out, fill=fill)
        xl.pad(x, axis=1, to=6, value=fill, out=out)
    for write in (layout, lambda x, **o: xl.pad(x, axis=1, to=6, **o)):
        for _ in range(2):
            with pytest.raises(ShapeError, match="float8_e8m0fnu"):
                write(x, out=out)


def test_short_rows_of_many_are_filled_by_the_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = np.ones((20_000, 3), np.float32), np.ones((20_000, 4), np.float32)
    for _ in range(2):
        xl.pad(x, axis=1, to=4, out=out)
    monkeypatch.delattr(run, "write_pieces")
    with pytest.raises(NameError, match="write_pieces"):
        xl.pad(x, axis=1, to=4, out=out)


def test_on_a_gpu_holes_are_filled_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlayout_torch, "batch_strides", lambda xs: tuple(x.stride() for x in xs))
    filled = []

    def counted(*given: Any) -> None:
        filled.append(given)
        fill_holes(*given)

    monkeypatch.setattr(recipe, "fill_holes", counted)
    made = xl.pad(torch.ones(5000, 1000), axis=1, to=1001, value=7)
    assert len(filled) == 1
    assert torch.equal(made, torch.nn.functional.pad(torch.ones(5000, 1000), (0, 1), value=7))


def test_another_default_device_changes_nothing() -> None:
    x, out = torch.ones(300, 100), torch.full((300, 164), 9.0)
    wanted = torch.nn.functional.pad(x, (0, 64))
    xl.pad(x, axis=1, to=164, out=out)
    with torch.device("meta"):
        for _ in range(2):
            assert torch.equal(xl.pad(x, axis=1, to=164), wanted)
            assert torch.equal(xl.pad(x.fill_(2), axis=1, to=164, out=out), 2 * wanted)
            x.fill_(1)


def test_a_mode_sees_torchs_own_pad_alone() -> None:
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(
            self, op: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(op))
            return op(*args, **(kwargs or {}))

    with Mode():
        xl.pad(torch.ones(300, 100), axis=1, to=164)
    assert [name for name in seen if "ones" not in name] == ["aten.constant_pad_nd.default"]


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
def test_a_quantized_tensor_is_padded() -> None:
    x = torch.quantize_per_tensor(torch.ones(300, 100), 0.5, 0, torch.qint8)
    for _ in range(2):
        made = xl.pad(x, axis=1, to=164)
        assert torch.equal(made.dequantize(), torch.nn.functional.pad(x.dequantize(), (0, 64)))


@pytest.mark.parametrize(
    ("shape", "fill"),
    [((5000, 1000), 3), ((1 << 21, 3), 3), ((100, 1000), 3)],
    ids=["the kernel is off", "short rows", "few elements"],
)
def test_other_holes_are_filled_by_the_framework(
    shape: tuple[int, int], fill: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def counted(*given: Any) -> None:
        asked.append(given)
        fill_holes(*given)

    monkeypatch.setattr(recipe, "fill_holes", counted)
    values = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    with xl.native(shape != (5000, 1000)):
        made = xl.pad(values, axis=1, to=shape[1] + 1, value=fill)
    assert np.array_equal(made, np.pad(values, ((0, 0), (0, 1)), constant_values=fill))
    assert len(asked) == 1


def within(*starts: int) -> Layout:
    """A (2, 3) matrix that begins at `starts` in one of (4, 6)."""
    row, column = starts
    rows = Layout.slice((4, 6), row, row + 2, axis=0)
    return (rows >> Layout.slice((2, 6), column, column + 3, axis=1)).inverse()


EXACT: dict[str, tuple[Layout, list[Any]]] = {
    "none": (Layout.identity((4, 6)), [()]),
    "at an end": (xl.pad.layout((4, 3), axis=1, to=5), [(((0, 4), (3, 5)),)]),
    "at a beginning": (within(2, 0), [(((0, 2), (0, 6)), ((2, 4), (3, 6)))]),
    "all around": (
        within(1, 2),
        [(((0, 1), (0, 6)), ((3, 4), (0, 6)), ((1, 3), (0, 2)), ((1, 3), (5, 6)))],
    ),
    "before, between and after": (
        (
            Layout.parse("(a + b + c + d + e) -> (b + d + a + c + e)", a=1, b=2, c=3, d=4, e=5)
            >> Layout.slice((15,), 0, 6, axis=0)
        ).inverse(),
        [(((0, 1),), ((3, 6),), ((10, 15),))],
    ),
    "around two pieces": (
        Layout.parse("r (a + b) -> r (b + a)", (2, 3), a=1) >> within(1, 2),
        [(((0, 1), (0, 6)), ((3, 4), (0, 6)), ((1, 3), (0, 2)), ((1, 3), (5, 6)))],
    ),
    "of an axis that is merged": (
        xl.interleave.layout((8,)) >> Layout.pad((8,), axis=0, to=9),
        [(((8, 9),),)],
    ),
    "in each output": (
        Layout.slice((6,), 1, 5, axis=0).inverse() >> Layout.concat([(2,), (4,)], axis=0).inverse(),
        [(((0, 1),),), (((3, 4),),)],
    ),
    "every other column": (
        (xl.deinterleave.layout((4, 6), axis=1) >> Layout.slice((4, 6), 0, 3, axis=1)).inverse(),
        [(((0, 4), (0, 6)),)],
    ),
    "an empty output": (Layout.pad((4, 0), axis=0, to=5), [()]),
}


@pytest.mark.parametrize("name", EXACT)
def test_holes(name: str) -> None:
    layout, boxes = EXACT[name]
    assert list(holes_of(layout)) == boxes


def test_only_holes_are_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    filled, assign = [], xlayout_numpy.assign

    def counted(to: Any, source: Any) -> None:
        if not isinstance(source, np.ndarray):
            filled.append(to.size)
        assign(to, source)

    monkeypatch.setattr(xlayout_numpy, "assign", counted)
    x = np.arange(200 * 300).reshape(200, 300)
    made = xl.pad(x, axis=1, to=310, value=7)
    out = np.zeros((210, 300), x.dtype)
    xl.pad(x, axis=0, to=210, out=out, value=8)
    assert filled == [200 * 10, 10 * 300]
    assert np.array_equal(made, np.pad(x, ((0, 0), (0, 10)), constant_values=7))
    assert np.array_equal(out, np.pad(x, ((0, 10), (0, 0)), constant_values=8))


def test_memory_in_any_order_is_filled_in_its_holes() -> None:
    x = np.arange(6).reshape(2, 3)
    out = np.zeros((12, 4), int).T[::-1, ::2]
    within(1, 2)(x, out=out, fill=9)
    assert out.tolist() == [[9] * 6, [9, 9, 0, 1, 2, 9], [9, 9, 3, 4, 5, 9], [9] * 6]
