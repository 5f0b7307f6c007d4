"""What the ranks of a pool are asked to gather."""

from __future__ import annotations

import ctypes
import gc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.multiprocessing.reductions import StorageWeakRef

import xlayout as xl
import xlayout_torch.collective as collective
from tests.shard.on_ranks import dtensor, partial
from xlayout import Sharding
from xlayout.torch import regather


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
        "partial along one axis": [Partial(), Replicate()],
        "partial along one that stays": [Replicate(), Partial()],
    }
    counting = torch.arange(x.size, dtype=torch.float32).reshape(x.shape)
    if how.startswith("partial"):
        share = 0.25 if mesh.get_local_rank(placements[how].index(Partial())) == 0 else 0.75
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
    start = _status("VmRSS")
    made = run()
    peak = _status("VmHWM")
    del made
    return peak - start


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(field))
    return int(line.split()[1]) << 10


def trained(rank: int, src: Sharding, local: bool) -> tuple[bool, dict[str, int], dict[str, int]]:
    """Whether three layers have the same gradients; by way, wholes kept and bytes received."""
    found = []
    for context in (nullcontext, regather):
        weights = _weights(rank, src, 3, 8)
        x = torch.ones(2, 8, dtype=torch.bfloat16, requires_grad=True)
        wholes: list[StorageWeakRef] = []
        told = _told(wholes)
        collective.LISTENERS.append(told)
        with context():
            loss = _layers(weights, x, local)
        collective.LISTENERS.remove(told)
        kept = sum(not whole.expired() for whole in wholes)
        counted = xl.wire_bytes(torch.Tensor.backward, loss)
        grads = [w.grad.to_local() for w in weights]
        found.append((grads, {"kept": kept, "recv": counted.get("recv", 0)}))
    (plain, before), (again, after) = found
    return all(map(torch.equal, plain, again)), before, after


def _told(wholes: list[StorageWeakRef]) -> Any:
    def told(whole: DTensor, _part: DTensor, _again: Any) -> None:
        wholes.append(StorageWeakRef(whole.to_local().untyped_storage()))

    return told


def _weights(rank: int, src: Sharding, layers: int, width: int) -> list[DTensor]:
    generator = np.random.default_rng(0)
    return [
        dtensor(rank, generator.normal(size=(width, width)).astype(np.float32), src)
        .requires_grad_()
        for _ in range(layers)
    ]  # fmt: skip


def _layers(weights: list[DTensor], x: torch.Tensor, local: bool) -> torch.Tensor:
    """One product per layer, on local tensors or on DTensors."""
    whole: list[Any] = [Replicate()] * weights[0].device_mesh.ndim
    y: Any = x if local else DTensor.from_local(x, weights[0].device_mesh, whole)
    for weight in weights:
        gathered = xl.all_gather(weight, dtype="bfloat16")
        used = gathered.to_local(grad_placements=whole) if local else gathered
        y = torch.relu(y @ used.T)
    total = y.float().square().sum()
    return total if local else total.to_local()


def resident(rank: int, src: Sharding, layers: int, width: int) -> tuple[int, int]:
    """Bytes held after the forward pass, with wholes saved and without."""
    found = []
    for context in (nullcontext, regather):
        weights = _weights(rank, src, layers, width)
        x = torch.ones(2, width, dtype=torch.bfloat16)
        before = _resident()
        with context():
            loss = _layers(weights, x, local=True)
        found.append(_resident() - before)
        del loss, weights
    return found[0], found[1]


def _resident() -> int:
    """Bytes held, once freed memory is back with the system, where its reuse would show."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def ungathered(_rank: int) -> bool:
    """A layer alongside, whose weight is not gathered."""
    layer = torch.nn.Linear(3, 3)
    with regather():
        loss = layer(torch.ones(1, 3)).square().sum()
    loss.backward()
    return layer.weight.grad is not None and bool(layer.weight.grad.isfinite().all())


def used(rank: int, src: Sharding, how: str) -> bool:
    """Whether a use of a gathered tensor has the same gradients if it is gathered again."""
    found = []
    for context in (nullcontext, regather):
        numbers = np.arange(64).reshape(8, 8)
        leaf = dtensor(rank, numbers + 1j * numbers.T, src).requires_grad_()
        x = torch.ones(8, 8, dtype=torch.complex128, requires_grad=True)
        with context():
            product = x * USES[how](xl.all_gather(leaf))
        product.abs().sum().backward()
        found.append((leaf.grad.to_local(), x.grad))
    return all(map(torch.equal, *found))


USES: dict[str, Any] = {
    "conjugate": lambda whole: whole.to_local().conj(),
    "negative": lambda whole: whole.to_local().conj().imag,
    "written": lambda whole: whole.mul_(2).to_local(),
    "local written": lambda whole: _doubled(whole).to_local(),
}


def _doubled(whole: DTensor) -> DTensor:
    with torch.no_grad():
        whole.to_local().mul_(2)
    return whole


def written(rank: int, src: Sharding, local: bool) -> str:
    """The error if a part is written into before the backward pass."""
    leaf = dtensor(rank, np.ones((8, 8)), src).requires_grad_()
    x = torch.ones(8, 8, dtype=torch.float64, requires_grad=True)
    with regather():
        product = x * xl.all_gather(leaf).to_local()
    with torch.no_grad():
        (leaf.to_local() if local else leaf).mul_(2)
    try:
        product.sum().backward()
    except RuntimeError as error:
        return str(error)
    return ""


def inferred(rank: int, src: Sharding) -> bool:
    """Whether gathering gives the same in inference mode as outside of it."""
    part = dtensor(rank, np.arange(64.0).reshape(8, 8), src)
    found = []
    for context in (nullcontext, regather):
        with context(), torch.inference_mode():
            found.append(xl.all_gather(part).to_local())
    return all(torch.equal(whole, xl.all_gather(part).to_local()) for whole in found)
