"""Arguments about sharding: by position or by name, in short forms, and refused by name too."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any, get_args

import jax
import numpy as np
import pytest
import torch
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
import xlayout.jax
from xlayout.lower.calls import Comm
from xlayout.shard import Mesh, Sharding, Split, plan_reshard

TP = Mesh(4, "tp")
ROWS, WHOLE = Sharding(TP, ("tp",)), Sharding(TP, ())
EIGHT = xl.Layout.identity((8,))


def eight() -> jax.Array:
    on = NamedSharding(jax.make_mesh((4,), ("tp",), devices=jax.devices()[:4]), P("tp"))
    x: jax.Array = jax.device_put(np.arange(8.0, dtype=np.float32), on)
    return x


def test_messages_are_triples_whose_parts_have_names() -> None:
    plan = plan_reshard(EIGHT, ROWS, WHOLE)
    assert [(src, dst) for src, dst, _ in plan.messages] == [(m.src, m.dst) for m in plan.messages]
    for src, dst, block in plan.messages:
        assert (block.in_shapes, block.out_shapes) == (plan.stores(src), plan.makes(dst))


def test_arguments_have_names() -> None:
    assert plan_reshard(layout=EIGHT, src=ROWS, dst=WHOLE) is plan_reshard(EIGHT, ROWS, WHOLE)
    assert xl.reshard(x=eight(), to=P()).sharding.is_fully_replicated


def test_a_plan_that_was_used_may_be_pickled() -> None:
    plan = plan_reshard(EIGHT, ROWS, WHOLE)
    assert plan.messages
    assert pickle.loads(pickle.dumps(plan)) is plan


def test_a_rule_or_sizes_alone_are_a_split() -> None:
    for short, split in (
        ("balanced", Split(rule="balanced")),
        ((1, 2, 3, 4), Split(sizes=(1, 2, 3, 4))),
        ([1, 2, 3, 4], Split(sizes=(1, 2, 3, 4))),
    ):
        found = Sharding(TP, ("tp",), splits={0: short})  # type: ignore[dict-item]
        assert found == Sharding(TP, ("tp",), splits={0: split})
    assert Sharding(TP, ("tp",), splits={0: "ceil"}) == ROWS


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_what_may_be_shared_may_be_fresh(jit: bool) -> None:
    def run(x: Any) -> Any:
        return xl.interleave(x, copy=None), xl.apply(xl.interleave.layout((8,)), x, copy=None)

    for made in (jax.jit(run) if jit else run)(eight()):
        np.testing.assert_array_equal(made, [0, 4, 1, 5, 2, 6, 3, 7])
        assert made.sharding == eight().sharding


def test_one_device_shares_whatever_is_said_of_many() -> None:
    x = np.ones((2, 3))
    assert np.shares_memory(xl.rearrange(x, "a b -> (a b)", comm="auto", copy=None), x)
    for comm in (*get_args(Comm), None):
        assert np.shares_memory(xl.apply(xl.Layout.identity((2, 3)), x, comm=comm, copy=None), x)
        assert np.shares_memory(xl.matrix_transpose(x, comm=comm, copy=False), x)
        assert xl.matrix_transpose(x, comm=comm, out=np.zeros((3, 2))).all()
        given = torch.ones(2, 3)
        assert xl.matrix_transpose(given, comm=comm, donate=True).all()
        assert given.numel() == 0


def test_a_fill_is_a_number_that_fits_or_is_not_needed() -> None:
    x, layout = eight().astype(np.int8), xl.pad.layout((8,), to=16)
    assert np.asarray(xl.apply(layout, x, fill=np.int64(3))).tolist() == [*range(8), *[3] * 8]
    with pytest.raises(xl.ShapeError, match=r"^fill: 300 in an array of int8; wanted an integer"):
        xl.apply(layout, x, fill=300)
    exponents = (2 ** eight()).astype("float8_e8m0fnu")  # it has no zero
    made = xl.apply(xl.interleave.layout((8,)), exponents)
    assert made.tolist() == [2.0**k for k in (0, 4, 1, 5, 2, 6, 3, 7)]


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "an array of another shape": (
        lambda: plan_reshard(EIGHT, ROWS, ROWS).simulate(np.ones(5)), xl.ShapeError,
        "x: an array of shape (5,); the layout takes (8,)"),
    "too many arrays": (
        lambda: plan_reshard(EIGHT, ROWS, ROWS).simulate((np.ones(8), np.ones(8))), xl.ShapeError,
        "layout: takes 1 arrays, 2 given"),
    "a number as a source": (
        lambda: plan_reshard(EIGHT, 3, ROWS), TypeError,  # type: ignore[arg-type]
        "src: 3; wanted a Sharding"),
    "an array of no axes as a target": (
        lambda: plan_reshard(EIGHT, ROWS, np.array(3)), TypeError,  # type: ignore[arg-type]
        "dst: array(3); wanted a Sharding"),
    "a word for flat": (
        lambda: Sharding(TP, ("tp",), flat="no"), TypeError,  # type: ignore[arg-type]
        "flat: 'no'; wanted True or False"),
    "a number as a layout": (
        lambda: xl.reshard(eight(), P(), layout=3), TypeError,  # type: ignore[arg-type]
        "layout: an int; wanted a Layout: reshard(x, to, layout=layout)"),
    "no mesh": (
        lambda: Sharding(None, ("tp",)), TypeError,  # type: ignore[arg-type]
        "mesh: None; wanted a Mesh"),
    "no spec": (
        lambda: Sharding(TP, None), TypeError,  # type: ignore[arg-type]
        "spec: None; wanted for each array axis a mesh axis, several or None"),
    "a number in a spec": (
        lambda: Sharding(TP, ("tp", 1)), TypeError,  # type: ignore[arg-type]
        "spec: ('tp', 1); wanted for each array axis a mesh axis, several or None"),
    "a mesh axis by its position": (
        lambda: Sharding(TP, (0,)), TypeError,  # type: ignore[arg-type]
        "spec: (0,); wanted for each array axis a mesh axis, several or None"),
    "a number as a split": (
        lambda: Sharding(TP, ("tp",), splits={0: 2}), TypeError,  # type: ignore[dict-item]
        "splits: 2; wanted a Split, the name of its rule or its sizes"),
    "a list as all splits": (
        lambda: Sharding(TP, ("tp",), splits=["balanced"]), TypeError,  # type: ignore[arg-type]
        "splits: ['balanced']; wanted a dict of array axes and how each is split"),
    "a text as an axis": (
        lambda: Sharding(TP, ("tp",), splits={"0": "even"}), TypeError,  # type: ignore[dict-item]
        "splits: '0' is a str; wanted an int"),
    "a fraction of an axis": (
        lambda: Sharding(TP, ("tp",), splits={0.0: "even"}), TypeError,  # type: ignore[dict-item]
        "splits: 0.0 is a float; wanted an int"),
    "no arrays": (
        lambda: xl.reshard([], P()), xl.ShapeError,
        "x: no arrays; give at least one"),
    "a layout without inputs": (
        lambda: plan_reshard(xl.Layout((), ((3,),), ()), ROWS, ROWS), xl.ShapeError,
        "src: the layout has no arrays there; wanted at least one"),
    "a layout without outputs": (
        lambda: plan_reshard(xl.Layout(((3,),), (), ()), ROWS, ROWS), xl.ShapeError,
        "dst: the layout has no arrays there; wanted at least one"),
    "a number as an array": (
        lambda: plan_reshard(EIGHT, ROWS, ROWS).simulate(3), TypeError,
        "x: expected a torch.Tensor, jax.Array or numpy.ndarray, got builtins.int; convert it "
        "first, or register a backend for its type under the entry-point group 'xlayout.backends'"),
    "a rank that is not there": (
        lambda: plan_reshard(EIGHT, ROWS, WHOLE).received(9), xl.SizeError,
        "rank: 9; the mesh (tp=4) has ranks 0 to 3"),
    "a rank before all others": (
        lambda: plan_reshard(EIGHT, ROWS, WHOLE).sent(-1), xl.SizeError,
        "rank: -1; the mesh (tp=4) has ranks 0 to 3"),
    "a rule that is not known": (
        lambda: Sharding(TP, ("tp",), splits={0: "fair"}), xl.LayoutError,  # type: ignore[dict-item]
        "rule: 'fair'; wanted one of 'ceil', 'flat_ceil', 'balanced', 'even'"),
    "a view": (
        lambda: xl.interleave(eight(), copy=False), BufferError,
        "copy=False: the result of a sharded op is no view; use copy=None to allow a copy"),
    "memory to write into": (
        lambda: xl.interleave(eight(), out=eight()), TypeError,
        "out: the result of a sharded op is fresh; leave it out"),
    "a view by any layout": (
        lambda: xl.apply(EIGHT, eight(), copy=False), BufferError,
        "copy=False: the result of a sharded op is no view; use copy=None to allow a copy"),
    "a way of moving that is not known": (
        lambda: xl.apply(EIGHT, np.ones(8), comm="auot"), xl.LayoutError,  # type: ignore[arg-type]
        "comm: 'auot'; wanted one of 'auto', 'local', 'native'"),
    "many devices for an array of one": (
        lambda: xl.apply(EIGHT, np.ones(8), out_sharding=P()), TypeError,
        "out_sharding: P(), but the numpy array is on one device; leave it out, or put the array "
        "on a mesh first"),
    "a place for a tensor of one device": (
        lambda: xl.interleave(torch.ones(8), in_sharding=ROWS), TypeError,
        f"in_sharding: {ROWS}, but the torch array is on one device; leave it out, or put the "
        "array on a mesh first"),
    "a place for JAX's array of one device": (
        lambda: xl.interleave(jax.numpy.ones(8), out_sharding=P("tp")), TypeError,
        "out_sharding: P('tp',), but the jax array is on one device; leave it out, or put the "
        "array on a mesh first"),
    "a mesh axis that JAX does not find": (
        lambda: xl.interleave(eight(), out_sharding=P("x")), ValueError,
        "out_sharding: P('x',); the mesh has the axes tp (Resource axis: x of P('x',) is not found "
        "in mesh: ('tp',).)"),
    "a mesh axis that is not there": (
        lambda: Sharding(TP, ("x",)), xl.AxisError, "spec: 'x'; the mesh (tp=4) has tp"),
    "a mesh axis to leave out that is not there": (
        lambda: ROWS.without("x"), xl.AxisError, "names: 'x'; the mesh (tp=4) has tp"),
    "a mesh axis to find that is not there": (
        lambda: TP.axis("x"), xl.AxisError, "name: 'x'; the mesh (tp=4) has tp"),
    "a mesh axis to gather that is not there": (
        lambda: xl.all_gather(eight(), mesh_axis="x"), xl.AxisError,
        "mesh_axis: 'x'; the mesh (tp=4) has tp"),
    "a place for an array of one where nothing may move": (
        lambda: xl.apply(EIGHT, np.ones(8), comm="local", out_sharding=P()), TypeError,
        "out_sharding: P(), but the numpy array is on one device; leave it out, or put the array "
        "on a mesh first"),
    "neither yes nor no nor either": (
        lambda: xl.apply(EIGHT, eight(), copy=3), TypeError,  # type: ignore[arg-type]
        "copy: 3; wanted True, False or None"),
    "what an array knows better": (
        lambda: xl.reshard(eight(), P(), in_sharding=P()), xl.LayoutError,
        "in_sharding: () on tp=4, but x lies as (tp) on tp=4; leave it out, or reshard x first"),
    "a name as a sharding": (
        lambda: xl.reshard(eight(), "tp"), TypeError,
        "to: 'tp'; wanted a Sharding, a NamedSharding or a PartitionSpec"),
    "a name as a result's sharding": (
        lambda: xl.interleave(eight(), out_sharding="tp"), TypeError,
        "out_sharding: 'tp'; wanted a Sharding, a NamedSharding or a PartitionSpec"),
    "a name as an array's sharding": (
        lambda: xl.interleave(eight(), in_sharding="tp"), TypeError,
        "in_sharding: 'tp'; wanted a Sharding, a NamedSharding or a PartitionSpec"),
    "an array on another mesh than it is told": (
        lambda: xl.interleave(eight(), in_sharding=Sharding(Mesh(2, "dp"), ())), xl.LayoutError,
        "in_sharding: () on dp=2; x lies on tp=4: give it on the mesh of x"),
    "parts that are not as many as the ranks": (
        lambda: plan_reshard(EIGHT, ROWS, Sharding(ROWS.mesh, ("tp",), splits={0: (3, 5)})),
        xl.SizeError, "cannot shard axis 0 = 8 into 4: sizes (3, 5) are 2 parts of 8"),
    "an axis that the array has not": (
        lambda: plan_reshard(EIGHT, ROWS, Sharding(ROWS.mesh, (None, "tp"))), xl.ShapeError,
        "shape: (8,) has 1 axes; the sharding (-, tp) on tp=4 cuts more"),
    "parts of unequal size, left to XLA": (
        lambda: xl.pad(eight(), to=9, comm="native", out_sharding=P("tp")), xl.LayoutError,
        "out_sharding: (tp) on tp=4 of (9,) in JAX, which holds equal parts only; pad the array "
        "until it divides (xlayout.pad)"),
    "gradients in a dtype that holds none": (
        lambda: xl.all_gather(eight(), reduce_dtype="int32"), TypeError,
        "reduce_dtype: int32; wanted a dtype of floats, which gradients are"),
    "a number as a mesh axis of parameters": (
        lambda: xlayout.jax.all_gather(eight(), 3), xl.LayoutError,  # type: ignore[arg-type]
        "mesh_axis: 3; the mesh of x has tp"),
    "no mesh axis of parameters": (
        lambda: xlayout.jax.all_gather(eight(), ()), xl.LayoutError,
        "mesh_axis: (); wanted at least one"),
    "no function": (
        lambda: xl.wire_bytes(3, eight()), TypeError,  # type: ignore[arg-type]
        "fn: 3; wanted a function, called as fn(*args)"),
    "no array whose bytes could travel": (
        lambda: xl.wire_bytes(np.sum, [np.ones(3)]), TypeError,
        "args: no torch.Tensor or jax.Array among them; wanted at least one"),
    "shardings for other results": (
        lambda: xl.unstack(eight(), out_sharding=(P(),) * 3), xl.LayoutError,
        "out_sharding: a list of 3 for 8 results; wanted one for all, or one for each"),
}  # fmt: skip


@pytest.mark.parametrize("kind", [list, tuple])
def test_shardings_come_in_a_list_or_a_tuple(kind: Any) -> None:
    x = eight()
    made = xl.split_qkv(x, heads=2, kv_heads=1, out_sharding=kind([P("tp"), P(), P()]))
    assert [y.sharding.is_fully_replicated for y in made] == [False, True, True]
    (whole,) = xl.reshard(x, kind([P()]), in_sharding=kind([P("tp")]))
    assert whole.sharding.is_fully_replicated


def test_one_sharding_is_meant_for_all_results_and_a_dtype_for_all_arrays() -> None:
    x, both = eight(), xl.Layout(((8,), (8,)), ((8,), (8,)), [xl.Piece(0, 0, ((16, 1, 1),))])
    made = xl.reshard([x, x + 1], P(), layout=both, dtype="float16")
    assert [(y.dtype, y.sharding.is_fully_replicated) for y in made] == [("float16", True)] * 2
    assert [y.tolist() for y in made] == [x.tolist(), (x + 1).tolist()]


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_ones_are_refused_by_name(case: str) -> None:
    call, kind, text = REFUSED[case]
    with pytest.raises(kind, match=f"^{re.escape(text)}$"):
        call()
