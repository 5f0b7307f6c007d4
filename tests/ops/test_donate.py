"""`donate=True`: the arrays are given away, and the result takes over their memory where it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import Parameter

import xlayout as xl
import xlayout_native
from tests.frameworks import Framework, Jax, Torch
from tests.native.test_gates import SITUATIONS, Subclass
from tests.ops.examples import Example, flat, numbered
from tests.ops.matrix import EXAMPLES
from xlayout.errors import LayoutError
from xlayout.lower.donated import run_donated
from xlayout.lower.moves import moves_of
from xlayout.registry import backend_of
from xlayout_torch import native

TAKES = [Jax(), Torch()]
needs_kernel = pytest.mark.skipif(not xlayout_native.available, reason="there is no kernel")

IN_PLACE: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "rows": ((16, 512), xl.interleave),
    "rows back": ((12, 512), lambda x, **o: xl.deinterleave(x, block=2, **o)),
    "rope": ((64, 512), lambda x, **o: xl.rope_halves(x, heads=4, **o)),
    "a square": ((96, 96), xl.matrix_transpose),
    "squares": ((3, 64, 64), xl.matrix_transpose),
    "an axis apart": ((8, 512), lambda x, **o: xl.rearrange(x, "(a b) c -> a b c", a=2, **o)),
}
ELSEWHERE: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
    "short runs": ((16, 512), lambda x, **o: xl.interleave(x, axis=1, **o)),
    "no square": ((96, 64), xl.matrix_transpose),
    "more": ((8, 512), lambda x, **o: xl.pad(x, to=9, **o)),
    "less": ((8, 512), lambda x, **o: xl.trim(x, to=7, **o)),
    "several": ((8, 512), lambda x, **o: xl.unstack(x, **o)),
}


@pytest.mark.parametrize("framework", TAKES, ids=lambda f: f.name)
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_result_is_the_same_and_the_inputs_are_gone(
    framework: Framework, example: Example
) -> None:
    values = numbered(example.shapes)
    given = [framework.array(x) for x in values]
    made = example.call(*given, donate=True)
    for y, want in zip(flat(made), flat(example.oracle(*values)), strict=True):
        assert np.array_equal(framework.numpy(y), want)
    for x in given:
        assert x.is_deleted() if framework.name == "jax" else x.numel() == 0


@needs_kernel
@pytest.mark.parametrize("form", [*IN_PLACE, *ELSEWHERE])
def test_torch_permutes_in_place_what_has_such_a_form(form: str) -> None:
    shape, op = (IN_PLACE | ELSEWHERE)[form]
    x = torch.randn(shape)
    want, address = op(x.clone()), x.data_ptr()
    made = op(x, donate=True)
    assert (flat(made)[0].data_ptr() == address) == (form in IN_PLACE)
    for y, z in zip(flat(made), flat(want), strict=True):
        assert torch.equal(y, z)


@needs_kernel
def test_what_is_given_once_may_be_given_again() -> None:
    x = Parameter(torch.randn(128, 128), requires_grad=False)
    values, address = x.detach().clone(), x.data_ptr()
    y = xl.matrix_transpose(xl.interleave(x.data, donate=True), donate=True)
    assert type(y) is torch.Tensor
    assert torch.equal(y, xl.interleave(values).t())
    assert y.data_ptr() == address


def test_strided_memory_is_read_as_what_it_means() -> None:
    x = torch.randn(128, 128).t()
    want = xl.interleave(x)
    assert torch.equal(xl.interleave(x, donate=True), want)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_holes_of_a_result_as_large_as_the_input_are_filled(axes: tuple[int, int]) -> None:
    kept = xl.Layout.slice((512, 512), 0, 256, 0) >> xl.Layout.slice((256, 512), 0, 256, 1)
    layout = kept >> xl.Layout.permute((256, 256), axes) >> xl.Layout.pad((256, 256), 512)
    layout = layout >> xl.Layout.pad((512, 256), 512, 1)
    x = torch.arange(512 * 512.0).reshape(512, 512)
    wanted = layout(x, fill=-1)
    assert torch.equal(run_donated(backend_of(x), layout, (x,), -1), wanted)


def test_memory_of_others_is_not_written() -> None:
    array = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    whole = torch.randn(2, 64, 64)
    kept = whole.clone()
    shared = jnp.asarray(array)
    sent = whole[0].clone().share_memory_()  # as if sent to other processes
    seen = sent.detach()
    for x in (torch.from_numpy(array), whole[0], whole[1], xl.to_torch(shared), sent):
        want = x.t().clone()
        assert torch.equal(xl.matrix_transpose(x, donate=True), want)
    assert torch.equal(whole, kept)
    assert torch.equal(seen, kept[0])
    assert np.array_equal(array, np.arange(64 * 64).reshape(64, 64))
    assert np.array_equal(shared, array)


@needs_kernel
@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_must_be_seen_is_not_permuted_unseen(situation: str) -> None:
    moves = moves_of(xl.matrix_transpose.layout((64, 64)))
    made: list[Any] = []
    SITUATIONS[situation](lambda x: made.append(native.in_place(moves, x, (64, 64))))
    assert made == [None]


@pytest.mark.parametrize("shape", [(64, 64), (6, 1), (1,)])
def test_it_counts_as_a_change_to_autograd(shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape), torch.randn(shape, requires_grad=True)
    product = (weight * x).sum()
    xl.interleave(x, block=1, groups=1, donate=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@needs_kernel
def test_it_counts_as_a_change_under_another_name_too() -> None:
    x, weight = torch.randn(64, 64), torch.randn(64, 64, requires_grad=True)
    alias = x.detach()
    product = (weight * alias).sum()
    xl.matrix_transpose(x, donate=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_is_emptied_is_otherwise_what_it_was(device: str, dtype: torch.dtype) -> None:
    x = torch.zeros(4, 6, dtype=dtype, device=device)
    assert xl.interleave(x, donate=True).device == x.device
    assert (x.numel(), x.dtype, x.device.type) == (0, dtype, device)


@pytest.mark.parametrize("side", [6, 64])
def test_without_gradients_a_leaf_may_be_given_away(side: int) -> None:
    x = Parameter(torch.randint(-9, 10, (side, side)).float())  # so that any sum is exact
    want = x.detach().t().clone()
    with torch.no_grad():
        y = xl.matrix_transpose(x, donate=True)
    assert torch.equal(y, want)
    assert x.numel() == 0
    factor = torch.tensor(2.0, requires_grad=True)
    y.mul_(factor).sum().backward()  # like any fresh tensor, not a view made without grad
    torch.testing.assert_close(factor.grad, want.sum())


def test_what_a_transform_looks_at_is_refused_before_anything_is_emptied() -> None:
    captured = torch.ones(4, 4)
    with pytest.raises(TypeError, match="donate: a transform"):
        torch.vmap(lambda x: xl.stack([captured, x], donate=True))(torch.ones(1, 4, 4))
    assert captured.shape == (4, 4)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: xl.interleave(np.zeros(4), donate=True), TypeError,
         "donate: nothing can empty an array of numpy; do not donate it"),
        (lambda: xl.interleave(torch.zeros(4, requires_grad=True), donate=True), TypeError,
         "donate: x requires grad, and autograd would be left with nothing; pass x.detach()"),
        (lambda: xl.interleave(torch.zeros(4).as_subclass(Subclass), donate=True), TypeError,
         "donate: nothing can empty a Subclass; do not donate it"),
        (lambda: torch.vmap(lambda x: xl.interleave(x, donate=True))(torch.zeros(2, 4)), TypeError,
         "donate: a transform, a tracer or a dispatch mode is active, which would not see that "
         "x is emptied; leave it out"),
        (lambda: xl.interleave(torch.zeros(4), donate=1), TypeError,
         "donate: 1; wanted True or False"),
        (lambda: xl.interleave(torch.zeros(4), donate=True, copy=None), LayoutError,
         "donate: True cannot be combined with out= or copy="),
        (lambda: xl.interleave(torch.zeros(4), donate=True, out=torch.zeros(4)), LayoutError,
         "donate: True cannot be combined with out= or copy="),
        (lambda: xl.interleave(torch.zeros(4), donate=True, out_sharding=0), TypeError,
         "donate: the result of a sharded op is fresh; leave it out"),
        (lambda: jax.jit(lambda x: xl.interleave(x, donate=True))(jnp.zeros(4)), TypeError,
         "donate: cannot be promised while tracing; donate to the compiled function"),
        (lambda: torch.compile(lambda x: xl.interleave(x, donate=True), backend="eager")(
            torch.zeros(4)), TypeError,
         "donate: cannot be promised while tracing; donate to the compiled function"),
        (lambda: xl.pad(torch.zeros(2, dtype=torch.uint8), to=3, value=300, donate=True),
         xl.ShapeError, "value: 300 in an array of uint8; wanted an integer from 0 to 255"),
    ],
)  # fmt: skip
def test_wrong_use_is_told(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"^{text}"):
        call()


def test_what_is_refused_is_not_emptied() -> None:
    x = torch.arange(5.0)
    with pytest.raises(xl.SizeError, match="axis 0 = 5"):
        xl.interleave(x, donate=True)
    first, second = torch.zeros(2), torch.zeros(2, requires_grad=True)
    with pytest.raises(TypeError, match="donate"):
        xl.stack([first, second], donate=True)
    assert x.tolist() == [0, 1, 2, 3, 4]
    assert first.tolist() == [0, 0]


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError, SystemExit])
def test_what_is_interrupted_is_not_taken_for_what_it_was(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def interrupted(*args: Any) -> Any:
        native.in_place(*args)
        raise error("now")  # as a handler of signals may

    monkeypatch.setattr(backend_of(torch.zeros(1)), "in_place", interrupted)
    x = torch.randn(64, 64)
    with pytest.raises(error, match=r"^now$"):
        xl.matrix_transpose(x, donate=True)
    assert x.shape == (0,)
