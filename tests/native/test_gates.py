"""Whatever in torch must see a copy closes a gate of its own, and torch then copies."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._vmap_internals import _vmap
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import xlayout as xl
import xlayout_native
from tests.counted import counted
from xlayout.errors import ShapeError
from xlayout_torch import memory, native

Check = Callable[[Any], Any]
Situation = Callable[[Check], Any]


def tall(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A transposed view that the kernel would copy."""
    return torch.arange(64 * 512).to(dtype).view(64, 512).t()


class Subclass(torch.Tensor):
    """A tensor whose memory may mean something else."""


class Dispatch(TorchDispatchMode):
    """Looks on, and changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Function(TorchFunctionMode):
    """Looks on, and changes nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def traced(check: Check) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        check(x.t())
        return x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and records no questions
        torch.jit.trace(f, torch.zeros(64, 512), check_trace=False)


def mapped(check: Check) -> None:
    torch.func.vmap(lambda x: (check(x.t()), x)[1])(torch.zeros(3, 64, 512))


def batched(check: Check) -> None:
    _vmap(lambda x: (check(x.t()), x)[1])(torch.zeros(3, 64, 512))


def dual(check: Check) -> None:
    with forward_ad.dual_level():
        check(tall())


def dispatched(check: Check) -> None:
    with Dispatch():
        check(tall())


def overridden(check: Check) -> None:
    x = tall()
    with Function():
        check(x)


def quantized(check: Check) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.quantize_per_tensor(torch.zeros(64, 512), 0.1, 0, torch.qint32).t()
    check(x)


def freed(check: Check) -> None:
    """As FSDP frees gathered parameters; torch refuses to read them, and views have offsets."""
    x = torch.zeros(65, 512)[1:].t()
    x.untyped_storage().resize_(0)
    check(x)


