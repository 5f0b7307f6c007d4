"""A sharding means the same as JAX's NamedSharding and torch's placements, element for element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np
import pytest
import torch
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor._utils import _compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from xlayout.errors import AxisError, LayoutError, ShardingError
from xlayout.shard import Mesh, Sharding, Split, wire_bytes
from xlayout.shard.placement import cuts_of, of_cuts

MESHES = (
    Mesh(8, "a"), Mesh((2, 4), ("a", "b")), Mesh((4, 2), ("a", "b")),
    Mesh((2, 2, 2), ("a", "b", "c")),
)  # fmt: skip


def assignments(mesh: Mesh) -> Iterator[list[list[str]]]:
    """Every way to cut two axes by the mesh axes, in every order."""
    seen = set()
    for places in itertools.product(range(-1, 2), repeat=len(mesh.names)):
        for order in itertools.permutations(range(len(mesh.names))):
            spec = tuple(tuple(mesh.names[k] for k in order if places[k] == d) for d in range(2))
            if spec not in seen:
                seen.add(spec)
                yield [list(entry) for entry in spec]


CASES = [(mesh, spec) for mesh in MESHES for spec in assignments(mesh)]


@lru_cache
def device_mesh(mesh: Mesh) -> DeviceMesh:
    ranks = torch.arange(mesh.size).reshape(mesh.shape)
    return DeviceMesh("cpu", ranks, mesh_dim_names=mesh.names, _init_backend=False, _rank=0)


def jax_mesh(mesh: Mesh, order: Sequence[int] | None = None) -> jax.sharding.Mesh:
    devices = np.array(jax.devices()[: mesh.size])
    if order is not None:
        devices = devices[list(order)]
    return jax.sharding.Mesh(devices.reshape(mesh.shape), mesh.names)


def torch_local(mesh: Mesh, placements: Sequence[Any], rank: int, x: torch.Tensor) -> torch.Tensor:
    """What torch itself gives a rank: one split after another, in mesh order."""
    at = mesh.coordinates(rank)
    for k, placement in enumerate(placements):
        if not isinstance(placement, Replicate):
            parts, _ = placement._split_tensor(x, mesh.shape[k], with_padding=False)
            x = parts[at[k]]
    return x


def local(sharding: Sharding, rank: int, x: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = sharding.layout(rank, x.shape)(x)
    return made


@pytest.mark.parametrize(("mesh", "spec"), CASES, ids=str)
def test_jax_holds_what_the_sharding_says(mesh: Mesh, spec: list[list[str]]) -> None:
    sharding = Sharding(mesh, spec)
    # Devices in another order than their ids: a rank is a position in the mesh.
    named = sharding.to_jax(jax_mesh(mesh, order=range(mesh.size - 1, -1, -1)))
    assert Sharding.from_jax(named) == sharding
    x = np.arange(64 * 64).reshape(64, 64)
    held = named.devices_indices_map(x.shape)
    for rank, device in enumerate(named.mesh.devices.flat):
        np.testing.assert_array_equal(sharding.layout(rank, x.shape)(x), x[held[device]])


@pytest.mark.parametrize(("mesh", "spec"), CASES, ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (9, 5)])
def test_dtensor_holds_what_the_sharding_says(
    mesh: Mesh, spec: list[list[str]], shape: tuple[int, int]
) -> None:
    sharding = Sharding(mesh, spec)
    placements = sharding.to_torch(device_mesh(mesh))
    assert Sharding.from_torch(device_mesh(mesh), placements, 2) == sharding
    x = torch.arange(math.prod(shape)).reshape(shape)
    for rank in range(mesh.size):
        assert torch.equal(local(sharding, rank, x), torch_local(mesh, placements, rank, x))
        size, _ = _compute_local_shape_and_global_offset(
            shape, mesh.shape, list(mesh.coordinates(rank)), placements
        )
        assert sharding.local_shape(rank, shape) == tuple(size)


@pytest.mark.parametrize("n", range(1, 40))
def test_uneven_shards_agree_in_every_order_of_the_mesh(n: int) -> None:
    x = torch.arange(n)
    for mesh, order in ((MESHES[1], "ba"), (MESHES[2], "ba"), (MESHES[3], "cab")):
        sharding = Sharding(mesh, (tuple(order),))
        placements = sharding.to_torch(device_mesh(mesh))
        for rank in range(mesh.size):
            assert torch.equal(local(sharding, rank, x), torch_local(mesh, placements, rank, x))


@pytest.mark.parametrize("n", range(1, 40))
@pytest.mark.parametrize("segments", [2, 3])
def test_a_fused_weight_is_a_strided_shard(n: int, segments: int) -> None:
    mesh = Mesh(4, "tp")
    sharding = Sharding(mesh, ("tp",), splits={0: Split(segments=segments)})
    placements = (_StridedShard(0, split_factor=segments),)
    assert sharding.to_torch(device_mesh(mesh)) == placements
    assert Sharding.from_torch(device_mesh(mesh), placements, 1) == sharding
    x = torch.arange(n)
    for rank in range(4):
        assert torch.equal(local(sharding, rank, x), torch_local(mesh, placements, rank, x))


def test_equal_segments_by_size_are_a_strided_shard_too() -> None:
    sharding = Sharding(Mesh(4, "tp"), ("tp",), splits={0: Split(segments=(12, 12))})
    assert sharding.to_torch(device_mesh(sharding.mesh)) == (_StridedShard(0, split_factor=2),)


@pytest.mark.parametrize("spec", [("a", "b"), ("b", "a")])
def test_fused_weights_on_two_mesh_axes(spec: tuple[str, str]) -> None:
    mesh = Mesh((2, 4), ("a", "b"))
    sharding = Sharding(mesh, (spec,), splits={0: Split(segments=3)})
    assert of_cuts(mesh, cuts_of(sharding), 1) == sharding
    x = torch.arange(48)
    placements = sharding.to_torch(device_mesh(mesh))
    for rank in range(8):
        assert torch.equal(local(sharding, rank, x), torch_local(mesh, placements, rank, x))


DP, TP, HSDP = Mesh((2, 4), ("dp", "tp")), Mesh(8, "tp"), Mesh((2, 2, 2), ("rep", "dp", "tp"))


@pytest.mark.parametrize(
    ("mesh", "placements", "spec"),
    [
        (TP, [Shard(0)], P("tp")),
        (DP, [_StridedShard(0, split_factor=4), Shard(0)], P(("tp", "dp"))),
        (DP, [Shard(0), Shard(0)], P(("dp", "tp"))),
        (DP, [Shard(0), Shard(1)], P("dp", "tp")),
        (DP, [Replicate(), Shard(0)], P("tp")),
        (HSDP, [Replicate(), _StridedShard(0, split_factor=2), Shard(0)], P(("tp", "dp"))),
        (HSDP, [Replicate(), Shard(0), Shard(-1)], P("dp", "tp")),
    ],
    ids=["tp", "fsdp2+tp", "fsdp+tp major", "fsdp2+row tp", "hsdp", "hsdp+tp", "hsdp+row tp"],
)
def test_how_models_are_really_sharded(mesh: Mesh, placements: list[Any], spec: P) -> None:
    from_torch = Sharding.from_torch(device_mesh(mesh), placements, 2)
    named = NamedSharding(jax_mesh(mesh), spec)
    assert from_torch == Sharding.from_jax(named)
    assert from_torch.to_jax(named.mesh) == named


# -- what one side cannot express ------------------------------------------------------------------


def cut(split: Split | None = None, *, flat: bool = False) -> Sharding:
    return Sharding(TP, ("tp",), splits={0: split} if split else None, flat=flat)


def cut_twice(split: Split) -> Sharding:
    return Sharding(DP, (("dp", "tp"),), splits={0: split})


@pytest.mark.parametrize(
    ("sharding", "nearest"),
    [
        (cut(Split(segments=2)), r"P\(None, 'tp'\) of the axis seen as \(2, n / 2\)"),
        (cut(Split(segments=(4, 4))), r"P\(None, 'tp'\) of the axis seen as \(2, n / 2\)"),
        (cut(Split(segments=(4, 2, 2))), "'tp' of each segment as an array of its own"),
        (cut(Split(sizes=(1,) * 8)), "'tp' on an axis padded until it divides"),
        (cut(Split(rule="balanced", unit=64)), "'tp' on an axis padded until it divides"),
        (cut(Split(unit=4)), "'tp' on an axis padded until it divides"),
        (cut(Split(copies=2)), "'tp' on an axis padded until it divides"),
        (cut(Split(pad=True)), "'tp' on an axis padded until it divides"),
        (cut_twice(Split(pad=True)), r"\('dp', 'tp'\) on an axis padded until it divides"),
        (cut(flat=True), r"P\('tp'\) of the flat array"),
    ],
    ids=str,
)
def test_jax_is_offered_the_nearest(sharding: Sharding, nearest: str) -> None:
    with pytest.raises(ShardingError, match=nearest):
        sharding.to_jax(jax_mesh(sharding.mesh))


@pytest.mark.parametrize(
    "split", [Split(rule="balanced"), Split(rule="flat_ceil"), Split(rule="even", unit=4)], ids=str
)
def test_of_an_axis_that_divides_all_rules_make_equal_parts(split: Split) -> None:
    assert cut(split).to_jax(jax_mesh(TP)).spec == P("tp")
    if split.rule == "flat_ceil":  # as `torch.chunk` does along one mesh axis
        assert cut(split).to_torch(device_mesh(TP)) == (Shard(0),)


@pytest.mark.parametrize(
    ("sharding", "nearest"),
    [
        (cut(Split(segments=(4, 2, 2))), r"Shard\(0\) of each segment as a tensor of its own"),
        (cut(Split(sizes=(1,) * 8)), r"Shard\(0\)"),
        (cut(Split(rule="balanced")), r"Shard\(0\)"),
        (cut(Split(unit=2)), r"Shard\(0\)"),
        (cut(Split(pad=True)), r"Shard\(0\)"),
        (cut(Split(copies=2)), r"Shard\(0\)"),
        (cut_twice(Split(rule="flat_ceil")), r"Shard\(0\)"),
        (cut_twice(Split(segments=(9, 9))), r"Shard\(0\) of each segment as a tensor of its own"),
        (cut(flat=True), r"Shard\(0\) of the flat array"),
    ],
    ids=str,
)
def test_dtensor_is_offered_the_nearest(sharding: Sharding, nearest: str) -> None:
    with pytest.raises(ShardingError, match=rf"the nearest that .*can say is {nearest}"):
        sharding.to_torch(device_mesh(sharding.mesh))


def test_a_split_factor_without_an_order_names_those_that_have_one() -> None:
    placements = (_StridedShard(0, split_factor=3), Shard(0))
    with pytest.raises(ShardingError, match=r"split factor 3 on mesh axis 'dp' .* has: 1, 4$"):
        Sharding.from_torch(device_mesh(DP), placements, 1)
    alone = Mesh((2, 1), ("dp", "tp"))  # one rank neither adds nor changes a factor
    with pytest.raises(ShardingError, match=r"no order of the mesh axes has it; .* has: 1$"):
        Sharding.from_torch(device_mesh(alone), placements, 1)


def test_segments_are_a_factor_of_every_split_factor() -> None:
    placements = (_StridedShard(0, split_factor=3), _StridedShard(0, split_factor=2))
    with pytest.raises(ShardingError, match=r"split factor 3 on mesh axis 'dp' .* has: 2, 8$"):
        Sharding.from_torch(device_mesh(DP), placements, 1)


def test_what_is_no_placement_is_refused() -> None:
    mesh = device_mesh(DP)
    with pytest.raises(ValueError, match=r"on mesh axis 'dp'; its sums are not done, redistribute"):
        Sharding.from_torch(mesh, (Partial(), Replicate()), 2)
    with pytest.raises(ValueError, match=r"placements: 1 for a mesh of 2 axes \('dp', 'tp'\)"):
        Sharding.from_torch(mesh, (Shard(0),), 2)
    with pytest.raises(AxisError, match=r"placements: dim: 2; the array has axes -2 to 1"):
        Sharding.from_torch(mesh, (Shard(2), Replicate()), 2)
    with pytest.raises(TypeError, match="mesh: Mesh; wanted a DeviceMesh"):
        Sharding(DP, ("dp",)).to_torch(DP)
    with pytest.raises(ValueError, match=r"mesh: \{'dp': 2, 'tp': 4\}; the sharding is on"):
        cut().to_torch(mesh)


def test_what_is_no_named_sharding_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^sharding: SingleDeviceSharding; wanted a Nam"):
        Sharding.from_jax(jax.sharding.SingleDeviceSharding(jax.devices()[0]))
    free = NamedSharding(jax_mesh(DP), P("dp", P.UNCONSTRAINED))
    with pytest.raises(ValueError, match="leaves something to the compiler; name every axis, or N"):
        Sharding.from_jax(free)
    explicit = jax.make_mesh((2,), ("dp",), (AxisType.Explicit,), devices=jax.devices()[:2])
    to_come = NamedSharding(explicit, P(None, reduced={"dp"}))
    with pytest.raises(ValueError, match="has the gradient unreduced; take the array to the same"):
        Sharding.from_jax(to_come)
    on_host = NamedSharding(jax_mesh(DP), P("dp"), memory_kind="pinned_host")
    said = "sharding: memory kind 'pinned_host'; wanted device memory: jax.device_put the array "
    with pytest.raises(ValueError, match=said):
        Sharding.from_jax(on_host)
    with pytest.raises(TypeError, match=r"mesh: DeviceMesh; wanted a jax\.sharding\.Mesh"):
        cut().to_jax(device_mesh(TP))
    with pytest.raises(ValueError, match=r"mesh: \{'dp': 2, 'tp': 4\}; the sharding is on"):
        cut().to_jax(jax_mesh(DP))


def test_torch_runs_what_it_counts_and_compiles_for_no_target() -> None:
    with pytest.raises(LayoutError, match="target: 'h100' with torch, which runs `fn`; leave it"):
        wire_bytes(lambda x: x, torch.ones(2), target="h100")
