"""What is left to XLA it does at the minimum; the rest is one collective, or a few rounds."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding

import xlayout as xl
from xlayout.shard import Mesh, Sharding, plan_reshard, wire_bytes
from xlayout.shard.devices import least_by_xla
from xlayout.shard.spmd import program

SHAPE = (32, 64)
GRID = Mesh((2, 4), ("a", "b"))
ENTRIES: list[tuple[str, ...]] = [(), ("a",), ("b",), ("a", "b"), ("b", "a")]
SPECS = [(x, y) for x, y in itertools.product(ENTRIES, repeat=2) if not {*x} & {*y}]
PAIRS = list(itertools.permutations(SPECS, 2))


def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("a", "b"), (AxisType.Auto, AxisType.Auto))


def named(spec: Any) -> NamedSharding:
    return Sharding(GRID, spec).to_jax(mesh())  # type: ignore[no-any-return]


def abstract(spec: Any, shape: tuple[int, ...] = SHAPE) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=named(spec))


def wanted(spec: Any, to: Any, layout: xl.Layout | None = None) -> int:
    """Bytes that a device has to receive, on average."""
    layout = layout or xl.Layout.identity(SHAPE)
    plan = plan_reshard(layout, Sharding(GRID, spec), Sharding(GRID, to), itemsize=4)
    assert plan.recv_bytes == plan.lower_bound
    return sum(plan.recv_bytes) // 8


LEFT = [(a, b) for a, b in PAIRS if least_by_xla(Sharding(GRID, a), Sharding(GRID, b))]


def test_half_of_all_reshards_are_left_to_xla() -> None:
    assert len(PAIRS) == 110
    assert len(LEFT) == 56


@pytest.mark.parametrize("to", SPECS, ids=str)
def test_what_is_left_to_xla_it_does_at_the_minimum(to: Any) -> None:
    """All of them in one program, each on a separate array."""
    sources = [a for a, b in LEFT if b == to]

    def run(*xs: Any) -> Any:
        return [jax.lax.with_sharding_constraint(x, named(to)) for x in xs]

    found = wire_bytes(run, *map(abstract, sources))
    assert sum(found.values()) == sum(wanted(a, to) for a in sources)


def test_what_is_not_is_at_the_minimum_too() -> None:
    to: Any = ((), ("b", "a"))
    sources = [a for a, b in PAIRS if b == to]
    x = np.arange(32 * 64, dtype=np.float32).reshape(SHAPE)

    def run(*xs: Any) -> Any:
        told = [named(a) for a in sources]
        return [xl.reshard(x, named(to), in_sharding=s) for x, s in zip(xs, told, strict=True)]

    arrays = [jax.device_put(x, named(a)) for a in sources]
    assert sum(wire_bytes(run, *arrays).values()) == sum(wanted(a, to) for a in sources)
    for made in jax.jit(run)(*arrays):
        np.testing.assert_array_equal(made, x)


FLIP = xl.Layout.permute((64, 64), (1, 0))
GLU = xl.interleave.layout((64, 64), block=4)
KINDS = {
    "an all-to-all": (FLIP, [("a",)], [("a",)], "all_to_all"),
    "an all-to-all in groups": (FLIP, [("a",), ("b",)], [(), ("a", "b")], "all_to_all"),
    "an all-gather": (FLIP, [("b",)], [()], "all_gather"),
    "an all-gather in groups": (FLIP, [("b",), ("a",)], [("a",)], "all_gather"),
    "rounds": (GLU, [("b",)], [("b",)], "collective_permute"),
    "nothing": (FLIP, [("b",), ("a",)], [("a",), ("b",)], None),
}


@pytest.mark.parametrize("case", KINDS)
def test_messages_that_are_one_collective_are_sent_as_one(case: str) -> None:
    layout, src, dst, kind = KINDS[case]
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    array = jax.device_put(x, named(src))

    def run(x: Any) -> Any:
        return xl.reshard(x, named(dst), layout=layout, in_sharding=named(src))

    plan = plan_reshard(layout, Sharding(GRID, src), Sharding(GRID, dst), itemsize=4)
    found = wire_bytes(run, array)
    assert found == ({} if kind is None else {kind: sum(plan.recv_bytes) // 8})
    np.testing.assert_array_equal(jax.jit(run)(array), layout(x))
    if kind != "collective_permute":
        steps = program(plan)
        assert len(set(steps.unpack)) == 1 or kind == "all_gather"
        assert steps.pack is None or len(set(steps.pack)) == 1


def test_a_plan_says_that_it_is_one_collective() -> None:
    rows, columns = (Sharding(Mesh(4, "tp"), s) for s in (["tp"], [None, "tp"]))
    plan = plan_reshard(xl.Layout.identity((8, 8)), rows, columns)
    assert "\nin one all_to_all among 4 ranks\n" in plan.explain()
    plan = plan_reshard(xl.Layout.identity((8, 8)), rows, Sharding(Mesh(4, "tp"), []))
    assert "\nin one all_gather among 4 ranks\n" in plan.explain()


@pytest.mark.parametrize(
    ("src", "dst", "least"),
    [
        (["a", "b"], [None, None], True),  # gathered
        ([None, None], ["a", "b"], True),  # cut where it lies
        ([("a", "b"), None], ["a", "b"], True),  # the minor part, to another axis
        ([("a", "b"), None], [None, ("a", "b")], True),
        (["a", "b"], [None, ("b", "a")], True),  # to its minor end
        (["a", "b"], [None, ("a", "b")], False),
        (["a", "b"], ["b", "a"], False),
        ([("a", "b")], [("b", "a")], False),
        (["a", None], [None, "b"], False),
        ([("a", "b"), None], [None, "b"], False),
        (["a", None, None], [None, "a", "b"], False),
        ([("a", "b", "c")], [("a",)], True),
        ([("a", "b")], [("a", "c")], False),
    ],
)
def test_what_xla_moves_least_by_itself(src: Any, dst: Any, least: bool) -> None:
    mesh = Mesh((2, 3, 2), ("a", "b", "c"))
    assert least_by_xla(Sharding(mesh, src), Sharding(mesh, dst)) == least
