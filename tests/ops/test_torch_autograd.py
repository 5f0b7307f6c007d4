"""The gradient of an op in torch is the transpose of its index map, to any order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import xlayout as xl
from tests.ops.examples import Example, flat, numbered
from tests.ops.matrix import EXAMPLES, ONE_OF_EACH

forward_mode = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


def pulled_back(example: Example, cotangents: list[np.ndarray]) -> list[np.ndarray]:
    """Each input's share of the cotangents, by the oracle run on positions."""
    sizes = [int(np.prod(s)) for s in example.shapes]
    starts = list(itertools.accumulate(sizes, initial=1))
    total = np.zeros(1 + sum(sizes))  # position 0 stands for what padding adds
    positions = flat(example.oracle(*numbered(example.shapes, np.int64)))
    filled = "pad" in example.name
    for where, g in zip(positions, cotangents, strict=True):
        kept = where[tuple(slice(n) for n in example.shapes[0])] if filled else where
        np.add.at(total, kept, g[tuple(slice(n) for n in kept.shape)])
    return [
        total[first : first + n].reshape(shape)
        for first, n, shape in zip(starts, sizes, example.shapes, strict=False)
    ]


@pytest.mark.parametrize("op", [xl.matrix_transpose, lambda x, **k: xl.trim(x, to=1, **k)])
@pytest.mark.parametrize("windows", [False, True])
def test_elements_that_share_memory_have_gradients_of_their_own(op: Any, windows: bool) -> None:
    x = torch.arange(4.0).unfold(0, 3, 1) if windows else torch.ones(1, 1).expand(2, 3)
    weights = torch.arange(6.0).reshape(op(x).shape) if op is xl.matrix_transpose else 2.0
    grads = []
    for copy in (True, None):
        given = x.detach().requires_grad_()
        (op(given, copy=copy) * weights).sum().backward()
        grads.append(given.grad)
    assert torch.equal(*grads)
    with pytest.raises(BufferError, match="copy=None"):
        op(x.detach().requires_grad_(), copy=False)
    assert op(x, copy=False).data_ptr() == x.data_ptr()  # no gradient is asked for
    with torch.no_grad():
        assert op(given, copy=False).data_ptr() == x.data_ptr()


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_gradient_goes_back_where_each_element_came_from(example: Example) -> None:
    inputs = [torch.zeros(s, dtype=torch.float64, requires_grad=True) for s in example.shapes]
    outputs = flat(example.call(*inputs))
    rng = np.random.default_rng(3)
    cotangents = [rng.integers(1, 99, tuple(y.shape)).astype(np.float64) for y in outputs]
    for y, g in zip(outputs, cotangents, strict=True):
        if y.requires_grad:  # outputs of padding only depend on no input
            y.backward(torch.from_numpy(g))
    for x, want in zip(inputs, pulled_back(example, cotangents), strict=True):
        got = torch.zeros_like(x) if x.grad is None and not want.any() else x.grad
        assert got.numpy().tolist() == want.tolist()


