"""A tiled linear layer in torch is one graph of plain ops, with the gradients of the dense one."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

import xlayout as xl
from tests.sizes import Sizes

GRID = {"grid": (3, 2)}

pytestmark = pytest.mark.usefixtures("no_graph_of_another_test")


def whole(*shape: int) -> torch.Tensor:
    n = torch.Size(shape).numel()
    return (torch.arange(n) * 5 % 7 - 3).reshape(shape).double()


X, W, B = whole(4, 6), whole(7, 6), whole(7)


def tiled(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
    return xl.tiled_linear(x, xl.to_tiles(w, **GRID), b)


def test_gradients_are_the_dense_layer_s() -> None:
    cotangent = whole(4, 7)
    found = torch.func.vjp(tiled, X, W, B)[1](cotangent)
    wanted = torch.func.vjp(linear, X, W, B)[1](cotangent)
    assert all(map(torch.equal, found, wanted))
    leaves = [t.clone().requires_grad_() for t in (X, W, B)]
    tiled(*leaves).backward(cotangent)
    assert all(torch.equal(leaf.grad, g) for leaf, g in zip(leaves, wanted, strict=True))


def test_second_derivatives_pass() -> None:
    given = [t.clone().requires_grad_() for t in (X, W, B)]
    assert torch.autograd.gradgradcheck(tiled, given)


@pytest.mark.parametrize("dynamic", [False, True])
def test_it_is_one_graph(dynamic: bool) -> None:
    run = torch.compile(xl.tiled_linear, fullgraph=True, backend="eager", dynamic=dynamic)
    tiles = xl.to_tiles(W, **GRID)
    for rows in (4, 3, 2):
        assert torch.equal(run(X[:rows], tiles, B), linear(X[:rows], W, B))
        assert torch.equal(run([X[:rows, :3], X[:rows, 3:]], tiles), linear(X[:rows], W))


def test_transforms_batch_each_argument() -> None:
    xs, ws, bs = (torch.stack([t, t + 1, t - 1]) for t in (X, W, B))
    for axes in ((0, None, None), (None, 0, None), (None, None, 0), (0, 0, 0)):
        given = [g if a == 0 else t for g, t, a in zip((xs, ws, bs), (X, W, B), axes, strict=True)]
        assert torch.equal(
            torch.func.vmap(tiled, axes)(*given), torch.func.vmap(linear, axes)(*given)
        )


@pytest.mark.parametrize("bias", [B.float(), None], ids=["bias", "no bias"])
def test_autocast_narrows_as_in_the_dense_layer(bias: torch.Tensor | None) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = tiled(X.float(), W.float(), bias), linear(X.float(), W.float(), bias)
    assert found.dtype == wanted.dtype == torch.bfloat16
    assert torch.equal(found, wanted)  # whole numbers below 256


def test_one_device_per_call() -> None:
    tile = torch.zeros(3, 2, device="meta")
    with pytest.raises(TypeError, match="x is on cpu, the tiles are on meta; one device per call"):
        xl.tiled_linear(torch.zeros(2), [[tile]])
    with pytest.raises(TypeError, match="bias is on cpu, the tiles are on meta; one device"):
        xl.tiled_linear(torch.zeros(2, device="meta"), [[tile]], torch.zeros(3))


def test_a_module_is_no_tile() -> None:
    with pytest.raises(TypeError, match=r": Linear; wanted a torch\.Tensor, as x\.weight"):
        xl.tiled_linear(torch.zeros(2), [[torch.nn.Linear(2, 3)]])


def test_forward_and_backward_make_nothing_as_large_as_the_weight() -> None:
    w = whole(60, 80)
    tiles = [[t.requires_grad_() for t in row] for row in xl.to_tiles(w, grid=(3, 2))]
    with Sizes() as sizes:
        y = xl.tiled_linear(whole(2, 80), tiles)
        y.sum().backward()
    assert max(sizes.made) <= 20 * 40  # the gradient of one tile
    assert torch.equal(y, linear(whole(2, 80), w))
