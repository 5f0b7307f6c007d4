"""What a transform does not wrap is a constant to it; a trace holds however arrays lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import xlayout as xl
from tests.table import UNCUT

torch = pytest.importorskip("torch")

Op = Callable[[Any], Any]

OPS: dict[str, Op] = {
    "matrix_transpose": xl.matrix_transpose,
    "interleave": xl.interleave,
    "stack": lambda x: xl.stack([x, x]),
    "split_qkv": lambda x: xl.split_qkv(x, heads=2, kv_heads=1)[0],
    "unstack": lambda x: xl.unstack(x)[1],
    "regroup": lambda x: xl.regroup(x, sizes=(len(x) // 4, len(x) // 4, len(x) // 2), groups=2),
    "of a view": lambda x: xl.rearrange(x.t(), "a b -> a b"),
    "pad": lambda x: xl.pad(x, to=len(x) + 4, value=2.5),
    "trim": lambda x: xl.trim(x, to=len(x) // 2),
    "a layout": lambda x: xl.matrix_transpose.layout(x.shape)(x),
}

TRANSFORMS: dict[str, Callable[[Op, Any, Any], Any]] = {
    "functionalize": lambda op, x, y: torch.func.functionalize(lambda y: op(x) + y)(0 * y),
    "grad": lambda op, x, y: torch.func.grad(lambda y: (op(x) * y).sum())(y),
    "vjp": lambda op, x, y: torch.func.vjp(lambda y: op(x) * y, y)[1](torch.ones_like(y))[0],
    "jvp": lambda op, x, y: torch.func.jvp(lambda y: op(x) * y, (y,), (torch.ones_like(y),))[1],
    "vmap": lambda op, x, y: torch.vmap(lambda y: op(x) + y)(0 * torch.stack([y, y]))[1],
    "vmap of grad": lambda op, x, y: torch.vmap(torch.func.grad(lambda y: (op(x) * y).sum()))(
        torch.stack([y, y])
    )[1],
}

SIDES = (8, 64, 256, 1024)  # by one call, by torch's few, by the kernel


# Of what torch itself imports, and of torch 2.14 as a FutureWarning.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.torch.jit")
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", OPS)
def test_ops_on_constants_of_a_transform(name: str, transform: str, side: int) -> None:
    op, x = OPS[name], torch.randn(side, side)
    wanted = op(x)
    assert torch.equal(TRANSFORMS[transform](op, x, torch.randn_like(wanted)), wanted)


def test_a_model_with_a_buffer_is_differentiated() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("fixed", torch.randn(64, 64))
            self.weight = torch.nn.Parameter(torch.randn(64, 64))

        def forward(self, x: Any) -> Any:
            return (x @ xl.matrix_transpose(self.fixed) @ self.weight).sum()

    model, x = Model(), torch.randn(64, 64)
    parameters = dict(model.named_parameters())
    found = torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)))(parameters)
    (wanted,) = torch.autograd.grad(model(x), model.weight)
    torch.testing.assert_close(found["weight"], wanted)


COPIES: dict[str, Op] = OPS | {
    "view, transposed": lambda x: xl.matrix_transpose(x, copy=None) + 0,
    "views": lambda x: xl.unstack(x, copy=None)[1] + 0,
}


@pytest.mark.filterwarnings("ignore")  # of a module that torch would rather not have
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", COPIES)
def test_a_trace_holds_however_arrays_lie(name: str, side: int) -> None:
    op = COPIES[name]
    traced = torch.jit.trace(op, torch.randn(side, side), check_trace=False)
    for x in (
        torch.randn(side + 1, side)[1:],
        torch.randn(side, side).t(),
        torch.randn(side, 2 * side)[:, ::2],
    ):
        assert torch.equal(traced(x), op(x))


FRESH: list[Op] = [
    lambda x: xl.permute_dims(x, (0, 1)),
    lambda x: xl.trim(x, to=2),
    lambda x: xl.unstack(x)[1],
    lambda x: xl.Layout.identity((4, 6))(x),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", FRESH)
def test_what_a_trace_returns_may_be_written_into(op: Op) -> None:
    x = torch.ones(4, 6)
    traced = torch.jit.trace(op, x, check_trace=False)
    traced(x).zero_()
    assert x.all()


@pytest.mark.filterwarnings("ignore")
def test_several_arrays_are_traced() -> None:
    traced = torch.jit.trace(lambda x, y: xl.stack([x, y]), (torch.ones(4, 4), torch.zeros(4, 4)))
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    assert torch.equal(traced(x, y), torch.stack([x, y]))


EMPTY: list[tuple[Callable[..., Any], list[tuple[int, ...]], tuple[int, ...]]] = [
    (lambda a, b: xl.stack([a, b]), [(0,), (0,)], (2, 0)),
    (lambda a, b: xl.rearrange([a, b], "a, b -> (a + b)"), [(0,), (0,)], (0,)),
    (lambda a, b: xl.rearrange([a, b], "a, b -> (a + b)"), [(0,), (3,)], (3,)),
    (lambda a, b: xl.rearrange([a, b], "a c, b c -> (b + a) c"), [(3, 2), (0, 2)], (3, 2)),
]


@pytest.mark.parametrize(("call", "shapes", "wanted"), EMPTY)
@pytest.mark.parametrize("mapped", [(0, None), (None, 0), (0, 0)])
def test_a_map_over_what_is_empty_reaches_the_result(
    call: Callable[..., Any],
    shapes: list[tuple[int, ...]],
    wanted: tuple[int, ...],
    mapped: tuple[int | None, int | None],
) -> None:
    several = [
        torch.ones(shape if axis is None else (5, *shape))
        for shape, axis in zip(shapes, mapped, strict=True)
    ]
    assert torch.vmap(call, mapped, out_dims=-1)(*several).shape == (*wanted, 5)


def test_a_map_over_nothing_reaches_a_gather() -> None:
    for n in (0, 1, 2):
        xs = torch.randn(n, 42)
        assert torch.equal(torch.vmap(UNCUT)(xs), xs[:, torch.from_numpy(UNCUT.index())])
