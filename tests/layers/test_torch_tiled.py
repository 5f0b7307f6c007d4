"""TiledLinear is the dense layer: its outputs, gradients and initial values, module by module."""

from __future__ import annotations

import gc
import pickle
import weakref
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import linear

import xlayout as xl
from tests.layers.whole import dense, whole
from xlayout.torch import TiledLinear, TiledLinearReturnBias

pytestmark = pytest.mark.usefixtures("no_graph_of_another_test")


@st.composite
def layers(draw: st.DrawFn) -> tuple[nn.Linear, TiledLinear]:
    """A dense layer, and a tiled one with the same parameters."""
    sizes = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    of = dense(*sizes, bias=draw(st.booleans()))
    into, out = (draw(st.integers(1, n)) for n in sizes)
    tiled = TiledLinear(*sizes, of.bias is not None, into, out, init_linear=of, dtype=torch.float64)
    return of, tiled


@given(both=layers(), batch=st.sampled_from([(), (2,), (2, 3), (0,)]), apart=st.booleans())
def test_outputs_and_gradients_are_the_dense_layer_s(
    both: tuple[nn.Linear, TiledLinear], batch: tuple[int, ...], apart: bool
) -> None:
    of, tiled = both
    x = whole(*batch, of.in_features).requires_grad_()
    parts = x.split(list(xl.partition(of.in_features, tiled.in_splits)), -1)
    y, wanted = tiled(list(parts) if apart else x), of(x)
    assert torch.equal(y, wanted)
    cotangent = whole(*y.shape)
    wanted_of_x = torch.autograd.grad(wanted, [x, *of.parameters()], cotangent)
    names = [name for name, _ in of.named_parameters()]
    found = torch.autograd.grad(y, [x, *tiled.parameters()], cotangent)
    assert torch.equal(found[0], wanted_of_x[0])
    grads = TiledLinear(
        of.in_features, of.out_features, of.bias is not None, tiled.in_splits, tiled.out_splits,
        dtype=torch.float64,
    )  # fmt: skip
    grads.load_state_dict(dict(zip(dict(tiled.named_parameters()), found[1:], strict=True)))
    for name, grad in zip(names, wanted_of_x[1:], strict=True):
        assert torch.equal(getattr(grads.to_linear(), name), grad)


@given(both=layers())
def test_back_to_dense_is_where_it_came_from(both: tuple[nn.Linear, TiledLinear]) -> None:
    of, tiled = both
    back = tiled.to_linear()
    assert type(back) is nn.Linear
    assert repr(back) == repr(of)
    assert back.state_dict().keys() == of.state_dict().keys()
    assert all(torch.equal(back.state_dict()[k], v) for k, v in of.state_dict().items())


def test_back_to_dense_keeps_dtype_device_mode_and_what_is_frozen() -> None:
    tiled = TiledLinear(6, 4, in_splits=2, device="meta", dtype=torch.bfloat16).eval()
    tiled.linears.requires_grad_(False)
    back = tiled.to_linear()
    for held in (back.weight, back.bias):
        assert (held.device.type, held.dtype, held.requires_grad) == (
            "meta", torch.bfloat16, False,
        )  # fmt: skip
    assert not back.training
    for frozen in ("weight", "bias"):
        for name, parameter in tiled.named_parameters():
            parameter.requires_grad_(not name.endswith(frozen))
        back = tiled.to_linear()
        assert [p.requires_grad for p in (back.weight, back.bias)] == [
            frozen != "weight", frozen != "bias",
        ]  # fmt: skip
    assert TiledLinear(6, 4, bias=False).to_linear().bias is None


