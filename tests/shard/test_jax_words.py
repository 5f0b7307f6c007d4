"""What JAX would refuse or has lost is reported like our own refusals: what, why, and a way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
import xlayout.jax

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
ROWS = P("tp")
X = np.arange(64, dtype=np.float32).reshape(8, 8)
TURNED = xl.matrix_transpose.layout(X.shape)


def put(*kinds: AxisType, spec: P = ROWS) -> jax.Array:
    mesh = jax.make_mesh((2, 4), ("dp", "tp"), kinds)
    made: jax.Array = jax.device_put(X, NamedSharding(mesh, spec))
    return made


CALLS: dict[str, Callable[[Any], Any]] = {
    "op": xl.interleave,
    "op of several": lambda x: xl.stack([x, x]),
    "layout": TURNED,
    "view": lambda x: xl.matrix_transpose(x, copy=None),
    "many": lambda x: xl.apply_many([TURNED], [x]),
    "reshard": lambda x: xl.reshard(x, P(None, "tp")),
    "all_gather": xl.all_gather,
    "gradient": jax.grad(lambda x: xl.interleave(x).sum()),
}


NAMES = {"op of several": "xs[0]", "layout": "arrays[0]", "many": "arrays[0]"}
"""What a call names the array, where that is not x."""


@pytest.mark.parametrize("found", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("name", CALLS)
def test_an_array_that_was_given_away_is_told_as_such(name: str, found: bool) -> None:
    run = CALLS[name]
    given = (
        [put(AUTO, AUTO)]
        if name in ("reshard", "all_gather")
        else [jnp.asarray(X), put(AUTO, AUTO)]
    )
    called = re.escape(NAMES.get(name, "x"))
    for x in given:
        if found:
            run(x)
        x.delete()
        text = rf"^{called}: .* was deleted or donated; .* a copy from"
        with pytest.raises(ValueError, match=text):
            run(x)


def test_arrays_on_several_meshes_are_told_so_under_jit() -> None:
    run = jax.jit(lambda x, y: xl.rearrange((x, y), "a b, c b -> (a + c) b"))
    said = r"arrays: on several meshes, \(dp=2 tp=4\) and \(explicit dp=2 explicit tp=4\); wanted"
    with pytest.raises(ValueError, match=said):
        run(put(AUTO, AUTO), put(EXPLICIT, EXPLICIT))


def test_what_jax_does_not_regroup_is_told_with_a_way_out() -> None:
    native = jax.vmap(lambda x: xl.interleave(x, comm="native"), in_axes=1)
    both = put(AUTO, EXPLICIT)
    for run, x in ((native, put(EXPLICIT, EXPLICIT)), (jax.jit(xl.interleave), both)):
        with pytest.raises(
            ValueError, match=r"x: cut along an explicit .* float32\[8.*; leave out vmap"
        ):
            run(x)
    column = jax.device_put(X[:, :1].repeat(2, 0), NamedSharding(both.sharding.mesh, ROWS))
    pairs = jax.jit(lambda x: xl.interleave(x, block=2))
    with pytest.raises(ValueError, match=r"x: cut along .*: (This|it fails) .*; leave out"):
        pairs(column)
    told = jax.jit(lambda x: xl.interleave(x, in_sharding=P("tp")))
    np.testing.assert_array_equal(told(both), xl.interleave(X))
    whole = put(EXPLICIT, EXPLICIT, spec=P(None, "tp"))
    np.testing.assert_array_equal(native(whole), xl.interleave(X, axis=0).T)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(
    "layout",
    [
        xl.interleave.layout((8, 8)),
        xl.Layout.slice((8, 8), 0, 6, 0),
        xl.Layout.slice((8, 8), 0, 6, 0) >> xl.matrix_transpose.layout((6, 8)),
        xl.to_tiles.layout((8, 8), grid=(3, 1)),
    ],
    ids=["split", "slice", "slice and turn", "tiles"],
)
def test_what_jax_refuses_of_a_layout_is_told_with_a_way_out(
    layout: xl.Layout, compiled: bool
) -> None:
    x = put(EXPLICIT, EXPLICIT)
    run = jax.jit(layout.__call__) if compiled else layout
    with pytest.raises(ValueError, match=r"x: cut along an .*; .* use xlayout\.apply\(layout, x\)"):
        run(x)
    made, wanted = xl.apply(layout, x), layout(X)
    jax.tree.map(np.testing.assert_array_equal, made, wanted)


def test_what_jax_refuses_to_pad_is_told_with_a_way_out() -> None:
    layout, x = xl.Layout.pad((8, 8), 10, 0), put(EXPLICIT, EXPLICIT)
    with pytest.raises(ValueError, match=r"x: cut along an .*; .* use xlayout\.apply\(layout, x\)"):
        layout(x)
    np.testing.assert_array_equal(xl.apply(layout, x), layout(X))


def test_a_gather_names_what_is_no_array_of_jax() -> None:
    torch = pytest.importorskip("torch")
    for x in (None, [1.0], torch.ones(2)):
        with pytest.raises(TypeError, match=r"^x: .*jax\.Array"):
            xlayout.jax.all_gather(x, "tp")
