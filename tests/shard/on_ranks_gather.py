"""What the ranks of a pool are asked to gather."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.multiprocessing.reductions import StorageWeakRef

import xlayout as xl
from tests.shard.compilers import Aot
from tests.shard.on_ranks import device_mesh, dtensor, partial
from xlayout import Mesh, Sharding
from xlayout_torch import transport


def narrow(
    rank: int, x: np.ndarray, src: Sharding, axis: str | None, dtype: str
) -> tuple[bool, dict[str, int]]:
    """Whether a gather equals a wide one that is cast afterwards, bit for bit; bytes received."""
    kind, given = getattr(torch, dtype), dtensor(rank, x, src)
    made: list[DTensor] = []
    counted = xl.wire_bytes(
        lambda x: made.append(xl.all_gather(x, mesh_axis=axis, dtype=dtype)), given
    )
    dst = src.without(*([axis] if axis else src.mesh.names))
    wide = dst.layout(rank, x.shape)(torch.from_numpy(x)).to(kind)
    assert made[0].placements == dst.to_torch(given.device_mesh)
    assert made[0].dtype == kind
    return torch.equal(_bits(made[0].to_local()), _bits(wide)), counted


def named(rank: int, x: np.ndarray, src: Sharding, axes: Any) -> bool:
    """Whether a gather along these mesh axes, which are all, has the elements of the array."""
    whole = xl.all_gather(dtensor(rank, x, src), mesh_axis=axes)
    return torch.equal(whole.to_local(), torch.from_numpy(x))


def columns(
    rank: int, x: np.ndarray, src: Sharding, compiled: bool
) -> tuple[bool, tuple[int, ...]]:
    """Whether what was gathered is flattened correctly, and the strides of the local tensor."""
    torch._dynamo.reset()
    gather = torch.compile(xl.all_gather, backend=Aot(), fullgraph=True, disable=not compiled)
    whole = gather(dtensor(rank, x, src))
    flat = whole.reshape(-1).to_local()
    return torch.equal(flat, torch.from_numpy(x).flatten()), whole.to_local().stride()


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.uint8)


def gradient(
    rank: int, x: np.ndarray, src: Sharding, axis: str | None, reduce_dtype: str
) -> tuple[str, np.ndarray, dict[str, int]]:
    """The gradient of a loss to which every rank adds a part; bytes received."""
    leaf = dtensor(rank, x, src).requires_grad_()
    whole = xl.all_gather(leaf, mesh_axis=axis, dtype="bfloat16", reduce_dtype=reduce_dtype)
    local = whole.to_local(grad_placements=[partial(p) for p in whole.placements])
    loss = local.sum() * (1.0 if rank == 0 else 2.0**-9)
    counted = xl.wire_bytes(lambda loss: loss.backward(), loss)
    assert leaf.grad is not None
    assert leaf.grad.placements == leaf.placements
    return str(leaf.grad.dtype), leaf.grad.to_local().numpy(), counted


def summed(rank: int, shape: tuple[int, ...], src: Sharding, shares: list[float]) -> np.ndarray:
    """The gradient of a loss of which every rank has its share."""
    leaf = dtensor(rank, np.ones(shape, np.float32), src).requires_grad_()
    whole = xl.all_gather(leaf).to_local(grad_placements=[Partial()])
    (found,) = torch.autograd.grad(whole.sum() * shares[rank], leaf)
    return np.asarray(found.to_local())


def summed_conjugate(rank: int, src: Sharding, shares: list[complex]) -> np.ndarray:
    """The gradient of a loss of which every rank has its share of the gathered conjugate."""
    leaf = dtensor(rank, np.ones((8, 2), np.complex64), src).requires_grad_()
    whole = xl.all_gather(leaf, reduce_dtype="float64").to_local(grad_placements=[Partial()])
    (found,) = torch.autograd.grad((whole.conj() * shares[rank]).sum().real, leaf)
    return np.asarray(found.to_local().resolve_conj())


def gradient_of(_rank: int, src: Sharding, kind: str, weight: complex) -> bool:
    """Whether the gradient through a gather is that of the array, to the last digit."""
    leaf = dtensor(_rank, np.ones((8, 2), kind), src).requires_grad_()
    whole = xl.all_gather(leaf).to_local()
    (found,) = torch.autograd.grad(torch.real(whole * weight).sum(), leaf)
    alone = torch.ones((8, 2), dtype=whole.dtype, requires_grad=True)
    (wanted,) = torch.autograd.grad(torch.real(alone * weight).sum(), alone)
    return torch.equal(found.full_tensor(), wanted)


def gradient_as(rank: int, x: np.ndarray, src: Sharding, how: str) -> np.ndarray:
    """The gradient, if that of the whole is 0, 1, 2, ... and arrives under other placements."""
    leaf = dtensor(rank, x, src).requires_grad_()
    axis = "dp" if how.endswith("stays") else None
    whole = xl.all_gather(leaf, mesh_axis=axis, dtype="float32")
    mesh = whole.device_mesh
    placements: dict[str, list[Any]] = {
        "whole": [Replicate(), Replicate()],
        "cut": list(leaf.placements),
        "cut elsewhere": [Shard(1), Replicate()],
        "averaged along one axis": [Partial("avg"), Replicate()],
        "partial along one axis": [Partial(), Replicate()],
        "partial along one that stays": [Replicate(), Partial()],
    }
    counting = torch.arange(x.size, dtype=torch.float32).reshape(x.shape)
    if how.startswith(("averaged", "partial")):
        axis = next(k for k, p in enumerate(placements[how]) if p.is_partial())
        share = 0.25 if mesh.get_local_rank(axis) == 0 else 0.75
        share *= 2 if how.startswith("averaged") else 1
        given = DTensor.from_local(counting * share, mesh, placements[how], run_check=False)
    else:
        even = DTensor.from_local(counting, mesh, placements["whole"], run_check=False)
        given = even.redistribute(mesh, placements[how])
    (found,) = torch.autograd.grad(whole, leaf, given)
    local: np.ndarray = found.to_local().numpy()
    return local


def gradient_of_parts(rank: int, src: Sharding, order: tuple[int, ...]) -> bool:
    """Whether a gradient is right that reaches a gather in parts, from a product of DTensors."""
    leaf = dtensor(rank, np.ones((8, 2)), src, order).requires_grad_()
    beside = dtensor(rank, np.arange(16.0).reshape(8, 2), src, order)
    (xl.all_gather(leaf) * beside).to_local().sum().backward()
    assert leaf.grad is not None
    return torch.equal(leaf.grad.to_local(), beside.to_local())


def conjugated(rank: int, src: Sharding) -> bool:
    """Whether a lazily conjugated tensor is gathered conjugated."""
    x = np.arange(16).reshape(8, 2) * (1 + 2j)
    whole = xl.all_gather(dtensor(rank, x, src).conj()).to_local()
    return bool((whole.resolve_conj().numpy() == x.conj()).all())


def negated(rank: int, src: Sharding) -> bool:
    """Whether a lazily negated part is gathered negated."""
    x = np.arange(16.0).reshape(8, 2)
    given = dtensor(rank, x, src)
    part = torch._neg_view(given.to_local())  # of an imaginary part it would not be contiguous
    whole = xl.all_gather(DTensor.from_local(part, given.device_mesh, given.placements)).to_local()
    return torch.equal(whole, -torch.from_numpy(x))


def by_collectives(rank: int, src: Sharding, order: Any, kind: str) -> bool:
    """Whether elements of a dtype are gathered that no collective may carry."""
    x = np.arange(16.0).reshape(8, 2)
    with mock.patch.object(transport, "_in_pairs", return_value=False):
        whole = xl.all_gather(dtensor(rank, x, src, order), dtype=kind).to_local()
    return torch.equal(_bits(whole), _bits(torch.from_numpy(x).to(getattr(torch, kind))))


def of_views(_rank: int, on: Mesh, n: int) -> bool:
    """Whether parts and gradients that are every other element of something are gathered."""
    mesh, ranks = device_mesh(on), on.shape[0]
    every, at = torch.arange(16.0)[::2][: n * ranks], n * mesh.get_local_rank(0)
    lies = [Shard(0), *[Replicate()] * (mesh.ndim - 1)]
    leaf = DTensor.from_local(every[at : at + n], mesh, lies, run_check=False).requires_grad_()
    whole = xl.all_gather(leaf)
    given = DTensor.from_local(every, mesh, [Partial(), *lies[1:]], run_check=False)
    (found,) = torch.autograd.grad(whole, leaf, given)
    return torch.equal(whole.to_local(), every) and torch.equal(
        found.to_local(), every[at : at + n] * ranks
    )


def on_its_way(rank: int, x: np.ndarray, src: Sharding) -> bool:
    """Whether a part that another collective has not delivered yet is waited for."""
    grid = dtensor(rank, x, src)
    columns = grid.redistribute(grid.device_mesh, [Shard(1), Replicate()], async_op=True)
    with torch.no_grad():
        assert type(columns.to_local()) is not torch.Tensor
    return torch.equal(xl.all_gather(columns).to_local(), torch.from_numpy(x))


def held(rank: int, src: Sharding) -> int:
    """Bytes of the memory that the gradient of a part keeps."""
    leaf = dtensor(rank, np.ones((8, 2), np.float32), src).requires_grad_()
    whole = xl.all_gather(leaf).to_local(grad_placements=[Partial()])
    (found,) = torch.autograd.grad(whole.sum(), leaf)
    return found.to_local().untyped_storage().nbytes()


def second_gradient(rank: int, x: np.ndarray, src: Sharding) -> np.ndarray:
    """Of the sum over all ranks of x³: 6x, of each rank's copy of the whole."""
    leaf = dtensor(rank, x, src).requires_grad_()
    whole = xl.all_gather(leaf).to_local(grad_placements=[Partial()])
    (first,) = torch.autograd.grad((whole**3).sum(), leaf, create_graph=True)
    (second,) = torch.autograd.grad(first.to_local().sum(), leaf)
    local: np.ndarray = second.to_local().numpy()
    return local


def saved(rank: int, x: np.ndarray, src: Sharding, axis: str | None) -> list[int]:
    """The elements of each tensor that a gather saves."""
    kept: list[int] = []

    def keep(x: torch.Tensor) -> torch.Tensor:
        kept.append(x.numel())
        return x

    given = dtensor(rank, x, src).requires_grad_() + 1
    part = StorageWeakRef(given.to_local().untyped_storage())
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        whole = xl.all_gather(given, mesh_axis=axis, dtype="bfloat16")
    assert whole.requires_grad
    del given
    return kept if part.expired() else [*kept, -1]


def peaks(rank: int, shape: tuple[int, ...], src: Sharding) -> tuple[int, int]:
    """Peak bytes of gathering, with the cast after it and before it."""
    leaf = dtensor(rank, np.ones(shape, np.float32), src)
    after = _peak(lambda: xl.all_gather(leaf).to(torch.bfloat16))
    before = _peak(lambda: xl.all_gather(leaf, dtype="bfloat16"))
    return after, before


def _peak(run: Any) -> int:
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts here
    start = status("VmRSS")
    made = run()
    peak = status("VmHWM")
    del made
    return peak - start


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(field))
    return int(line.split()[1]) << 10
