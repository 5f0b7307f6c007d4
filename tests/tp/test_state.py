"""Weights are cut as other systems cut them, and put together again bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frameworks import Framework
from tests.golden import Case, cases
from tests.tp.block import planned, weights
from xlayout.errors import LayoutError, ShapeError, SizeError
from xlayout.tp import Rule, merge, plan, shard


@pytest.mark.parametrize("parts", [1, 4, 5, 12])
def test_shards_put_together_are_the_whole(backend: Framework, parts: int) -> None:
    x = weights()
    made = planned(x, parts)
    given = {name: backend.array(a) for name, a in x.items()}
    shards = [shard(given, made, rank) for rank in range(parts)]
    for rank, part in enumerate(shards):
        for name, local in part.items():
            assert local.shape == made.local_shape(name, rank)
    merged = merge(shards, made)
    assert list(merged) == list(x)
    for name, a in x.items():
        np.testing.assert_array_equal(backend.numpy(merged[name]), a)


def test_fused_weights_are_cut_as_the_parts_of_them_would_be() -> None:
    """The oracle is slicing by hand: 6 key-value heads on 4 ranks are 2, 2, 1 and 1."""
    x = weights()
    made = planned(x, 4)
    q, k, v = np.split(x["self_attn.qkv_proj.weight"], [24, 36])
    gate, up = np.split(x["mlp.gate_up_proj.weight"], 2)
    edges, halves = [0, 2, 4, 5, 6], [0, 3, 6, 8, 10]
    for rank in range(4):
        a, b = edges[rank : rank + 2]
        c, d = halves[rank : rank + 2]
        part = shard(x, made, rank)
        heads = q[4 * a : 4 * b], k[2 * a : 2 * b], v[2 * a : 2 * b]
        np.testing.assert_array_equal(part["self_attn.qkv_proj.weight"], np.concatenate(heads))
        both = np.concatenate([gate[c:d], up[c:d]])
        np.testing.assert_array_equal(part["mlp.gate_up_proj.weight"], both)
        down = x["mlp.down_proj.weight"][:, c:d]
        np.testing.assert_array_equal(part["mlp.down_proj.weight"], down)
        out = x["self_attn.o_proj.weight"][:, 4 * a : 4 * b]
        np.testing.assert_array_equal(part["self_attn.o_proj.weight"], out)
        np.testing.assert_array_equal(part["self_attn.o_proj.bias"], x["self_attn.o_proj.bias"])


def test_more_ranks_than_key_value_heads_have_copies() -> None:
    x = weights()
    made = planned(x, 12)
    _, k, v = np.split(x["self_attn.qkv_proj.weight"], [24, 36])
    for rank in range(12):
        part = shard(x, made, rank)["self_attn.qkv_proj.weight"]
        own = rank // 2
        np.testing.assert_array_equal(part[2:4], k[2 * own : 2 * own + 2])
        np.testing.assert_array_equal(part[4:], v[2 * own : 2 * own + 2])


SLICING = json.loads(Path(__file__).with_name("tensor_slicing.json").read_text("utf-8"))["cases"]


def array(given: Any) -> np.ndarray:
    return np.array(given["data"], np.float32).reshape(given["shape"])


@pytest.mark.parametrize(
    "case",
    [
        c
        for c in SLICING
        if isinstance(c.get("expected"), list) and not c["id"].startswith("conv1d")
    ],
    ids=lambda c: c["id"],
)
def test_slices_are_as_recorded(case: dict[str, Any]) -> None:
    """Kernels there are (in, out), int8 ones (out, in); the one axis that differs is the cut."""
    x, p = array(case["inputs"]["src"]), case["params"]
    axis = next(k for k, (n, m) in enumerate(zip(x.shape, p["dst_shape"], strict=True)) if n != m)
    features = " + ".join(["plain"] * p.get("num_splits", 1))
    column = axis == x.ndim - 1 if not p.get("int8") else axis == 0
    stored = "out_in" if p.get("int8") else "in_out"
    rule = Rule("w", "column" if column else "row", features, stored=stored)
    made = plan({"w.weight": x}, len(case["expected"]), rules=[rule])
    for rank, expected in enumerate(case["expected"]):
        np.testing.assert_array_equal(
            shard({"w.weight": x}, made, rank)["w.weight"], array(expected)
        )


def test_uneven_slices_start_where_the_one_before_ends() -> None:
    """For parts of 3, 3 and 2, the original takes elements 4 and 5 as the last one."""
    (case,) = (c for c in SLICING if c["id"] == "copy/uneven_wrong_offset")
    x = array(case["inputs"]["src"])
    made = plan({"w.weight": x}, 3, rules=[Rule("w", "row")])
    assert shard({"w.weight": x}, made, 2)["w.weight"].tolist() == [[6, 7]]


@pytest.mark.parametrize("case", cases("gate_up"), ids=str)
def test_packs_of_gate_and_up_are_as_recorded(case: Case) -> None:
    x = {f"mlp.gate_up_proj.{k}": a for k, a in case.inputs.items() if a is not None}
    ranks = range(case.params["mp_size"])
    made = plan(x, len(ranks), rules="phi3", grain=case.params["tp_grain_size"])
    for rank in ranks:
        own = shard(x, made, rank)
        np.testing.assert_array_equal(own["mlp.gate_up_proj.weight"], case.expected[f"rank{rank}"])
        bias = case.expected.get(f"rank{rank}_bias")
        if bias is not None:
            np.testing.assert_array_equal(own["mlp.gate_up_proj.bias"], bias)


def test_nested_dicts_stay_nested() -> None:
    x = {"model": {"layers": {0: {"mlp": {"up_proj": {"kernel": np.arange(8).reshape(2, 4)}}}}}}
    made = plan(x, 2, rules="llama")
    assert list(made) == ["model.layers.0.mlp.up_proj.kernel"]
    shards = [shard(x, made, rank) for rank in range(2)]
    own = shards[1]["model"]["layers"][0]["mlp"]["up_proj"]["kernel"]
    assert own.tolist() == [[2, 3], [6, 7]]
    whole = merge(shards, made)["model"]["layers"][0]["mlp"]["up_proj"]["kernel"]
    assert whole.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_what_is_shared_costs_nothing() -> None:
    x = {"mlp.up_proj.weight": np.arange(8).reshape(4, 2), "norm.weight": np.arange(2)}
    made = plan(x, 2, rules="llama")
    views = shard(x, made, 1, copy=None)
    assert all(np.shares_memory(views[name], x[name]) for name in x)
    assert not any(np.shares_memory(shard(x, made, 1)[name], x[name]) for name in x)
    columns = {"mlp.down_proj.weight": np.arange(8).reshape(2, 4)}
    cut = shard(columns, plan(columns, 2, rules="llama"), 1, copy=False)["mlp.down_proj.weight"]
    assert np.shares_memory(cut, columns["mlp.down_proj.weight"])


@pytest.mark.parametrize("name", ["norm.weight", "self_attn.o_proj.bias"])
def test_copies_that_differ_are_refused(backend: Framework, name: str) -> None:
    x = weights()
    made = planned(x, 3)
    shards = [shard(x, made, rank) for rank in range(3)]
    shards[2][name][0] = np.nan
    given = [{k: backend.array(a) for k, a in part.items()} for part in shards]
    with pytest.raises(ShapeError, match=rf"shards\[2\]\['{name}'\]: differs from the copy"):
        merge(given, made)
    merged = merge(given, made, check=False)
    np.testing.assert_array_equal(backend.numpy(merged[name]), x[name])
    for part in given:
        part[name] = given[2][name]
    assert np.isnan(backend.numpy(merge(given, made)[name])[0])  # NaN, but equal bits


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "int4"])
def test_copies_of_small_numbers_are_compared(kind: str) -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = {"mlp.up_proj.weight": jnp.arange(8).reshape(4, 2).astype(kind)}
    x["norm.weight"] = jnp.arange(2).astype(kind)
    made = plan(x, 2, rules="llama")
    shards = [shard(x, made, rank) for rank in range(2)]
    np.testing.assert_array_equal(merge(shards, made)["norm.weight"], x["norm.weight"])
    shards[1]["norm.weight"] = shards[1]["norm.weight"][::-1]
    with pytest.raises(ShapeError, match="differs from the copy"):
        merge(shards, made)


def test_copies_need_not_be_in_one_piece(backend: Framework) -> None:
    """Views of every other number, and of one column."""
    shapes = {"mlp.up_proj.weight": (4, 2), "norm.weight": (3,), "gain.weight": (3, 1)}
    made = plan(shapes, 2, rules="llama")
    long, wide = backend.array(np.arange(6, dtype="f4")), backend.array(np.ones((3, 4), "f4"))
    part = {
        "mlp.up_proj.weight": backend.array(np.ones((2, 2), "f4")),
        "norm.weight": long[::2],
        "gain.weight": wide[:, :1],
    }
    merged = merge([part, part], made)
    np.testing.assert_array_equal(backend.numpy(merged["norm.weight"]), [0, 2, 4])
    with pytest.raises(ShapeError, match=r"shards\[1\]\['norm.weight'\]: differs from the copy"):
        merge([part, {**part, "norm.weight": long[1::2]}], made)


def test_parameters_that_are_trained_are_put_together() -> None:
    torch = pytest.importorskip("torch")
    shapes = {"mlp.up_proj.weight": (2, 2), "norm.weight": (2,)}
    shards = [{k: torch.nn.Parameter(torch.ones(s)) for k, s in shapes.items()} for _ in range(2)]
    made = plan({**shapes, "mlp.up_proj.weight": (4, 2)}, 2, rules="llama")
    assert merge(shards, made)["norm.weight"].tolist() == [1, 1]


def test_copies_that_have_no_memory_yet_are_not_compared() -> None:
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    x = weights()
    made = planned(x, 2)
    shards = [shard(x, made, rank) for rank in range(2)]
    text = r"shards\[0\]\['self_attn.o_proj.bias'\]: cannot be compared .* check=False takes the"
    meta = [{k: torch.empty(a.shape, device="meta") for k, a in part.items()} for part in shards]
    with pytest.raises(TypeError, match=text):
        merge(meta, made)
    with pytest.raises(TypeError, match=text):
        jax.jit(lambda parts: merge(parts, made))(shards)
    assert merge(meta, made, check=False)["norm.weight"].shape == (24,)


def test_what_cannot_be_run_is_told_by_name() -> None:
    x = weights()
    made = planned(x, 2)
    shards = [shard(x, made, rank) for rank in range(2)]
    shards[1]["self_attn.o_proj.weight"] = shards[1]["self_attn.o_proj.weight"].astype("f8")
    with pytest.raises(TypeError, match=r"shards, 'self_attn.o_proj.weight': arrays: 0 is floa"):
        merge(shards, made)
    with pytest.raises(BufferError, match=r"weights\['self_attn.qkv_proj.weight'\]: copy=False"):
        shard(x, made, 0, copy=False)


def test_copies_of_keys_that_differ_are_refused() -> None:
    x = weights()
    made = planned(x, 12)
    shards = [shard(x, made, rank) for rank in range(12)]
    shards[7]["self_attn.qkv_proj.weight"][3] += 1
    with pytest.raises(ShapeError, match=r"shards\[7\]\['self_attn.qkv_proj.weight'\]: differs"):
        merge(shards, made)
    shards[7]["self_attn.qkv_proj.weight"][3] -= 1
    shards[7]["self_attn.qkv_proj.weight"][0] += 1  # a query, which only this rank has
    merge(shards, made)


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (lambda x: x.pop("norm.weight"), ShapeError, "weights: has no 'norm.weight'$"),
        (lambda x: (x.pop("norm.weight"), x.pop("embed.weight")), ShapeError,
         "weights: has no 'embed.weight' and 1 more"),
        (lambda x: x.update(other=1), ShapeError, "weights: has 'other', of which the plan knows"),
        (lambda x: x.update({"norm.weight": np.ones(3)}), ShapeError,
         r"weights\['norm.weight'\]: shape \(3,\); the plan has \(24,\) there"),
        (lambda x: x.update({"norm.weight": [1.0] * 24}), TypeError,
         r"weights\['norm.weight'\]: a list; wanted an array"),
        (lambda x: x.update({"norm": {"weight": np.ones(24)}}), LayoutError,
         "weights: 'norm.weight' is there twice, once with a dot in a key"),
    ],
)  # fmt: skip
def test_other_weights_than_planned_are_refused(
    change: Any, kind: type[Exception], text: str
) -> None:
    x = weights()
    made = planned(x, 2)
    change(x)
    with pytest.raises(kind, match=text):
        shard(x, made, 0)


def test_copies_of_objects_of_python_are_not_compared() -> None:
    x = {"norm.weight": np.array([1, None], object)}
    made = plan(x, 2, rules=[Rule("norm", "whole")])
    with pytest.raises(TypeError, match=r"norm.weight.*they are objects of Python"):
        merge([x, x], made)


def test_what_is_no_argument_is_refused() -> None:
    x = weights()
    made = planned(x, 2)
    shards = [shard(x, made, rank) for rank in range(2)]
    with pytest.raises(SizeError, match=r"rank: 2; the mesh \(tp=2\) has ranks 0 to 1"):
        shard(x, made, 2)
    with pytest.raises(TypeError, match=r"plan: a dict; wanted what xlayout\.tp\.plan returns"):
        shard(x, {}, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="weights: a list; wanted a dict of names and arrays"):
        shard([x], made, 0)
    with pytest.raises(TypeError, match="shards: a dict; wanted one dict for each rank"):
        merge(shards[0], made)
    with pytest.raises(SizeError, match="shards: 3; the plan has 2 ranks"):
        merge([*shards, shards[0]], made)
    with pytest.raises(ShapeError, match=r"shards\[1\]\['norm.weight'\]: shape \(1,\); the plan"):
        merge([shards[0], {**shards[1], "norm.weight": np.ones(1)}], made)
    with pytest.raises(TypeError, match=r"^check: 'no'; wanted True or False$"):
        merge(shards, made, check="no")  # type: ignore[arg-type]
    with pytest.raises(SizeError, match="parts: 0; wanted at least 1"):
        planned(x, 0)
    with pytest.raises(SizeError, match=r"^parts: 10,000,000; wanted at most 1,000,000$"):
        planned(x, 10**7)
    for leaf in ("x", None, 3.0):
        with pytest.raises(TypeError, match=r"weights\['a'\]: a \w+; wanted an array or its shape"):
            plan({"a": leaf}, 2, rules="llama")
