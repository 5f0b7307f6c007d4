"""A tiled layer loads a dense layer and any other grid, and reports what it cannot load."""

from __future__ import annotations

import re
from copy import deepcopy
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import xlayout as xl
from tests.layers.whole import dense, whole
from tests.ops.memory import shares
from xlayout.errors import CompositionError
from xlayout.torch import TiledLinear

FLOAT64: dict[str, Any] = {"dtype": torch.float64}


def entries(layer: nn.Linear, rows: tuple[int, ...], columns: tuple[int, ...]) -> dict[str, Any]:
    """A state dict of a tiled layer with tiles of these sizes."""
    tops, lefts = (list(pairwise(accumulate(sizes, initial=0))) for sizes in (rows, columns))
    state = {}
    for o, (top, bottom) in enumerate(tops):
        for i, (left, right) in enumerate(lefts):
            state[f"linears.{o}.{i}.weight"] = layer.weight.detach()[top:bottom, left:right]
        if layer.bias is not None:
            state[f"linears.{o}.{len(lefts) - 1}.bias"] = layer.bias.detach()[top:bottom]
    return state


def equal(tiled: TiledLinear, of: nn.Linear) -> bool:
    found, wanted = tiled.to_linear().state_dict(), of.state_dict()
    return found.keys() == wanted.keys() and all(torch.equal(found[k], wanted[k]) for k in wanted)


@st.composite
def sizes(draw: st.DrawFn, n: int) -> tuple[int, ...]:
    rule = draw(st.sampled_from(["balanced", "last", "ceil", "back"]))  # "last": once DeepSpeed's
    return xl.partition(n, draw(st.integers(1, n)), rule=rule)


@given(data=st.data(), into=st.integers(1, 9), out=st.integers(1, 9), bias=st.booleans())
@pytest.mark.parametrize("assign", [False, True])
def test_any_grid_is_cut_anew(
    assign: bool, data: st.DataObject, into: int, out: int, bias: bool
) -> None:
    of = dense(into, out, bias=bias)
    state = entries(of, data.draw(sizes(out)), data.draw(sizes(into)))
    given, names = dict(state), list(state)
    grid = data.draw(st.integers(1, into)), data.draw(st.integers(1, out))
    tiled = TiledLinear(into, out, bias, *grid, **FLOAT64)
    assert tiled.load_state_dict(state, assign=assign) == ([], [])
    assert equal(tiled, of)
    assert list(state) == names
    assert all(state[name] is given[name] for name in names)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_dense_layer_is_cut_too(bias: bool, assign: bool) -> None:
    of = dense(10, 7, bias=bias)
    tiled = TiledLinear(10, 7, bias, 4, 2, **FLOAT64)
    assert tiled.load_state_dict(of.state_dict(), assign=assign) == ([], [])
    assert equal(tiled, of)
    assert not any(
        shares(p.detach(), q.detach()) for p in tiled.parameters() for q in of.parameters()
    )


def test_round_trips_are_exact() -> None:
    first = TiledLinear(10, 7, in_splits=4, out_splits=2)
    second = TiledLinear(10, 7, in_splits=3, out_splits=5)
    third = TiledLinear(10, 7, in_splits=4, out_splits=2)
    second.load_state_dict(first.state_dict())
    third.load_state_dict(second.state_dict())
    assert all(map(torch.equal, first.parameters(), third.parameters()))


def test_within_a_model_each_layer_takes_its_own() -> None:
    def model(**options: Any) -> nn.Module:
        up = TiledLinear(6, 8, **options, **FLOAT64)
        return nn.Sequential(up, nn.ReLU(), nn.ModuleList([TiledLinear(8, 6, **FLOAT64)]))

    plain = nn.Sequential(dense(6, 8), nn.ReLU(), nn.ModuleList([dense(8, 6)]))
    tiled = model(in_splits=3, out_splits=2)
    assert tiled.load_state_dict(plain.state_dict()) == ([], [])
    assert equal(tiled[0], plain[0])
    assert equal(tiled[2][0], plain[2][0])


