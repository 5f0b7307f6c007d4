"""Every op on eight devices is bit for bit the op on one, and so are its gradients, in any mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
from tests.shard.ops import OPS, some


def mesh(kind: AxisType = AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh((2, 4), ("dp", "tp"), (kind, kind))


def named(spec: P) -> NamedSharding:
    return NamedSharding(mesh(), spec)


class Case:
    """An op, what it makes of arrays on one device, and the gradient of some weights of that."""

    def __init__(self, name: str) -> None:
        self.op, shapes, lies, to = OPS[name]
        self.lies, self.to = P(*lies), P(*to)
        self.given = [some(shape, k) for k, shape in enumerate(shapes)]
        self.wanted = jax.tree.leaves(self.op(*self.given))
        self.weights = [some(y.shape, 9 + k) for k, y in enumerate(self.wanted)]
        self.gradient = self._gathered()
        self.told = [named(self.lies)] * len(shapes)

    def _gathered(self) -> list[np.ndarray]:
        """For each input position the weights of where it went; ten and more are positions."""
        sizes = np.cumsum([0, *(x.size for x in self.given)])
        at = [
            np.arange(x.size).reshape(x.shape) + 10.0 + n
            for x, n in zip(self.given, sizes, strict=False)
        ]
        total = np.zeros(sizes[-1], np.float32)
        for y, w in zip(jax.tree.leaves(self.op(*at)), self.weights, strict=True):
            np.add.at(total, y[y >= 10].astype(int) - 10, w[y >= 10])
        parts = np.split(total, sizes[1:-1])
        return [part.reshape(x.shape) for part, x in zip(parts, self.given, strict=True)]

    def loss(self, made: Any) -> Any:
        pairs = zip(jax.tree.leaves(made), self.weights, strict=True)
        return sum((y * w).sum() for y, w in pairs)

    def differentiated(self, op: Callable[..., Any]) -> Any:
        every = tuple(range(len(self.given)))
        return jax.jit(jax.grad(lambda *xs: self.loss(op(*xs)), every))(*self.given)


def check(made: Any, wanted: Any) -> None:
    leaves = jax.tree.leaves(made)
    assert len(leaves) == len(wanted)
    for y, w in zip(leaves, wanted, strict=True):
        np.testing.assert_array_equal(y, w)


def put(case: Case, on: jax.sharding.Mesh) -> list[jax.Array]:
    return [jax.device_put(x, NamedSharding(on, case.lies)) for x in case.given]


@pytest.mark.parametrize("name", OPS)
def test_values_are_those_of_one_device(name: str) -> None:
    case = Case(name)
    check(case.op(*put(case, mesh())), case.wanted)


def test_what_ran_on_one_device_is_not_taken_for_many() -> None:
    def interleaved(x: Any) -> Any:
        return xl.interleave(x, block=2)

    x = some((16, 8), 0)
    alone = interleaved(jax.numpy.asarray(x))
    made = interleaved(jax.device_put(x, named(P("tp"))))
    check(made, [np.asarray(alone)])
    by_xla = jax.jit(interleaved)(jax.device_put(x, named(P("tp"))))
    assert made.sharding.spec == P("tp") != by_xla.sharding.spec


@pytest.mark.parametrize("name", ["deinterleave", "stack", "pad", "fuse_qkv by groups"])
def test_results_lie_as_they_are_told(name: str) -> None:
    case = Case(name)
    made = case.op(*put(case, mesh()), out_sharding=case.to)
    check(made, case.wanted)
    assert made.sharding.is_equivalent_to(named(case.to), made.ndim)


NOWHERE: dict[str, Callable[[Any, NamedSharding], Any]] = {
    "reshard": xl.reshard,
    "ours": lambda x, to: xl.matrix_transpose(x, out_sharding=to),
    "XLA's": lambda x, to: xl.matrix_transpose(x, out_sharding=to, comm="native"),
}


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("shape", [(0, 8), (8, 0)])
@pytest.mark.parametrize("name", NOWHERE)
def test_results_of_no_elements_lie_as_they_are_told(
    name: str, shape: tuple[int, int], kind: AxisType
) -> None:
    on = mesh(kind)
    to = NamedSharding(on, P("tp"))
    x = jax.device_put(np.ones(shape, np.float32), NamedSharding(on, P(None, "dp")))
    made = NOWHERE[name](x, to)
    assert made.size == 0
    assert made.sharding.is_equivalent_to(to, 2)
    cut = jax.device_put(np.ones(shape, np.float32), NamedSharding(on, P(("tp", "dp"))))
    assert xl.all_gather(cut, mesh_axis="dp").sharding.is_equivalent_to(to, 2)


@pytest.mark.parametrize("name", OPS)
def test_gradients_are_those_of_one_device(name: str) -> None:
    case = Case(name)
    to = named(case.to)
    gradient = case.differentiated(lambda *xs: case.op(*xs, in_sharding=case.told, out_sharding=to))
    check(gradient, case.gradient)


@pytest.mark.parametrize("name", ["pad", "stack", "interleave", "fuse_qkv one after the other"])
def test_gradients_of_parts_are_those_of_one_device(name: str) -> None:
    """Even if ranks do different things, and if one copy goes to other places than the rest."""
    case = Case(name)

    def parts(*xs: Any) -> Any:
        return case.op(*xs, in_sharding=[case.lies] * len(xs), out_sharding=case.to)

    mapped = jax.shard_map(parts, mesh=mesh(), in_specs=case.lies, out_specs=case.to)
    check(jax.jit(mapped)(*case.given), case.wanted)
    check(case.differentiated(mapped), case.gradient)


@pytest.mark.parametrize("name", ["permute_dims", "rope_pairs"])
def test_copies_of_parts_are_what_jax_has_to_be_told(name: str) -> None:
    """It types a gathered array as if it might differ between devices."""
    case = Case(name)

    def parts(x: Any) -> Any:
        return case.op(x, in_sharding=case.lies, out_sharding=case.to)

    with pytest.raises(ValueError, match="out_specs which require replication"):
        jax.shard_map(parts, mesh=mesh(), in_specs=case.lies, out_specs=case.to)(*case.given)
    mapped = jax.shard_map(
        parts, mesh=mesh(), in_specs=case.lies, out_specs=case.to, check_vma=False
    )
    check(jax.jit(mapped)(*case.given), case.wanted)
    check(case.differentiated(mapped), case.gradient)


@pytest.mark.parametrize("name", ["split_qkv", "fuse_qkv one after the other", "rope_halves"])
def test_explicit_axes_need_no_word(name: str) -> None:
    case, explicit = Case(name), mesh(AxisType.Explicit)
    with jax.set_mesh(explicit):
        check(jax.jit(case.op)(*put(case, explicit)), case.wanted)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_holes_are_constant_in_derivatives_of_every_order(kind: AxisType) -> None:
    def squared(x: Any) -> Any:
        padded = xl.pad(x, to=12, value=2.5)
        return (padded * padded[::-1]).sum() + (padded**3).sum()

    def gradient_along(x: Any) -> Any:
        return jax.grad(lambda x: (jax.grad(squared)(x) * x).sum())(x)

    functions: list[Callable[[Any], Any]] = [
        lambda x: jax.jvp(lambda x: xl.pad(x, to=12, value=2.5), (x,), (x,)),
        lambda x: jax.jvp(squared, (x,), (x,)),
        lambda x: jax.jvp(jax.grad(squared), (x,), (x,)),
        gradient_along,
    ]
    x, on = np.arange(8, dtype=np.float32), mesh(kind)
    with jax.set_mesh(on):
        sharded = jax.device_put(x, NamedSharding(on, P("tp")))
        for function in functions:
            for made, wanted in zip(
                jax.tree.leaves(jax.jit(function)(sharded)),
                jax.tree.leaves(function(jax.numpy.asarray(x))),
                strict=True,
            ):
                np.testing.assert_array_equal(made, wanted)