SITUATIONS: dict[str, Situation] = {
    "subclass": lambda check: check(tall().as_subclass(Subclass)),
    "device": lambda check: check(torch.empty(64, 512, device="meta").t()),
    "layout": lambda check: check(torch.eye(512).to_sparse()),
    "autograd": lambda check: check(tall().requires_grad_()),
    "forward mode": dual,
    "transform": mapped,
    "batches": batched,
    "functionalization": lambda check: check(torch._to_functional_tensor(tall())),
    "dispatch mode": dispatched,
    "function mode": overridden,
    "tracing": traced,
    "conjugate": lambda check: check(tall(torch.complex64).conj()),
    "negative": lambda check: check(tall(torch.complex64).conj().imag),
    "zero": lambda check: check(torch._efficientzerotensor((512, 64))),
    "quantized": quantized,
    "freed": freed,
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The runs that were requested; none takes place."""
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(xlayout_native, "run", lambda *args: asked.append(args))
    for name in ("plan_to_copy", "plan_where_faster"):
        monkeypatch.setattr(native, name, lambda *_: "plan")
    return asked


def reaches_the_kernel(x: torch.Tensor, runs: list[tuple[Any, ...]]) -> bool:
    """Whether a copy of `x` or into it requests a run; an error means that it went too far."""
    try:
        made, done = native.fresh(x), native.move((), [x], [x])
    except (RuntimeError, NotImplementedError):  # what has no memory failed behind the gates
        return True
    return bool(runs) or made is not None or done


def test_every_gate_has_a_situation() -> None:
    assert SITUATIONS.keys() == native.GATES.keys()


def test_a_plain_tensor_passes(runs: list[tuple[Any, ...]]) -> None:
    assert reaches_the_kernel(tall(), runs)


def test_under_a_default_device_a_plain_tensor_passes_too(runs: list[tuple[Any, ...]]) -> None:
    x = tall()
    with torch.device("meta"), torch.device("cpu"):
        assert reaches_the_kernel(x, runs)


def test_a_mode_between_default_devices_is_seen(runs: list[tuple[Any, ...]]) -> None:
    x = tall()
    with torch.device("cpu"), Function(), torch.device("cpu"):
        assert not reaches_the_kernel(x, runs)


@pytest.mark.parametrize("gate", SITUATIONS)
def test_a_gate_keeps_the_kernel_away(gate: str, runs: list[tuple[Any, ...]]) -> None:
    seen = []
    SITUATIONS[gate](lambda x: seen.append(reaches_the_kernel(x, runs)))
    assert seen == [False]


@pytest.mark.parametrize("gate", ["subclass", "device", "autograd", "conjugate", "negative"])
@pytest.mark.parametrize("written", [False, True])
def test_on_either_side_of_a_copy(gate: str, written: bool, runs: list[tuple[Any, ...]]) -> None:
    made = []

    def check(x: torch.Tensor) -> None:
        made.append(native.move((), *(([tall()], [x]) if written else ([x], [tall()]))))

    SITUATIONS[gate](check)
    assert made == [False]
    assert runs == []


@pytest.mark.parametrize("gate", SITUATIONS)
def test_and_no_other_gate_does(
    gate: str, runs: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(native.GATES, gate)
    seen = []
    SITUATIONS[gate](lambda x: seen.append(reaches_the_kernel(x, runs)))
    assert seen == [True]


OF_THE_CALL = {"forward mode", "dispatch mode", "function mode", "tracing", "autograd"}


@pytest.mark.parametrize("gate", sorted(SITUATIONS.keys() - OF_THE_CALL))
def test_nothing_that_a_gate_is_about_is_plain(gate: str) -> None:
    seen = []
    SITUATIONS[gate](lambda x: seen.append(memory.plain(x)))
    assert seen == [False]


def test_a_tensor_is_plain_with_and_without_gradients_and_in_inference_mode() -> None:
    assert memory.plain(tall())
    assert memory.plain(torch.nn.Parameter(tall()))
    with torch.inference_mode():
        assert memory.plain(tall())


def test_plain_is_not_learned_where_a_mode_makes_the_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_plain_keys", set())
    monkeypatch.setattr(memory, "_known", {"meta"})
    x = tall()
    with FakeTensorMode():
        assert not memory.plain(x)
    assert memory.plain(x)


# -- the ops themselves, at a size that the kernel takes ------------------------------------------


class Interleaved(torch.autograd.Function):
    """A function of a user's, with a backward pass of its own."""

    @staticmethod
    def forward(_ctx: Any, x: Any) -> Any:
        return xl.interleave(x, axis=1)

    @staticmethod
    def backward(_ctx: Any, g: Any) -> Any:
        return xl.deinterleave(g, axis=1)


@pytest.mark.parametrize("shape", [(4, 6), (64, 256)])
def test_a_jacobian_made_in_batches(shape: tuple[int, int]) -> None:
    def some(op: Any) -> Any:
        return lambda x: op(x)[0, :3]

    x = torch.randn(shape)
    jacobian = torch.autograd.functional.jacobian
    made = jacobian(some(Interleaved.apply), x, vectorize=True)
    assert torch.equal(made, jacobian(some(lambda x: x[:, [0, shape[1] // 2, 1]]), x))


def test_a_gradient_is_the_inverse() -> None:
    x = torch.randn(300, 200, requires_grad=True)
    weight = torch.randn(200, 300)
    (xl.matrix_transpose(x) * weight).sum().backward()
    assert torch.equal(x.grad, weight.t())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_tangent_goes_along() -> None:
    x, tangent = torch.randn(2, 300, 200)
    value, moved = torch.func.jvp(xl.matrix_transpose, (x,), (tangent,))
    assert torch.equal(value, x.t())
    assert torch.equal(moved, tangent.t())


def test_a_mapped_axis_stays() -> None:
    x = torch.randn(4, 300, 200)
    assert torch.equal(torch.func.vmap(xl.matrix_transpose)(x), x.mT)


def test_a_gradient_of_a_write_after_the_fact_is_refused() -> None:
    x = torch.randn(300, 200, requires_grad=True)
    weight = torch.randn(300, 200)
    product = (x * weight).sum()
    xl.matrix_transpose(torch.randn(200, 300), out=weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@pytest.mark.parametrize("shape", [(6, 4), (300, 200)])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_that_wait_for_nothing_are_written_at_once(
    shape: tuple[int, int], dtype: torch.dtype
) -> None:
    x, out = torch.randn(shape, dtype=dtype), torch.zeros(shape[::-1], dtype=dtype)
    for _ in range(2):
        out.zero_()
        with counted() as seen:
            xl.matrix_transpose(x, out=out)
        assert torch.equal(out, x.t())
    assert seen["call"] < 40  # more than twice as many if all is asked again
    resolved = r"read; pass x\.resolve_conj\(\)\.resolve_neg\(\)$"
    for source, target, text in ((x.conj(), out, resolved), (-x, out.conj(), "no plain strided")):
        with pytest.raises(ShapeError, match=text):
            xl.matrix_transpose(source, out=target)
        assert torch.equal(out, x.t())


@pytest.mark.parametrize("shape", [(6, 4), (300, 200)])
def test_a_default_device_changes_nothing(shape: tuple[int, int]) -> None:
    x, y = torch.randn(shape), torch.empty(shape[::-1])
    with torch.device("meta"):
        made, written = xl.matrix_transpose(x), xl.matrix_transpose(x, out=y)
        seen = xl.matrix_transpose(x, copy=False)
    assert torch.equal(made, x.t())
    assert written is y
    assert torch.equal(y, x.t())
    assert seen.data_ptr() == x.data_ptr()
