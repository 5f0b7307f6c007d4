"""A placement means the same on both sides: DTensor's per mesh axis, JAX's per array dimension."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

from xlayout.bridge import dtensor_to_jax, jax_to_dtensor
from xlayout_torch.distributed import placements_of, spec_of

AXES = ("a", "b", "c")
SIZES = (2, 3, 4)


@pytest.mark.parametrize(
    ("placements", "spec"),
    [
        ([Shard(0), Shard(1), Replicate()], (("a",), ("b",))),
        ([Shard(-1), Replicate(), Shard(0)], (("c",), ("a",))),
        ([Shard(0), Shard(0), Shard(0)], (("a", "b", "c"), ())),
        ([_StridedShard(0, split_factor=3), Shard(0), Replicate()], (("b", "a"), ())),
        ([_StridedShard(0, split_factor=12), Shard(0), Shard(0)], (("b", "c", "a"), ())),
        ([_StridedShard(0, split_factor=4), Replicate(), Shard(0)], (("c", "a"), ())),
        ([Shard(0), _StridedShard(0, split_factor=4), Shard(0)], (("a", "c", "b"), ())),
    ],
)
def test_placements_are_read_as_jax_writes_them(placements: Any, spec: Any) -> None:
    assert spec_of(AXES, SIZES, placements, 2) == spec
    written = placements_of(spec, AXES, SIZES)
    assert spec_of(AXES, SIZES, written, 2) == spec


@pytest.mark.parametrize("order", [p for n in range(4) for p in permutations(AXES, n)], ids=str)
def test_every_order_of_cuts_round_trips(order: tuple[str, ...]) -> None:
    spec = ((), order)
    assert spec_of(AXES, SIZES, placements_of(spec, AXES, SIZES), 2) == spec


@pytest.mark.parametrize("order", list(permutations(AXES)), ids=str)
def test_a_strided_shard_holds_the_rows_jax_gives_it(order: tuple[str, ...]) -> None:
    """DTensor's own cutting, run for every coordinate, against major-to-minor arithmetic."""
    rows = torch.arange(48)
    placements = placements_of((order,), AXES, SIZES)
    for rank in range(24):
        place = dict(zip(AXES, (rank // 12, rank // 4 % 3, rank % 4), strict=True))
        expected = rows
        for axis in order:
            expected = expected.chunk(SIZES[AXES.index(axis)])[place[axis]]
        assert dtensor_rows(rows, placements, place).tolist() == expected.tolist()


def dtensor_rows(rows: torch.Tensor, placements: Any, place: dict[str, int]) -> torch.Tensor:
    """The rows at one place, as DTensor deals them: axis by axis, a strided one by section."""
    for axis, size, placement in zip(AXES, SIZES, placements, strict=True):
        parts = getattr(placement, "split_factor", 1)
        dealt = [section.chunk(size)[place[axis]] for section in rows.chunk(parts)]
        rows = torch.cat(dealt)
    return rows


def test_what_jax_cannot_say_is_refused_with_a_way_out() -> None:
    with pytest.raises(
        ValueError, match=r"placements: .* on mesh axis 'b' holds sums that are not"
    ):
        spec_of(AXES, SIZES, [Shard(0), Partial(), Replicate()], 2)
    with pytest.raises(ValueError, match=r"split factor \(they give \[1, 3\]\), so JAX cannot say"):
        spec_of(AXES, SIZES, [_StridedShard(0, split_factor=2), Shard(0), Replicate()], 2)
    with pytest.raises(ValueError, match="on mesh axis 'a'; a NamedSharding knows Shard, _Strided"):
        spec_of(AXES, SIZES, [SimpleNamespace(dim=0), Replicate(), Replicate()], 1)


def test_a_dtensor_of_one_rank_needs_one_jax_device(one_rank: Any) -> None:
    x = distribute_tensor(torch.ones(4), one_rank, [Shard(0)])
    with pytest.raises(ValueError, match="8 JAX devices in 1 processes; wanted one a process"):
        dtensor_to_jax(x)


def test_a_dtensor_never_loses_its_gradient(one_rank: Any) -> None:
    x = distribute_tensor(torch.ones(4, requires_grad=True), one_rank, [Shard(0)])
    with pytest.raises(TypeError, match=r"the DTensor requires grad, .*; x.detach\(\)"):
        dtensor_to_jax(x)
    with pytest.raises(TypeError, match=r"expected a DTensor, got torch.Tensor"):
        dtensor_to_jax(torch.ones(3))


def test_only_a_jax_array_becomes_a_dtensor(one_rank: Any) -> None:
    with pytest.raises(TypeError, match=r"x: torch.Tensor; wanted a jax.Array"):
        jax_to_dtensor(torch.ones(3), one_rank)


def test_partial_sums_are_refused_before_anything_is_shared(one_rank: Any) -> None:
    x = DTensor.from_local(torch.ones(4), one_rank, [Partial()])
    with pytest.raises(ValueError, match=r"pass x.redistribute\(...\) of it"):
        dtensor_to_jax(x)
