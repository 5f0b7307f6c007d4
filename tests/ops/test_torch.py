"""Every op goes through torch's transforms, modes and odd tensors with the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import xlayout as xl
from tests.ops.examples import Example, flat, lists, numbered, wanted
from tests.ops.matrix import EXAMPLES, ONE_OF_EACH
from tests.ops.memory import shares

forward_mode = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


def tensors(example: Example, dtype: torch.dtype = torch.int32) -> list[torch.Tensor]:
    return [torch.from_numpy(x).to(dtype) for x in numbered(example.shapes)]


def call_on_list(example: Example) -> Callable[[list[torch.Tensor]], tuple[torch.Tensor, ...]]:
    """Takes a list, because tracers count a function's parameters, and a list is one."""
    return lambda xs: flat(example.call(*xs))


@pytest.mark.parametrize("in_dim", [0, -1])
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_vmap_is_a_loop(example: Example, in_dim: int) -> None:
    xs = tensors(example)
    batches = [torch.stack([x, -x, x + 1], dim=in_dim) for x in xs]
    batched = torch.func.vmap(call_on_list(example), in_dims=in_dim)(batches)
    loop = [
        flat(example.call(*(f(x) for x in xs))) for f in (lambda x: x, torch.neg, lambda x: x + 1)
    ]
    for y, alone in zip(batched, zip(*loop, strict=True), strict=True):
        assert torch.equal(y, torch.stack(alone))


def test_vmap_takes_an_input_that_is_not_batched() -> None:
    q, k = torch.arange(12.0).reshape(3, 4), torch.arange(2.0)
    fuse = torch.func.vmap(
        lambda q, k: xl.fuse_qkv(q, k, k, heads=4, kv_heads=2), in_dims=(0, None)
    )
    for row, alone in zip(fuse(q, k), q, strict=True):
        assert torch.equal(row, xl.fuse_qkv(alone, k, k, heads=4, kv_heads=2))


@forward_mode
@pytest.mark.parametrize("example", ONE_OF_EACH, ids=str)
def test_grad_and_jvp_of_torch_func(example: Example) -> None:
    xs = tensors(example, torch.float64)

    def loss(xs: list[torch.Tensor]) -> torch.Tensor:
        return sum((y**3).sum() for y in flat(example.call(*xs)))  # type: ignore[return-value]

    plain = [x.clone().requires_grad_() for x in xs]
    loss(plain).backward()
    for got, x in zip(torch.func.grad(loss)(xs), plain, strict=True):
        assert torch.equal(got, x.grad)  # type: ignore[arg-type]
    hessian = torch.func.hessian(lambda x: loss([x, *xs[1:]]))(xs[0])
    kept = plain[0].grad != 0  # type: ignore[operator]
    assert torch.equal(hessian.reshape(xs[0].numel(), -1).diag(), (6 * xs[0] * kept).flatten())
    _, tangents = torch.func.jvp(call_on_list(example), (xs,), ([2 * x for x in xs],))
    assert lists(tangents) == [[*_doubled(y)] for y in wanted(example)]


def _doubled(values: list[Any]) -> Any:
    return np.multiply(values, 2.0).tolist()


def test_transforms_nest() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (xl.interleave(x, block=2) ** 2 * torch.arange(8.0)).sum()

    xs = torch.randn(3, 8, dtype=torch.float64)
    per_example = torch.func.vmap(torch.func.grad(loss))(xs)
    assert torch.allclose(per_example, torch.stack([torch.func.grad(loss)(x) for x in xs]))
    both = torch.func.vmap(torch.func.vmap(lambda x: xl.interleave(x)))(
        torch.arange(48).reshape(2, 3, 8)
    )
    assert both.shape == (2, 3, 8)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("example", ONE_OF_EACH, ids=str)
def test_make_fx(example: Example, mode: str) -> None:
    xs = tensors(example)
    graph = make_fx(call_on_list(example), tracing_mode=mode)(xs)
    assert lists(graph([x + 1 for x in xs])) == lists(example.call(*(x + 1 for x in xs)))


def test_make_fx_leaves_an_untouched_axis_open() -> None:
    graph = make_fx(lambda x: xl.interleave(x, block=2), tracing_mode="symbolic")(torch.zeros(8, 3))
    wide = torch.arange(56).reshape(8, 7)
    assert torch.equal(graph(wide), xl.interleave(wide, block=2))