def test_hooks_of_others_see_what_is_loaded_before_it_is_cut() -> None:
    of, seen = dense(10, 7), []
    model = nn.Sequential(TiledLinear(10, 7, True, 4, 2, **FLOAT64))

    def renamed(_layer: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        seen.append(list(state))
        state[f"{prefix}weight"] = state.pop(f"{prefix}kernel")

    model[0].register_load_state_dict_pre_hook(renamed)
    state = {"0.kernel": of.weight, "0.bias": of.bias}
    for copy in (model, deepcopy(model), model):
        assert copy.load_state_dict(state) == ([], [])
        assert equal(copy[0], of)
    assert seen == [list(state)] * 3


def test_a_layer_on_no_device_is_assigned() -> None:
    with torch.device("meta"):
        tiled = TiledLinear(10, 7, in_splits=4, **FLOAT64)
    tiled.load_state_dict(dense(10, 7).state_dict(), assign=True)
    assert equal(tiled, dense(10, 7))


def test_the_same_grid_is_passed_on_as_it_is() -> None:
    tiled = TiledLinear(10, 7, in_splits=4, **FLOAT64)
    state = entries(dense(10, 7), (7,), (3, 3, 2, 2))
    tiled.load_state_dict(state, assign=True)
    assert tiled.linears[0][0].weight.data_ptr() == state["linears.0.0.weight"].data_ptr()


def test_more_pieces_than_a_layout_may_have_are_cut_in_two_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("xlayout.algebra.compose.MAX_PIECES", 3)
    there, here = (xl.to_tiles.layout((7, 10), grid=grid) for grid in ((3, 2), (2, 3)))
    with pytest.raises(CompositionError, match="pieces"):
        there.inverse() >> here
    tiled = TiledLinear(10, 7, in_splits=3, out_splits=2, **FLOAT64)
    tiled.load_state_dict(entries(dense(10, 7), (3, 2, 2), (5, 5)))
    assert equal(tiled, dense(10, 7))


# -- missing, unexpected and wrongly sized keys are reported as torch reports them ----------------


def told(tiled: TiledLinear, state: dict[str, Any]) -> tuple[list[str], list[str]]:
    with pytest.raises(RuntimeError, match="Error"):
        tiled.load_state_dict(state)
    missing, unexpected = tiled.load_state_dict(state, strict=False)
    return missing, unexpected


def test_a_bias_that_is_missing() -> None:
    names = ["linears.0.1.bias", "linears.1.1.bias"]
    tiled = TiledLinear(6, 4, in_splits=2, out_splits=2, **FLOAT64)
    assert told(tiled, {"weight": whole(4, 6)}) == (names, [])
    assert told(tiled, entries(dense(6, 4, bias=False), (4,), (2, 2, 2))) == (names, [])
    assert torch.equal(tiled.to_linear().weight, whole(4, 6))


def test_a_bias_that_is_not_wanted() -> None:
    tiled = TiledLinear(6, 4, bias=False, in_splits=2, out_splits=2, **FLOAT64)
    assert told(tiled, dense(6, 4).state_dict()) == ([], ["bias"])
    assert told(tiled, entries(dense(6, 4), (4,), (2, 2, 2))) == ([], ["linears.0.2.bias"])
    assert torch.equal(tiled.to_linear().weight, whole(4, 6))


def test_a_grid_with_a_gap_is_not_put_together() -> None:
    tiled = TiledLinear(6, 4, in_splits=2, **FLOAT64)
    state = entries(dense(6, 4), (4,), (3, 3))
    del state["linears.0.1.weight"]
    assert told(tiled, state) == (["linears.0.1.weight"], [])
    other = entries(dense(6, 4), (2, 2), (3, 3))
    del other["linears.0.1.weight"]
    with pytest.raises(RuntimeError, match=r"size mismatch for linears\.0\.0\.weight"):
        tiled.load_state_dict(other)


def test_a_dense_weight_beside_tiles_is_unexpected() -> None:
    tiled = TiledLinear(6, 4, in_splits=2, **FLOAT64)
    state = entries(dense(6, 4), (2, 2), (6,))
    assert told(tiled, {**state, "weight": whole(4, 6)}) == ([], ["weight"])
    assert equal(tiled, dense(6, 4))


@pytest.mark.parametrize("number", ["00", "٠", "9" * 9, "9" * 5000, "-1", "x"])
def test_odd_numbers_name_no_tile(number: str) -> None:
    tiled = TiledLinear(6, 4, in_splits=2, **FLOAT64)
    odd = f"linears.{number}.0.weight"
    state = entries(dense(6, 4), (4,), (3, 3))
    assert told(tiled, {**state, odd: whole(4, 3)}) == ([], [odd])
    assert equal(tiled, dense(6, 4))


def test_anything_else_is_unexpected() -> None:
    tiled = TiledLinear(6, 4, in_splits=2, **FLOAT64)
    state = entries(dense(6, 4), (2, 2), (6,))
    more = {"scale": whole(1), "linears.1.0.scale": whole(1)}
    assert set(told(tiled, {**state, **more})[1]) == set(more)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"weight": whole(5, 6)}, r"size mismatch for weight: the checkpoint has shape \(5, 6\), "
                                  r"the layer \(4, 6\)"),
        (entries(dense(5, 4), (4,), (3, 2)), r"size mismatch for linears: the checkpoint has "
                                             r"shape \(4, 5\), the layer \(4, 6\)"),
        ({"weight": whole(4, 6), "bias": whole(5)}, r"size mismatch for bias: the checkpoint has "
                                                    r"shape \(5,\), the layer \(4,\)"),
        ({"weight": whole(24)}, r"mismatch for weight: the checkpoint has shape \(24,\)"),
        ({"weight": 3}, r"mismatch for weight: the checkpoint has shape \(\)"),
        ({"linears.0.0.weight": whole(4, 3), "linears.0.1.weight": whole(3, 3)},
         r"linears: tiles\[0\]\[1\]: shape \(3, 3\); its row and column want \(4, 3\)"),
        ({"linears.0.0.weight": whole(4, 2), "linears.0.1.weight": whole(4, 4).float()},
         "linears: arrays: 0 is torch.float64 on cpu, 1 is torch.float32 on cpu"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("strict", [True, False])
def test_sizes_that_differ_are_told(strict: bool, state: dict[str, Any], text: str) -> None:
    tiled = TiledLinear(6, 4, in_splits=2, **FLOAT64)
    with pytest.raises(RuntimeError, match=text):
        tiled.load_state_dict(state, strict=strict)


def refused(layer: nn.Module, state: dict[str, Any]) -> list[str]:
    """What is said of single entries, beside one that is unexpected."""
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"x"') as error:
        nn.Sequential(layer).load_state_dict({**state, "x": 1})
    return re.findall("While .*", str(error.value))


def test_entries_that_are_no_tensors_are_told_in_the_words_of_torch() -> None:
    arrays = {name: x.numpy() for name, x in dense(6, 4).state_dict(prefix="0.").items()}
    plain = refused(nn.Linear(6, 4), arrays)
    assert len(plain) == 2
    assert refused(TiledLinear(6, 4, in_splits=2), arrays) == plain


def test_each_tile_that_is_no_tensor_is_told() -> None:
    tiles = {f"0.linears.0.{i}.weight": np.ones((4, 2)) for i in range(3)}
    tiles["0.linears.0.1.weight"] = torch.ones(4, 2)
    told = refused(TiledLinear(6, 4, in_splits=2), tiles)
    names = ["0.linears.0.0.weight", "0.linears.0.2.weight"]
    assert sorted(line.split('"')[1] for line in told) == names


def test_a_layer_that_holds_parts_of_its_tiles_is_not_cut() -> None:
    """The rows in a shard of a dense layer are not those in the shards of its tiles."""

    class Half(nn.Linear):
        def __init__(self, into: int, out: int, **options: Any) -> None:
            super().__init__(into, out // 2, **options)

    tiled = TiledLinear(6, 8, bias=False, out_splits=2, linear_cls=Half)
    missing, unexpected = told(tiled, {"weight": torch.ones(4, 6)})
    assert (missing, unexpected) == (["linears.0.0.weight", "linears.1.0.weight"], ["weight"])


def test_layers_side_by_side_are_cut_each_by_itself() -> None:
    """Loaders of whole models, as DeepSpeed's, show a layer the entries of all others too."""
    dense = nn.ModuleDict({name: nn.Linear(6, 4) for name in "ab"})
    model = nn.ModuleDict(
        {"a": TiledLinear(6, 4, in_splits=3), "b": TiledLinear(6, 4, out_splits=2)}
    )
    other = TiledLinear(6, 4, in_splits=2, init_linear=dense["b"])  # type: ignore[arg-type]
    state = {**dense["a"].state_dict(prefix="a."), **other.state_dict(prefix="b.")}
    errors: list[str] = []
    for name, module in model.named_modules():
        if name:
            module._load_from_state_dict(state, f"{name}.", {}, True, [], [], errors)
    assert errors == []
    for name, layer in model.items():
        assert torch.equal(layer.to_linear().weight, dense[name].weight)  # type: ignore[operator]