@pytest.mark.parametrize("trained", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("held", ["weight", "bias"])
def test_back_to_dense_trains_what_any_tile_does(held: str, trained: tuple[int, int]) -> None:
    row, column = trained
    tiled = TiledLinear(6, 4, in_splits=2, out_splits=2).requires_grad_(False)
    tile: Any = tiled.linears[row][column if held == "weight" else 1]  # type: ignore[index]
    getattr(tile, held).requires_grad_(True)
    back = {name: p.requires_grad for name, p in tiled.to_linear().named_parameters()}
    assert back == {"weight": held == "weight", "bias": held == "bias"}


@pytest.mark.parametrize(("returned", "kept"), [((1.0, 2.0), 2.0), ((1.0, None), 1.0)])
def test_of_the_biases_of_a_row_the_last_is_returned(returned: Any, kept: float) -> None:
    biases = iter(returned)

    class Apart(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return super().forward(x), next(biases)

    layer = TiledLinearReturnBias(6, 4, in_splits=2, linear_cls=Apart)
    assert layer(torch.ones(6))[1] == kept


def test_an_input_is_not_split_for_one_column() -> None:
    class Whole(TiledLinear):
        def _split_global_input(self, input: Any, split_sizes: Any) -> Any:  # noqa: A002 -- DeepSpeed's name
            raise AssertionError((input, split_sizes))

    assert Whole(6, 4, out_splits=2)(torch.ones(6)).shape == (4,)


def test_a_tile_of_a_class_of_one_s_own_is_given_what_there_is() -> None:
    """A class of one's own says itself what it takes."""

    class Twice(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(torch.cat([x, x], -1))

    assert TiledLinear(8, 4, in_splits=2, linear_cls=Twice)(torch.ones(4)).shape == (4,)


def test_a_copy_shares_no_memory() -> None:
    of = dense(6, 4)
    tiled = TiledLinear(6, 4, in_splits=2, init_linear=of, dtype=torch.float64)
    back, before = tiled.to_linear(), of.weight.detach().clone()
    with torch.no_grad():
        for parameter in (*tiled.parameters(), *back.parameters()):
            parameter.zero_()
    assert torch.equal(of.weight, before)


def test_names_and_edges() -> None:
    tiled = TiledLinear(10, 7, in_splits=4, out_splits=2)
    assert (tiled.in_parts, tiled.out_parts) == ([0, 3, 6, 8, 10], [0, 4, 7])
    weights = [f"linears.{o}.{i}.weight" for o in range(2) for i in range(4)]
    biases = ["linears.0.3.bias", "linears.1.3.bias"]
    assert sorted(tiled.state_dict()) == sorted(weights + biases)
    assert "bias=True, in_splits=4, out_splits=2" in repr(tiled)


def test_tiles_are_drawn_as_parts_of_one_layer() -> None:
    torch.manual_seed(0)
    tiled = TiledLinear(400, 300, in_splits=7, out_splits=3).to_linear()
    bound = 400**-0.5
    for held in (tiled.weight, tiled.bias):
        assert held.abs().max() <= bound
        assert held.abs().max() > 0.95 * bound
    assert abs(tiled.weight.std() / (bound / 3**0.5) - 1) < 0.02


@pytest.mark.parametrize("copied", [False, True])
def test_tiles_that_are_reset_one_by_one_are_drawn_as_parts_of_one_layer(copied: bool) -> None:
    """As a model made on the meta device is; a copy draws its own."""
    with torch.device("meta"):
        tiled = TiledLinear(400, 300, in_splits=8, out_splits=3)
    tiled.to_empty(device="cpu")
    layer = pickle.loads(pickle.dumps(deepcopy(tiled))) if copied else tiled
    for module in (m for root in (tiled, layer) for m in root.modules()):
        if isinstance(module, nn.Linear):
            module.reset_parameters()
    found, before = layer.to_linear(), tiled.to_linear()
    for held in (found.weight, found.bias):
        assert 0.95 * 400**-0.5 < held.abs().max() <= 400**-0.5
    assert torch.equal(found.weight, before.weight) != copied


def test_a_tiled_layer_goes_when_nobody_holds_it() -> None:
    tiled = TiledLinear(6, 4, in_splits=2)
    gc.disable()
    try:
        held = weakref.ref(tiled.linears[0][0])  # type: ignore[index]
        del tiled
        assert held() is None
    finally:
        gc.enable()


def test_tiles_of_another_class_stay_as_it_draws_them() -> None:
    class Ones(nn.Linear):
        def reset_parameters(self) -> None:
            nn.init.ones_(self.weight)

    tiled = TiledLinear(6, 4, bias=False, in_splits=3, linear_cls=Ones)
    assert torch.equal(tiled.to_linear().weight, torch.ones(4, 6))


def test_every_tile_is_called_as_a_module_in_order() -> None:
    tiled, called = TiledLinear(6, 4, in_splits=2, out_splits=2), []
    for name, module in tiled.named_modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(
                lambda _m, args, n=name: called.append((n, args[0].shape[-1]))
            )
    tiled(torch.ones(6))
    assert called == [(f"linears.{o}.{i}", 3) for o in range(2) for i in range(2)]


def test_outputs_stay_apart_where_asked() -> None:
    of = dense(6, 5)
    tiled = TiledLinear(6, 5, out_splits=2, combine_out_splits=False, init_linear=of,
                        dtype=torch.float64)  # fmt: skip
    after = TiledLinear(5, 3, in_splits=2, input_is_already_split=True, dtype=torch.float64)
    after.copy_params_from(dense(5, 3))
    parts = tiled(whole(2, 6))
    assert [tuple(part.shape) for part in parts] == [(2, 3), (2, 2)]
    assert torch.equal(after(parts), after.to_linear()(of(whole(2, 6))))


def test_one_part_may_come_as_a_list() -> None:
    of = dense(6, 5)
    for already in (True, False):
        tiled = TiledLinear(6, 5, input_is_already_split=already, init_linear=of,
                            dtype=torch.float64)  # fmt: skip
        for x in (whole(2, 6), [whole(2, 6)], (whole(2, 6),)):
            assert torch.equal(tiled(x), of(whole(2, 6)))


class Shard(nn.Linear):
    """A tile that holds half of its columns, like a row-parallel layer of Megatron-LM."""

    def __init__(self, into: int, out: int, **options: Any) -> None:
        super().__init__(into // 2, out, **options)


def test_an_input_that_is_a_shard_is_cut_as_evenly() -> None:
    tiled = TiledLinear(12, 4, bias=False, in_splits=3, linear_cls=Shard)
    row = [tile.weight for tile in tiled.linears[0]]
    assert torch.allclose(tiled(torch.arange(6.0)), linear(torch.arange(6.0), torch.cat(row, 1)))


def test_a_tile_whose_hooks_widen_its_input_is_given_what_there_is() -> None:
    tiled = TiledLinear(12, 4, in_splits=3, init_linear=dense(12, 4), dtype=torch.float64)
    for tile in tiled.linears[0]:  # stands in for tensor parallelism
        tile.register_forward_pre_hook(lambda _, args: (torch.cat([args[0]] * 2, -1),))
    parts = whole(2, 6).split(2, -1)
    full = torch.cat([part for part in parts for _ in range(2)], -1)
    for x in (whole(2, 6), parts):
        assert torch.equal(tiled(x), dense(12, 4)(full))


def test_biases_that_tiles_return_are_joined_and_not_added() -> None:
    class Apart(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return linear(x, self.weight), self.bias

    of = dense(6, 5)
    options: dict[str, Any] = {"linear_cls": Apart, "in_splits": 2, "out_splits": 2}
    tiled = TiledLinearReturnBias(6, 5, init_linear=of, dtype=torch.float64, **options)
    y, bias = tiled(whole(2, 6))
    assert torch.equal(y, linear(whole(2, 6), of.weight))
    assert torch.equal(bias, of.bias)
    tiled.combine_out_splits = False
    assert [tuple(b.shape) for _, b in tiled(whole(2, 6))] == [(3,), (2,)]
    assert TiledLinearReturnBias(6, 5, bias=False, **options)(torch.ones(6))[1] is None
    with pytest.raises(TypeError, match=r"linears\[0\]\[0\]: it returned a torch.Tensor; wanted"):
        TiledLinearReturnBias(6, 5)(torch.ones(6))


@pytest.mark.parametrize("dynamic", [False, True])
def test_it_is_one_graph(dynamic: bool) -> None:
    of = dense(6, 5)
    tiled = TiledLinear(6, 5, in_splits=4, out_splits=2, init_linear=of, dtype=torch.float64)
    run = torch.compile(tiled, fullgraph=True, backend="eager", dynamic=dynamic)
    for rows in (4, 3, 2):
        assert torch.equal(run(whole(rows, 6)), of(whole(rows, 6)))
    shard = TiledLinear(12, 4, in_splits=3, linear_cls=Shard)
    run = torch.compile(shard, fullgraph=True, backend="eager", dynamic=dynamic)
    assert torch.equal(run(torch.ones(2, 6)), shard(torch.ones(2, 6)))


def test_it_is_a_function_of_its_parameters() -> None:
    of = dense(6, 5)
    tiled = TiledLinear(6, 5, in_splits=4, init_linear=of, dtype=torch.float64)
    zeros = {name: torch.zeros_like(p) for name, p in tiled.named_parameters()}
    assert not torch.func.functional_call(tiled, zeros, whole(2, 6)).any()
    assert torch.equal(torch.vmap(tiled)(whole(4, 2, 6)), of(whole(4, 2, 6)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert tiled.float()(whole(2, 6).float()).dtype == torch.bfloat16