@pytest.mark.parametrize("example", ONE_OF_EACH, ids=str)
def test_functionalize(example: Example) -> None:
    call = torch.func.functionalize(call_on_list(example))
    assert lists(call(tensors(example))) == wanted(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
@pytest.mark.parametrize("kind", ["fake", "meta"])
def test_shapes_without_memory(example: Example, kind: str) -> None:
    xs = tensors(example)
    if kind == "fake":
        with FakeTensorMode() as mode:
            made = flat(example.call(*map(mode.from_tensor, xs)))
    else:
        made = flat(example.call(*(x.to("meta") for x in xs)))
    for y, want in zip(made, flat(example.oracle(*numbered(example.shapes))), strict=True):
        assert (tuple(y.shape), y.dtype) == (want.shape, torch.int32)
        assert y.device.type == ("cpu" if kind == "fake" else "meta")
        assert y.is_contiguous()


def exported(op: Callable[..., Any], x: torch.Tensor, strict: bool, **options: Any) -> Any:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return op(x)

    return torch.export.export(Module(), (x,), strict=strict, **options).module()


export = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@export
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("example", [e for e in ONE_OF_EACH if len(e.shapes) == 1], ids=str)
def test_export(example: Example, strict: bool) -> None:
    (x,) = tensors(example)
    module = exported(lambda x: flat(example.call(x)), x, strict)
    assert lists(module(x)) == wanted(example)


@export
@pytest.mark.parametrize("strict", [True, False])
def test_export_leaves_an_untouched_axis_open(strict: bool) -> None:
    x = torch.arange(24).reshape(8, 3)
    shapes = {"x": {1: torch.export.Dim("columns", min=2, max=99)}}
    module = exported(lambda x: xl.interleave(x, block=2), x, strict, dynamic_shapes=shapes)
    wide = torch.arange(56).reshape(8, 7)
    assert module(wide).tolist() == xl.interleave(wide, block=2).tolist()


@export
@pytest.mark.parametrize("strict", [True, False])
def test_export_says_which_axis_cannot_be_open(strict: bool) -> None:
    x = torch.arange(24).reshape(8, 3)
    shapes = {"x": {0: torch.export.Dim("rows", min=2, max=99)}}
    with pytest.raises(Exception, match=r"[Ss]pecializ|constraint|axis 0 is dynamic"):
        exported(lambda x: xl.interleave(x, block=2), x, strict, dynamic_shapes=shapes)


class Tagged(torch.Tensor):
    """A subclass that keeps its type through every torch function."""


class Wrapped(torch.Tensor):
    """A subclass without memory of its own, which wraps `inner`."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, inner.stride(), inner.storage_offset(), dtype=inner.dtype
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def bare(x: Any) -> Any:
            return x.inner if isinstance(x, Wrapped) else x

        made = func(*tree_map(bare, args), **tree_map(bare, kwargs or {}))
        return tree_map(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, made)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_subclass_stays_one(example: Example) -> None:
    tagged = flat(example.call(*(x.as_subclass(Tagged) for x in tensors(example))))
    assert all(type(y) is Tagged for y in tagged)
    assert lists(tagged) == wanted(example)
    wrapped = flat(example.call(*map(Wrapped, tensors(example))))
    assert all(type(y) is Wrapped for y in wrapped)
    assert [y.inner.tolist() for y in wrapped] == wanted(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_subclass_stays_one_under_compile(example: Example) -> None:
    torch._dynamo.reset()
    call = torch.compile(call_on_list(example), backend="eager", fullgraph=True)
    made = call([x.as_subclass(Tagged) for x in tensors(example)])
    assert all(type(y) is Tagged for y in made)
    assert lists(made) == wanted(example)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_parameter_gives_a_tensor(example: Example) -> None:
    parameters = [torch.nn.Parameter(x) for x in tensors(example, torch.float64)]
    made = flat(example.call(*parameters))
    assert all(type(y) is torch.Tensor for y in made)
    assert lists(made) == [np.array(y, float).tolist() for y in wanted(example)]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_lazy_conjugates_and_negatives_are_resolved_in_value(example: Example) -> None:
    xs = [torch.complex(x, x + 1) for x in tensors(example, torch.float32)]
    conjugates = example.call(*(x.conj() for x in xs))
    assert lists(conjugates) == lists(example.call(*(x.conj_physical() for x in xs)))
    negatives = example.call(*(x.conj().imag for x in xs))
    assert lists(negatives) == lists(example.call(*(-x.imag for x in xs)))


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_inference_mode(example: Example) -> None:
    with torch.inference_mode():
        made = flat(example.call(*tensors(example)))
        assert lists(made) == wanted(example)
        assert all(y.is_inference() for y in made)
    assert lists(example.call(*tensors(example))) == wanted(example)


class Watch(TorchDispatchMode):
    """Sees every operation, as profilers and offloaders do."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_mode_sees_plain_operations_only(example: Example) -> None:
    with Watch() as watch:
        made = example.call(*tensors(example))
    assert lists(made) == wanted(example)
    assert "as_strided" not in watch.seen


@pytest.mark.parametrize("side", [3, 300])
def test_an_out_that_is_more_than_its_memory_is_refused(side: int) -> None:
    lazy = torch.zeros(side, side, dtype=torch.complex64).conj()
    for out in (lazy, torch.zeros(side, side).as_subclass(Tagged)):
        with pytest.raises(xl.ShapeError, match=r"^out: cannot be written: it is no plain strided"):
            xl.matrix_transpose(torch.ones(side, side, dtype=out.dtype), out=out)
        assert not out.any()


def test_a_share_of_a_subclass_is_refused_and_a_copy_given() -> None:
    x = torch.arange(6).reshape(2, 3).as_subclass(Tagged)
    with pytest.raises(BufferError, match="memory that is out of sight"):
        xl.matrix_transpose(x, copy=False)
    assert not shares(x, xl.matrix_transpose(x, copy=None))


@pytest.mark.parametrize("place", [0, 1])
def test_of_several_outs_the_one_that_cannot_be_written_is_told_why(place: int) -> None:
    out = [torch.empty(4), torch.empty(4)]
    out[place].requires_grad_()
    with pytest.raises(
        xl.ShapeError, match="out: cannot be written: it requires grad, and autograd"
    ):
        xl.unstack(torch.zeros(2, 4), out=out)
