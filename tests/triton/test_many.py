"""Many layouts at once give what each gives alone, moved together where the backend would."""

from __future__ import annotations

import re
import weakref
from typing import Any

import numpy as np
import pytest
import torch

import xlayout as xl
import xlayout_torch
from tests.triton.conftest import open_gates
from xlayout import apply_many
from xlayout.algebra import Layout
from xlayout.errors import ShapeError, SizeError
from xlayout_torch import cuda, launches
from xlayout_torch.batch import Batch

HEADS = {"heads": 4, "kv_heads": 2}
LAYOUTS = [
    xl.matrix_transpose.layout((48, 40)),
    xl.fuse_qkv.layout((32, 24), (16, 24), (16, 24), **HEADS),
    xl.split_qkv.layout((64, 24), **HEADS),
    xl.pad.layout((5, 7), to=8),
    xl.interleave.layout((48, 40)),
    Layout.identity((3, 5)),
    Layout.identity((0, 4)),
]


def inputs(make: Any) -> list[Any]:
    """Arrays for each layout, every number another."""
    found: list[Any] = []
    at = 1.0
    for layout in LAYOUTS:
        xs = []
        for shape in layout.in_shapes:
            size = int(np.prod(shape))
            xs.append(make(np.arange(at, at + size, dtype=np.float32).reshape(shape)))
            at += size
        found.append(xs if len(xs) > 1 else xs[0])
    return found


def same(made: Any, wanted: Any) -> bool:
    made, wanted = (x if isinstance(x, tuple) else (x,) for x in (made, wanted))
    return len(made) == len(wanted) and all(map(np.array_equal, made, wanted))


def each(xs: list[Any], fill: float) -> list[Any]:
    return [xl.apply(layout, x, fill=fill) for layout, x in zip(LAYOUTS, xs, strict=True)]


@pytest.mark.parametrize("make", [np.array, torch.from_numpy], ids=["numpy", "torch"])
def test_many_are_each(make: Any) -> None:
    xs = inputs(make)
    made = apply_many(LAYOUTS, xs, fill=-1)
    assert all(map(same, made, each(xs, -1)))


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Batches that were asked for."""
    asked: list[Any] = []
    open_gates(monkeypatch)
    monkeypatch.setattr(xlayout_torch, "move_many", lambda items: bool(asked.append(items)))
    return asked


def test_tensors_wait_for_one_another_and_torch_makes_what_the_kernel_does_not(
    batches: list[Any],
) -> None:
    xs = inputs(torch.from_numpy)
    made = apply_many(LAYOUTS, xs, fill=-1)
    assert [len(items) for items in batches] == [len(LAYOUTS)]
    assert all(map(same, made, each(xs, -1)))


class Watched(torch.Tensor):
    """Code of others stands behind it."""


def test_who_waits_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(3, 4).t()
    wait = xlayout_torch.batch_strides
    assert wait((x,)) is None  # on the CPU
    open_gates(monkeypatch)
    assert wait((x, torch.zeros(2, 5))) == ((1, 4), (5, 1))
    for y in (x.double(), x.to("meta"), np.zeros(3), x.as_subclass(Watched), x.to_sparse()):
        assert wait((x, y)) is None
    for odd in (x.as_subclass(Watched), torch.nn.Linear(1, 1)):
        assert wait((odd,)) is wait((x, odd)) is None
    with torch.autograd.forward_ad.dual_level():
        assert wait((x,)) is None
    weight = torch.ones(2, requires_grad=True)
    assert wait((weight,)) is None
    with torch.no_grad():
        assert wait((weight,)) == ((1,),)
    monkeypatch.setitem(cuda.GATES, "capture", lambda _x: True)
    assert wait((x,)) is None
    open_gates(monkeypatch)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert wait((x,)) is None


def test_what_autograd_sees_does_not_wait(batches: list[Any]) -> None:
    x = torch.ones(48, 40, requires_grad=True)
    made = apply_many([LAYOUTS[0], LAYOUTS[0]], [x, x.detach()])
    assert made[0].requires_grad
    assert not made[1].requires_grad
    assert [len(items) for items in batches] == [1]


def test_the_kernel_makes_them_together(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_gates(monkeypatch)
    launched = []
    launch = launches.launch

    def counted(*args: Any) -> None:
        launched.append(args)
        launch(*args)

    monkeypatch.setattr(launches, "launch", counted)
    xs = inputs(lambda x: torch.from_numpy(x).to(device))
    cuda.why_not(xs[0].device if isinstance(xs[0], torch.Tensor) else xs[0][0].device)
    launched.clear()
    wanted = each(inputs(torch.from_numpy), -1)
    others = inputs(lambda x: torch.from_numpy(1000 + x).to(device))
    for call, (some, more) in enumerate([(xs, 0), (others, 1000)], 1):  # the plan is found again
        made = apply_many(LAYOUTS, some, fill=-1 + more)
        assert len(launched) == call
        for y, z in zip(made, wanted, strict=True):
            y, z = (x if isinstance(x, tuple) else (x,) for x in (y, z))
            assert same(tuple(x.cpu() - more for x in y), z)


def test_a_call_again_uploads_only_where_its_tensors_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two numbers for each piece; the table is there, once for each stream that reads it."""
    open_gates(monkeypatch)
    uploaded, sizes, launched = launches.uploaded, [], []

    def counted(words: Any, device: torch.device) -> Any:
        sizes.append(len(words))
        return uploaded(words, device)

    monkeypatch.setattr(launches, "uploaded", counted)
    monkeypatch.setattr(launches, "launch", lambda *args: launched.append(args))
    monkeypatch.setattr(cuda, "why_not", lambda _device: "")
    xs, alive = inputs(torch.from_numpy), []  # so that no result lies where another did
    for stream in (1, 1, 2, 1):
        monkeypatch.setattr(launches, "stream", lambda _device, stream=stream: stream)
        alive.append(apply_many(LAYOUTS, xs))
    made, first, _ = launched[0]
    table, ends = len(made.words), 2 * len(made.places)
    assert sizes == [table, ends, ends, table, ends, ends]
    assert [other is first for _, other, _ in launched] == [True, True, False, True]