INVERSES = [
    (lambda x: xl.interleave(x, block=2), lambda g: xl.deinterleave(g, block=2)),
    (lambda x: xl.rope_halves(x, heads=2), lambda g: xl.rope_pairs(g, heads=2)),
    (lambda x: xl.regroup(x, sizes=(8, 4), groups=2),
     lambda g: xl.ungroup(g, sizes=(8, 4), groups=2)),
    (xl.matrix_transpose, xl.matrix_transpose),
    (lambda x: xl.permute_dims(x, (1, 0)), lambda g: xl.permute_dims(g, (1, 0))),
    (lambda x: xl.rearrange(x, "(a + b) c -> c (b + a)", a=5),
     lambda g: xl.rearrange(g, "c (b + a) -> (a + b) c", a=5)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inverse"), INVERSES)
def test_the_gradient_of_a_bijection_is_its_inverse(op: Any, inverse: Any) -> None:
    x = torch.zeros(12, 3, dtype=torch.float64, requires_grad=True)
    y = op(x)
    g = torch.arange(36.0, dtype=torch.float64).reshape(y.shape)
    assert torch.equal(torch.autograd.grad(y, x, g)[0], inverse(g))


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_result_asks_for_a_gradient_when_an_input_does(example: Example) -> None:
    inputs = [torch.zeros(s, requires_grad=True) for s in example.shapes]
    outputs = flat(example.call(*inputs))
    if "pad (0" not in example.name:  # it holds only padding
        assert all(y.requires_grad for y in outputs if any(x.numel() for x in inputs))
    with torch.no_grad():
        assert not any(y.requires_grad for y in flat(example.call(*inputs)))


@pytest.mark.parametrize("example", ONE_OF_EACH, ids=str)
def test_first_and_second_derivatives(example: Example) -> None:
    rng = np.random.default_rng(5)
    inputs = [torch.from_numpy(rng.standard_normal(s)).requires_grad_() for s in example.shapes]

    def call(*xs: torch.Tensor) -> Any:
        return tuple(y * y for y in flat(example.call(*xs)))

    assert gradcheck(call, inputs)
    assert gradgradcheck(call, inputs)


@forward_mode
@pytest.mark.parametrize("example", ONE_OF_EACH, ids=str)
def test_forward_mode(example: Example) -> None:
    values = [torch.from_numpy(x).double() for x in numbered(example.shapes)]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(torch.zeros_like(x), x) for x in values]
        outputs = [forward_ad.unpack_dual(y) for y in flat(example.call(*duals))]
    wanted = flat(example.oracle(*(x.numpy() for x in values)))
    for y, want in zip(outputs, wanted, strict=True):
        assert y.tangent.numpy().tolist() == want.tolist()
        assert not y.primal.any()


@pytest.mark.parametrize(
    ("call", "shapes"),
    [(lambda a, b: xl.rearrange((a, b), "b a, c a -> (b + c) a"), [(0, 4), (3, 4)]),
     (lambda a, b: xl.rearrange((a, b), "b a, c a -> a (b + c)"), [(3, 4), (0, 4)]),
     (lambda a, b: xl.from_tiles([[a, b]]), [(4, 0), (4, 0)]),
     (lambda a, b: xl.stack([a, b], axis=1), [(2, 0), (2, 0)]),
     (lambda a: xl.pad(a, to=3), [(0, 4)])],
    ids=["first", "last", "both", "stacked", "padded"],
)  # fmt: skip
def test_a_gradient_goes_back_to_what_is_empty(call: Any, shapes: list[tuple[int, ...]]) -> None:
    inputs = [torch.ones(s, requires_grad=True) for s in shapes]
    back = torch.autograd.grad(call(*inputs).sum(), inputs)  # refuses what it does not come to
    assert [tuple(g.shape) for g in back] == shapes


class Shuffled(torch.autograd.Function):
    """Ops in a function with an explicit backward pass."""

    @staticmethod
    def forward(_ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return xl.stack([xl.interleave(x), y])

    @staticmethod
    def backward(_ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = xl.unstack(g)
        return xl.deinterleave(first), xl.pad(xl.trim(second, to=6), to=8)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated")  # which Dynamo does itself
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_backward_pass_that_is_written_out_is_compiled(backend: str) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (Shuffled.apply(x, 2 * x).sin() * torch.arange(3)).sum()  # type: ignore[no-untyped-call]

    x = torch.randn(8, 3, requires_grad=True)
    (plain,) = torch.autograd.grad(loss(x), x)
    (compiled,) = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend=backend)(x), x)
    torch.testing.assert_close(compiled, plain)


def padded(x: torch.Tensor) -> Any:
    """All elements in one row and two more, cut into two rows."""
    n = x.numel()
    flat = xl.Layout.pad((n,), n + 2, 0)
    return flat.regrouped(in_shapes=[x.shape], out_shapes=[(2, n // 2 + 1)])(x, fill=1)


OWN: dict[str, Any] = {
    "interleave": xl.interleave,
    "matrix_transpose": xl.matrix_transpose,
    "rope_halves": lambda x: xl.rope_halves(x, heads=2),
    "flattened": lambda x: xl.rearrange(x, "a b -> (b a)"),
    "split_qkv": lambda x: xl.split_qkv(x, heads=4, kv_heads=2),
    "regroup": lambda x: xl.regroup(x, sizes=(len(x) // 2,) * 2, groups=2),
    "fuse_qkv": lambda x: xl.fuse_qkv(x, *x.chunk(2), heads=4, kv_heads=2),
    "padded": padded,
    "padded negative": lambda x: padded(torch._neg_view(x)),
    "empty": lambda x: xl.fuse_qkv(x[:, :0], *x[:, :0].chunk(2), heads=4, kv_heads=2),
}


class Unrecorded(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, op: Any, x: torch.Tensor) -> Any:
        return op(x)

    @staticmethod
    def backward(_ctx: Any, *_cotangents: torch.Tensor) -> tuple[None, None]:
        return None, None


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("side", [8, 304])
@pytest.mark.parametrize("op", OWN.values(), ids=OWN)
def test_what_was_made_without_gradients_is_written_into_with_them(
    op: Any, side: int, native: bool
) -> None:
    for x in (torch.randn(side, side), torch.randn(side, side).t()):
        with xl.native(native), torch.no_grad():
            unseen = flat(op(x))
        with xl.native(native):
            recorded = flat(Unrecorded.apply(op, x.requires_grad_()))  # type: ignore[no-untyped-call]
        for y, z in zip(unseen, recorded, strict=True):
            before, weight = y.clone(), torch.ones_like(y, requires_grad=True)
            y.mul_(weight)  # which torch refuses of a view that was made without gradients
            y.sum().backward()
            assert torch.equal(weight.grad, before)  # type: ignore[arg-type]
            assert torch.equal(z.add_(1), before + 1)
