"""Large layouts of tensors that require grad: one operation that autograd sees, or plain ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xlayout as xl
import xlayout_native

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.testing._internal.two_tensor import TwoTensor  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests.native.test_gates import Dispatch  # noqa: E402
from xlayout.algebra import Layout, Piece  # noqa: E402
from xlayout_torch import autograd  # noqa: E402

# From modules that torch itself imports.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.torch.jit")

SHAPE = (768, 256)
OPERATION = "_LinearBackward"
Op = Callable[..., Any]

OPS: dict[str, Op] = {
    "interleave": xl.interleave,
    "zip": lambda x: xl.interleave(x, axis=1),
    "transpose": xl.matrix_transpose,
    "rope": lambda x: xl.rope_halves(x, heads=4, axis=1),
    "split qkv": lambda x: xl.split_qkv(x, heads=4, kv_heads=4),
    "fuse qkv": lambda x: xl.fuse_qkv(x, x[:128], x[128:256], heads=12, kv_heads=2),
    "three pieces": lambda x: xl.regroup(x, sizes=(128, 256, 384), groups=4),
    "trim": lambda x: xl.trim(x, to=200, axis=1),
    "pad": lambda x: xl.pad(x, to=300, axis=1),
    "trim and transpose": xl.trim.layout(SHAPE, to=700) >> xl.matrix_transpose.layout((700, 256)),
    "a layout": xl.interleave.layout(SHAPE) >> xl.matrix_transpose.layout(SHAPE),
}


@pytest.fixture(autouse=True)
def from_fewer_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the size from which a layout counts as large."""
    monkeypatch.setattr(autograd, "FROM", 1 << 18)


def leaf(dtype: Any = torch.float32, shape: tuple[int, ...] = SHAPE) -> Any:
    values = np.random.default_rng(0).standard_normal(shape, np.float32)
    return torch.from_numpy(values).to(dtype).requires_grad_()


def zipped(x: Any) -> Any:
    return xl.interleave(x, axis=1)