def test_nothing_is_uploaded_again_where_all_lie_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the same stream; what lies elsewhere is uploaded, and read."""
    open_gates(monkeypatch)
    uploaded, sizes, launched = launches.uploaded, [], []
    monkeypatch.setattr(
        launches, "uploaded", lambda *args: (sizes.append(len(args[0])), uploaded(*args))[1]
    )
    monkeypatch.setattr(launches, "launch", lambda *args: launched.append(args[2].tolist()))
    monkeypatch.setattr(cuda, "why_not", lambda _device: "")
    moves = ((0, 0, (0, 0, ((24, 1, 1),))), (0, 0, (24, 24, ((24, 1, 1),))))
    x, ys = torch.zeros(48), torch.zeros(2, 48)
    for stream, k in ((1, 0), (1, 1), (1, 0), (1, 1), (2, 0), (1, 0)):
        monkeypatch.setattr(launches, "stream", lambda _device, stream=stream: stream)
        batch = Batch.prepared([(moves, [x], [ys[k]])], once=True)
        assert batch is not None
        batch.run()
        assert launched[-1] == 2 * [x.data_ptr(), ys[k].data_ptr()]
    table = sizes[0]
    assert sizes == [table, 4, 4, table, 4]


def test_what_the_kernel_cannot_move_together_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of several devices, or one with more axes than it counts."""

    def taken(*items: Any) -> bool:
        return Batch.prepared([((move,), [x], [y]) for move, y in items], once=True) is not None

    monkeypatch.setattr(cuda, "why_not", lambda _device: "")
    x, meta = torch.zeros(8), torch.empty(8, device="meta")
    run = 0, 0, (0, 0, ((8, 1, 1),))
    many = 0, 0, (0, 0, tuple((3, 3**k * 5, 7 * 3 ** (8 - k)) for k in range(9)))
    assert taken((run, x), (run, x))
    assert not taken((run, x), (many, x))
    assert not taken((run, x), (run, meta))
    assert not taken((run, meta), (run, x))


