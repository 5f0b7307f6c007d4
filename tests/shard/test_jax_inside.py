"""Inside jit a tracer is told its sharding; inside shard_map it is a part of such an array."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
from xlayout.errors import LayoutError, ShardingError
from xlayout.shard import Mesh, Sharding, Split, wire_bytes

SHAPE = (48, 16)
ROWS, COLUMNS = P("tp"), P(None, "tp")
GLU = xl.interleave.layout(SHAPE, block=2)
TP = Mesh(4, "tp")


def mesh(kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("dp", "tp"), (kind, kind))


def named(spec: P) -> NamedSharding:
    return NamedSharding(mesh(), spec)


def values(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def put(spec: P, shape: tuple[int, ...] = SHAPE) -> jax.Array:
    x: jax.Array = jax.device_put(values(shape), named(spec))
    return x


# -- told, on automatic axes -----------------------------------------------------------------------


def test_told_how_it_lies_it_moves_what_the_plan_says() -> None:
    def run(x: Any) -> Any:
        return xl.reshard(x, named(COLUMNS), layout=GLU, in_sharding=named(ROWS))

    y = jax.jit(run)(put(ROWS))
    np.testing.assert_array_equal(y, GLU(values()))
    assert y.sharding.is_equivalent_to(named(COLUMNS), 2)
    assert sum(wire_bytes(run, put(ROWS)).values()) == 4 * SHAPE[0] * SHAPE[1] // 4 * 3 // 4


def test_an_op_is_told_too() -> None:
    def run(x: Any) -> Any:
        return xl.interleave(x, block=2, in_sharding=named(ROWS), out_sharding=named(COLUMNS))

    y = jax.jit(run)(put(ROWS))
    np.testing.assert_array_equal(y, GLU(values()))
    assert y.sharding.is_equivalent_to(named(COLUMNS), 2)


def test_gradients_go_back_to_where_it_lay() -> None:
    weights = values()[::-1].copy()

    def loss(x: Any) -> Any:
        y = xl.reshard(x, named(COLUMNS), layout=GLU, in_sharding=named(ROWS))
        return (y**2 * weights).sum()

    g = jax.jit(jax.grad(loss))(put(ROWS))
    assert g.sharding.is_equivalent_to(named(ROWS), 2)
    np.testing.assert_allclose(g, GLU.inverse()(2 * GLU(values()) * weights), rtol=1e-6)


def test_a_bare_spec_is_meant_on_the_mesh_at_hand() -> None:
    def run(x: Any) -> Any:
        return xl.reshard(x, COLUMNS, in_sharding=ROWS)

    with jax.set_mesh(mesh()):
        np.testing.assert_array_equal(jax.jit(run)(put(ROWS)), values())
    with pytest.raises(TypeError, match=r"in_sharding: P\S*\('tp',\) on no mesh; give a Named"):
        jax.jit(run)(values())


def test_local_is_checked_against_what_it_is_told() -> None:
    def run(x: Any) -> Any:
        return xl.interleave(x, block=2, comm="local", in_sharding=named(ROWS))

    with pytest.raises(ShardingError, match="comm: 'local', but something would have to move:"):
        jax.jit(run)(put(ROWS))
    flip = jax.jit(lambda x: xl.matrix_transpose(x, comm="local", in_sharding=named(ROWS)))
    np.testing.assert_array_equal(flip(put(ROWS)), values().T)


def test_local_without_being_told_says_how_to_tell() -> None:
    with pytest.raises(TypeError, match=r"a tracer does not know its sharding; say it with in_sh"):
        jax.jit(lambda x: xl.interleave(x, comm="local"))(put(ROWS))


def test_an_array_that_knows_better_is_not_told() -> None:
    with pytest.raises(ShardingError, match=r"in_sharding: \(-, tp\) on dp=2 tp=4, but x lies as"):
        xl.reshard(put(ROWS), named(P()), in_sharding=named(COLUMNS))
    np.testing.assert_array_equal(
        xl.reshard(put(ROWS), named(P()), in_sharding=named(ROWS)), values()
    )


def test_an_axis_that_does_not_divide_is_refused_with_the_way_out() -> None:
    def run(x: Any, to: P) -> Any:
        return xl.reshard(x, named(to), in_sharding=named(P()))

    with pytest.raises(ShardingError, match=r"cannot shard \(\(10, 8\),\) by \(tp\) on dp=2 tp=4 "
                       r"in JAX, which holds equal parts only; these are \(3, 8\), \(3, 8\), "
                       r"\(3, 8\), \(1, 8\); pad the array"):  # fmt: skip
        jax.jit(run, static_argnums=1)(values((10, 8)), ROWS)
    with pytest.raises(ShardingError, match=r"\(1, 8\), \(0, 8\), \.\.\.; pad the array"):
        jax.jit(run, static_argnums=1)(values((10, 8)), P(("dp", "tp")))
    parts = xl.Layout.concat([(8, 8), (2, 8)]).inverse()  # the first divides
    with pytest.raises(
        ShardingError, match=r"these are \(1, 8\), \(1, 8\), \(0, 8\), \(0, 8\); pad"
    ):
        xl.reshard(put(P(), (10, 8)), [named(ROWS)] * 2, layout=parts)


def test_an_exchange_cannot_be_batched_and_says_so() -> None:
    wanted = r"x: .* inside jax.vmap, which no exchange .* give the array a batch axis that the op"
    explicit = jax.device_put(
        values((3, *SHAPE)), NamedSharding(mesh(AxisType.Explicit), P(None, "tp"))
    )
    with pytest.raises(TypeError, match=wanted):
        jax.vmap(xl.interleave)(explicit)
    with pytest.raises(TypeError, match=wanted):
        jax.vmap(jax.grad(lambda x: xl.interleave(x).sum()))(explicit)
    np.testing.assert_array_equal(xl.interleave(explicit, axis=1)[0], xl.interleave(values()))


# -- parts, inside shard_map -----------------------------------------------------------------------


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    "manual", [{"dp", "tp"}, {"tp"}], ids=lambda names: "+".join(sorted(names))
)
def test_parts_are_exchanged(check: bool, manual: set[str]) -> None:
    def run(x: Any) -> Any:
        assert x.shape == (12, 16)
        return xl.interleave(x, block=2, in_sharding=ROWS, out_sharding=COLUMNS)

    parts = jax.shard_map(
        run, mesh=mesh(), in_specs=ROWS, out_specs=COLUMNS, axis_names=manual, check_vma=check
    )
    np.testing.assert_array_equal(jax.jit(parts)(put(ROWS)), GLU(values()))


@pytest.mark.parametrize("check", [True, False])
def test_gradients_of_parts_add_up_over_copies(check: bool) -> None:
    """A part that went to four devices gets back the sum of all four gradients."""

    def loss(x: Any) -> Any:
        whole = xl.reshard(x, P(), in_sharding=ROWS)
        mine = (whole * (jax.lax.axis_index("tp") + 1)).sum()
        return jax.lax.psum(mine, "tp")

    on = jax.make_mesh((4,), ("tp",), (AxisType.Auto,), devices=jax.devices()[:4])
    parts = jax.shard_map(loss, mesh=on, in_specs=ROWS, out_specs=P(), check_vma=check)
    g = jax.jit(jax.grad(parts))(values())
    np.testing.assert_array_equal(g, np.full(SHAPE, 10, np.float32))


@pytest.mark.parametrize("check", [True, False])
def test_gradients_of_what_all_hold_are_those_of_their_parts(check: bool) -> None:
    def loss(x: Any) -> Any:
        mine = xl.reshard(x, ROWS, layout=GLU, in_sharding=P())
        return jax.lax.psum((mine * (jax.lax.axis_index("tp") + 1)).sum(), "tp")

    parts = jax.shard_map(loss, mesh=mesh(), in_specs=P(), out_specs=P(), check_vma=check)
    weight = np.repeat(np.arange(1, 5, dtype=np.float32), 12)[:, None] + np.zeros(SHAPE, np.float32)
    np.testing.assert_array_equal(jax.jit(jax.grad(parts))(values()), GLU.inverse()(weight))


def test_what_all_make_alike_is_known_to_be_alike() -> None:
    """Or JAX would refuse to take it for whole along the axes that are mapped."""

    def run(x: Any) -> Any:
        return xl.interleave(x, block=2, in_sharding=P(), out_sharding=P())

    parts = jax.shard_map(run, mesh=mesh(), in_specs=P(), out_specs=P())
    np.testing.assert_array_equal(jax.jit(parts)(values()), GLU(values()))


def test_a_part_of_holes_alone_may_be_beside_parts_that_differ_along_other_axes() -> None:
    def run(x: Any) -> Any:
        return xl.pad(x, to=32, axis=1, in_sharding=COLUMNS, out_sharding=COLUMNS)

    parts = jax.shard_map(run, mesh=mesh(), in_specs=P("dp", "tp"), out_specs=P("dp", "tp"))
    np.testing.assert_array_equal(jax.jit(parts)(values()), np.pad(values(), ((0, 0), (0, 16))))


def test_parts_may_lie_as_jax_cannot_say() -> None:
    """The halves of a fused weight, each cut in four: a local move, but no NamedSharding."""
    fused = Sharding(TP, ("tp",), splits={0: Split(segments=2)})
    shuffled = np.concatenate([fused.layout(rank, SHAPE)(values()) for rank in range(4)])

    def run(x: Any) -> Any:
        return xl.interleave(x, comm="local", in_sharding=fused, out_sharding=ROWS)

    parts = jax.shard_map(run, mesh=mesh(), in_specs=ROWS, out_specs=ROWS, axis_names={"tp"})
    assert wire_bytes(parts, put(ROWS)) == {}
    np.testing.assert_array_equal(jax.jit(parts)(shuffled), xl.interleave(values()))


@pytest.mark.parametrize(
    "split",
    [
        Split(copies=2),
        Split(segments=2, copies=4),
        Split(segments=(32, 16), copies=(1, 2)),
        Split(segments=(16, 32), unit=(4, 8), copies=(4, 2)),
        Split(sizes=(24, 24), copies=2),
    ],
    ids=str,
)
def test_parts_may_be_held_by_several(split: Split) -> None:
    """As keys and values are on more ranks than there are heads."""
    shared = Sharding(TP, ("tp",), splits={0: split})
    parts = np.concatenate([shared.layout(rank, SHAPE)(values()) for rank in range(4)])
    rows = Sharding(TP, ("tp",))
    for src, dst, given, wanted in (
        (shared, rows, parts, GLU(values())),
        (rows, shared, GLU.inverse()(values()), parts),
    ):

        def run(x: Any, src: Sharding = src, dst: Sharding = dst) -> Any:
            return xl.reshard(x, dst, layout=GLU, in_sharding=src)

        mapped = jax.shard_map(run, mesh=mesh(), in_specs=ROWS, out_specs=ROWS, axis_names={"tp"})
        np.testing.assert_array_equal(jax.jit(mapped)(given), wanted)


def inside(fn: Any, manual: set[str]) -> Any:
    parts = jax.shard_map(fn, mesh=mesh(), in_specs=ROWS, out_specs=ROWS, axis_names=manual)
    return jax.jit(parts)(put(ROWS))


def test_a_part_has_to_be_told() -> None:
    with pytest.raises(TypeError, match="is one device's part inside shard_map; say with in_shard"):
        inside(lambda x: xl.reshard(x, ROWS), {"dp", "tp"})


def test_a_part_lies_along_the_axes_that_are_mapped() -> None:
    with pytest.raises(ShardingError, match=r"in_sharding: \(dp\) on .* is cut by dp=2; this shard"
                       r"_map maps over tp=4"):  # fmt: skip
        inside(lambda x: xl.reshard(x, ROWS, in_sharding=P("dp")), {"tp"})
    with pytest.raises(ShardingError, match=r"to: \(dp\) on .* is cut by dp=2; this shard_map m"):
        inside(lambda x: xl.reshard(x, P("dp"), in_sharding=ROWS), {"tp"})


def test_nothing_is_left_to_xla_inside() -> None:
    with pytest.raises(LayoutError, match="comm: 'native' inside shard_map, where XLA moves noth"):
        inside(lambda x: xl.interleave(x, comm="native", in_sharding=ROWS), {"tp"})


def test_a_part_with_other_axes_needs_a_place_to_lie() -> None:
    with pytest.raises(ShardingError, match=r"^out_sharding: the data does not fall into a shardi"):
        inside(lambda x: xl.rearrange(x, "(a b) c -> a b c", a=2, in_sharding=ROWS), {"tp"})


def test_one_sharding_for_each_input() -> None:
    two = jnp.ones((8, 4)), jnp.ones((8, 4))
    with pytest.raises(ShardingError, match="in_sharding: 1 of them for 2 arrays"):
        jax.jit(lambda *xs: xl.stack(xs, in_sharding=[named(ROWS)]))(*two)