def leaves(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [made]


def energy(op: Op, x: Any) -> Any:
    return sum((k + 1) * (y**3).sum() for k, y in enumerate(leaves(op(x))))


def recorded(y: Any) -> str:
    """What autograd will do first in the backward pass."""
    return type(leaves(y)[0].grad_fn).__name__


# -- where it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPS)
def test_values_and_gradients_are_those_of_plain_ops(name: str) -> None:
    op, x, plain = OPS[name], leaf(), leaf()
    assert recorded(op(x)) == OPERATION
    energy(op, x).backward()
    with xl.native(False):
        assert recorded(op(plain)) != OPERATION
        energy(op, plain).backward()
        for y, z in zip(leaves(op(x)), leaves(op(plain)), strict=True):
            assert torch.equal(y, z)
    assert torch.equal(x.grad, plain.grad)


def test_the_kernel_runs_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    ran, run = [], xlayout_native.run
    monkeypatch.setattr(xlayout_native, "run", lambda *given: (ran.append(given), run(*given))[1])
    x = leaf()
    y = xl.interleave(x, axis=1)
    assert len(ran) == 1
    y.backward(torch.ones_like(y))
    assert len(ran) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_of_other_dtypes(dtype: Any) -> None:
    x = leaf(dtype)
    y = xl.matrix_transpose(x)
    assert recorded(y) == OPERATION
    assert torch.equal(y, x.T)
    (back,) = torch.autograd.grad(y, x, y)
    assert torch.equal(back, x)


def test_derivatives_of_higher_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xlayout.lower.recipe._SMALL", 0)
    monkeypatch.setattr(autograd, "FROM", 0)
    layout = xl.regroup.layout((12, 5), sizes=(2, 4, 6), groups=2)
    x = leaf(torch.float64, (12, 5))
    assert recorded(layout(x)) == OPERATION
    assert torch.autograd.gradcheck(lambda x: layout(x) ** 3, x)
    assert torch.autograd.gradgradcheck(lambda x: layout(x) ** 3, x)
    rows = torch.autograd.functional.jacobian(layout, x, vectorize=True)
    assert torch.equal(rows, torch.autograd.functional.jacobian(layout, x))


def test_many_gradients_at_once() -> None:
    x = leaf()
    q, k, v = xl.split_qkv(x, heads=4, kv_heads=4)
    ones = torch.randn(3, *k.shape)
    (back,) = torch.autograd.grad([k], [x], [ones], is_grads_batched=True)
    for one, found in zip(ones, back, strict=True):
        assert torch.equal(
            xl.fuse_qkv(0 * q.detach(), one, 0 * v.detach(), heads=4, kv_heads=4), found
        )


@pytest.mark.parametrize("name", OPS)
def test_a_transform_of_what_was_recorded_outside_of_it(name: str) -> None:
    x = leaf()
    made = torch.cat([y.reshape(-1) for y in leaves(OPS[name](x))])
    numbers = torch.arange(1, x.numel() + 1).reshape(SHAPE)  # and holes are 0
    order = torch.cat([y.reshape(-1) for y in leaves(OPS[name](numbers))])

    def back(cotangent: Any) -> Any:
        keep = {"retain_graph": True, "create_graph": True}
        return torch.autograd.grad(made, x, cotangent, **keep)[0].reshape(-1)

    def wanted(cotangent: Any) -> Any:
        return torch.zeros(1 + x.numel()).index_add(0, order, cotangent)[1:]

    one, other = torch.randn(2, made.numel())
    both = torch.func.vmap(back)(torch.stack([one, other]))
    assert torch.equal(both, torch.stack([wanted(one), wanted(other)]))
    value, tangent = torch.func.jvp(back, (one,), (other,))
    assert torch.equal(value, wanted(one))
    assert torch.equal(tangent, wanted(other))
    slope = torch.func.grad(lambda c: (back(c * c) * wanted(other)).sum())
    beside_holes = torch.cat([torch.zeros(1), wanted(other)])
    assert torch.equal(slope(one), 2 * one * beside_holes[order])


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_of_several_arrays_may_ask_for_a_gradient(which: int) -> None:
    given = [torch.randn(n, 512) for n in (512, 128, 128)]
    x = given[which].requires_grad_()
    y = xl.fuse_qkv(*given, heads=8, kv_heads=2)
    assert recorded(y) == OPERATION
    cotangents = xl.split_qkv(y.detach() ** 2, heads=8, kv_heads=2)
    (back,) = torch.autograd.grad(y, x, y.detach() ** 2)
    assert torch.equal(back, cotangents[which])


def test_under_checkpointing_hooks_and_a_leaf_that_is_a_parameter() -> None:
    weight = torch.nn.Parameter(leaf().detach())
    seen = []
    weight.register_hook(lambda grad: seen.append(grad.shape))
    y = checkpoint(lambda w: xl.interleave(w, axis=1) ** 2, weight, use_reentrant=False)
    y.sum().backward()
    assert torch.equal(weight.grad, 2 * weight)
    assert seen == [SHAPE]


def scaled(x: Any) -> Callable[[Any], Any]:
    return lambda y: (zipped(x) * y).sum()


def squares(x: Any) -> Any:
    return (zipped(x) ** 2).sum()


TRANSFORMS: dict[str, tuple[float, Callable[[Any], Any]]] = {
    "grad of another": (1, lambda x: torch.func.grad(scaled(x))(torch.ones(SHAPE)).sum()),
    "jvp of another": (
        3,
        lambda x: torch.func.jvp(scaled(x), (torch.zeros(SHAPE),), (torch.full(SHAPE, 3.0),))[1],
    ),
    "vmap of another": (2, lambda x: torch.vmap(scaled(x))(torch.ones(2, *SHAPE)).sum()),
    "grad": (2, lambda x: torch.func.grad(squares)(x).sum()),
    "vmap of grad": (4, lambda x: torch.vmap(torch.func.grad(squares))(torch.stack([x, x])).sum()),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_within_what_autograd_records(name: str) -> None:
    """Its own tensors take plain ops; one of the program around it, a constant there, need not."""
    wanted, function = TRANSFORMS[name]
    x = leaf()
    function(x).backward()
    assert torch.equal(x.grad, torch.full(SHAPE, wanted, dtype=x.dtype))


def test_a_result_may_be_written_into() -> None:
    x = leaf()
    for op in (OPS["transpose"], OPS["split qkv"]):
        for y in leaves(op(x)):
            y.mul_(2)
            (back,) = torch.autograd.grad(y.sum(), x)
            assert back.max() == 2


# -- where it is not -------------------------------------------------------------------------------


def off() -> Any:
    with xl.native(False):
        return zipped(leaf())


def dispatched() -> Any:
    with Dispatch():
        return zipped(leaf())


def dual() -> Any:
    with forward_ad.dual_level():
        return zipped(leaf())


SITUATIONS: dict[str, list[Callable[[], Any]]] = {
    "off": [off],
    "watched": [dispatched, dual],
    "memory": [
        lambda: zipped(TwoTensor(leaf().detach(), leaf().detach()).requires_grad_()),
        lambda: zipped(leaf().detach().T.requires_grad_()),
        lambda: zipped(torch.empty(SHAPE, device="meta", requires_grad=True)),
    ],
    "dtype": [lambda: zipped(leaf(torch.complex64))],
    "small": [lambda: zipped(leaf(shape=(128, 256)))],
}


def test_every_gate_has_a_situation() -> None:
    assert {*SITUATIONS, "absent"} == autograd.GATES.keys()


CASES = [(name, situation) for name, found in SITUATIONS.items() for situation in found]


@pytest.mark.parametrize("situation", [situation for _, situation in CASES])
def test_a_gate_leaves_it_to_plain_ops(situation: Callable[[], Any]) -> None:
    assert recorded(situation()) != OPERATION


@pytest.mark.parametrize(("name", "situation"), CASES)
def test_and_no_other_gate_does(
    name: str, situation: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(autograd.GATES, name)
    try:
        found = recorded(situation())
    except (RuntimeError, NotImplementedError) as error:  # what does not belong there brings about
        found = str(error)
    assert found == OPERATION or "relayout" in found


def test_layouts_that_are_not_linear_are_plain() -> None:
    assert recorded(xl.pad(leaf(), to=800, value=1)) != OPERATION
    twice = Layout((SHAPE,), ((2, *SHAPE),), (Piece(0, 0, ((2, 0, 196608), (196608, 1, 1))),))
    x = leaf()
    made = twice(x)
    assert recorded(made) != OPERATION
    made.sum().backward()
    assert (x.grad == 2).all()


def test_very_many_pieces_are_plain() -> None:
    assert recorded(xl.stack([leaf(shape=(64, 32))] * 257, axis=2)) != OPERATION


def test_without_autograd_there_is_no_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd, "linear", None)  # not to be called
    with torch.no_grad():
        assert zipped(leaf()).grad_fn is None
    assert zipped(leaf().detach()).grad_fn is None