@pytest.mark.parametrize("kind", [list, iter])
def test_a_batch_keeps_its_tensors_alive(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has only their addresses to run on."""
    open_gates(monkeypatch)
    monkeypatch.setattr(cuda, "why_not", lambda _device: "")
    x, y = torch.zeros(8), torch.zeros(8)
    kept = [weakref.ref(x), weakref.ref(y)]
    items = [(((0, 0, (0, 0, ((8, 1, 1),))),), [x], [y])]
    batch, once = Batch.of(kind(items)), Batch.prepared(kind(items), once=True)
    assert batch is not None
    assert once is not None
    assert batch.launches == once.launches == 1
    del x, y, items, once
    assert None not in [tensor() for tensor in kept]


def test_several_outputs_are_moved_at_once_too(
    batches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = xl.unstack.layout((3, 100, 128))
    x = torch.randn(3, 100, 128)
    asked: list[Any] = []
    monkeypatch.setattr(xlayout_torch, "move", lambda *args: bool(asked.append(args)))
    made = layout(x)
    assert [len(outputs) for _, _, outputs in asked] == [3]
    monkeypatch.setattr(xlayout_torch, "batch_strides", lambda _xs: None)
    assert same(made, layout(x))
    assert len(asked) == 1
    assert batches == []


def test_each_array_needs_a_layout() -> None:
    with pytest.raises(SizeError, match="arrays: 1 for 2 layouts; wanted one for each layout"):
        apply_many(LAYOUTS[:2], [np.zeros((48, 40))])


def test_what_is_no_layout_is_named() -> None:
    with pytest.raises(TypeError, match=r"^layouts\[1\]: an int; wanted a Layout"):
        apply_many([LAYOUTS[0], 3], [np.zeros(1), np.zeros(1)])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            torch.zeros(2, 2),
            r"^arrays\[1\]: an array of shape \(2, 2\); the layout takes \(48, 40\)",
        ),
        (
            np.zeros((2, 2)),
            r"^arrays\[1\]: an array of shape \(2, 2\); the layout takes \(48, 40\)",
        ),
        ([torch.zeros(2)] * 2, r"^arrays\[1\]: the layout takes 1 arrays, 2 given"),
    ],
)
def test_a_wrong_shape_is_refused(batches: list[Any], wrong: Any, text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        apply_many([LAYOUTS[0]] * 2, [torch.zeros(48, 40), wrong])
    assert batches == []


def test_a_wrong_shape_among_several_is_named() -> None:
    joined = Layout.concat([(2,), (3,)])
    with pytest.raises(
        ShapeError, match=r"^arrays\[1\]: 0 is of shape \(3,\); the layout takes \(2,\)"
    ):
        apply_many([joined, joined], [(np.zeros(2), np.zeros(3)), (np.zeros(3), np.zeros(3))])


@pytest.mark.usefixtures("batches")
def test_arrays_of_one_layout_agree() -> None:
    q, k, v = inputs(torch.from_numpy)[1]
    text = r"^arrays\[1\]: 0 is torch.float32 on cpu, 2 is torch.float64"
    with pytest.raises(TypeError, match=text):
        apply_many([LAYOUTS[5], LAYOUTS[1]], [torch.zeros(3, 5), (q, k, v.double())])


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize(
    ("layout", "dtype", "fill", "wanted"),
    [
        (LAYOUTS[0], torch.int32, 0.5, "an integer from -2147483648 to 2147483647"),
        (LAYOUTS[3], torch.float8_e8m0fnu, 0, "a number from 2**-127 to 2**127"),
    ],
    ids=["a fraction", "no zero"],
)
def test_a_fill_that_a_dtype_has_not_is_refused(
    layout: Layout, dtype: Any, fill: float, wanted: str
) -> None:
    x = torch.ones(layout.in_shapes[0]).to(dtype)
    with pytest.raises(ShapeError, match=f"^fill: {fill} in an .*; wanted {re.escape(wanted)}$"):
        apply_many([layout], [x], fill=fill)
