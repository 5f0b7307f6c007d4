"""A layout of one tensor on a GPU is written into fresh ones by the kernel, or else by torch."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import xlayout as xl
from xlayout.algebra import Layout
from xlayout.lower.moves import moves_of
from xlayout_torch import cuda
from xlayout_triton.uncompiled import CompileError

writer = import_module("xlayout_torch.writer")  # the package has a function of that name

LAYOUTS = {
    "transpose": xl.matrix_transpose.layout((40, 24)),
    "rope": xl.rope_halves.layout((48, 20), heads=4),
    "split": xl.split_qkv.layout((96, 10), heads=4, kv_heads=2),
}


pytestmark = pytest.mark.usefixtures("anywhere")


def writing(layout: Layout) -> Any:
    """What writes a layout on a GPU."""
    return cuda.writer(moves_of(layout), layout.out_size, layout.out_shapes)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_kernel_writes_all_results(name: str, device: str) -> None:
    layout = LAYOUTS[name]
    x = torch.arange(layout.in_size, dtype=torch.int16, device=device).view(layout.in_shapes[0])
    made, wanted = writing(layout)(x), layout(x.cpu())
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert [y.cpu().tolist() for y in made] == [y.tolist() for y in wanted]
    assert all(y.is_contiguous() and y.device == x.device for y in made)


@pytest.mark.usefixtures("copies")
@pytest.mark.parametrize("name", [*LAYOUTS, "a part is empty"])
def test_results_lie_as_torchs_own_do(name: str) -> None:
    turned = LAYOUTS["transpose"]
    partly = turned.regrouped(turned.in_shapes, [(24, 40), (0, 3), (3, 0)])
    layout = LAYOUTS.get(name, partly)
    made = writing(layout)(torch.zeros(layout.in_shapes[0]))
    wanted = [torch.empty(shape) for shape in layout.out_shapes]
    assert [(y.shape, y.stride()) for y in made] == [(y.shape, y.stride()) for y in wanted]


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_not_row_major_or_watched_is_torchs(name: str, copies: list[Any]) -> None:
    layout = LAYOUTS[name]
    write, x = writing(layout), torch.zeros(layout.in_shapes[0])
    assert write(x) is not None
    assert len(copies) == 1
    assert write(torch.zeros(x.shape[::-1]).t()) is None
    weight = x.clone().requires_grad_()
    assert write(weight) is None
    with torch.no_grad():
        assert write(weight) is not None
    seen: list[Any] = []
    torch.func.vmap(lambda y: seen.append(write(x)) or y)(x)
    assert seen == [None]
    assert len(copies) == 2


def test_so_are_small_tensors_and_those_that_stay_as_they_are(
    copies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert writing(Layout.identity((40, 24)))(torch.zeros(40, 24)) is None
    for name, least in (("transpose", "SMALL"), ("rope", "SMALL"), ("split", "SEVERAL")):
        layout = LAYOUTS[name]
        x = torch.zeros(layout.in_shapes[0])
        for more in (0, 1):
            monkeypatch.setattr(cuda, least, x.nbytes + more)
            assert (writing(layout)(x) is None) is bool(more)
    assert len(copies) == 3


def test_so_is_what_has_no_kernel(copies: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args: Any) -> bool:
        raise CompileError("no such layout")

    write = writing(LAYOUTS["transpose"])
    monkeypatch.setattr(cuda, "copy", fails)
    monkeypatch.setattr(cuda, "say", lambda *_args: None)
    assert write(torch.zeros(40, 24)) is None
    assert not copies


@pytest.mark.parametrize("is_cuda", [False, True])
def test_a_recipe_asks_it_for_fresh_results_of_one_tensor_there(
    is_cuda: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(cuda, "writer", lambda *_args: asked.append)
    monkeypatch.setattr(writer, "addresses_of", lambda _arrays: None)
    one, several = LAYOUTS["transpose"], xl.stack.layout([(4,), (4,)])
    x = SimpleNamespace(dtype=torch.float32, is_cuda=is_cuda)
    for layout in (one, several):
        write = writer.writer(moves_of(layout), layout.in_shapes, layout.out_shapes)
        assert write([x] * len(layout.in_shapes), None) is None
        assert write([x] * len(layout.in_shapes), [x]) is None
    assert asked == [x] * is_cuda
