"""What the ranks of a pool are asked to gather again."""

from __future__ import annotations

import ctypes
import gc
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import xlayout as xl
import xlayout_torch.collective as collective
from tests.shard.on_ranks import dtensor
from tests.shard.on_ranks_gather import status
from xlayout import Sharding
from xlayout.torch import regather


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


def used_twice(rank: int, src: Sharding) -> tuple[int, int]:
    """Bytes received by a product of a weight with itself, and by its gradient, gathered again."""
    leaf = dtensor(rank, np.ones((8, 8), np.float32), src).requires_grad_()
    made: list[torch.Tensor] = []

    def forward(x: DTensor) -> None:
        with regather():
            whole = xl.all_gather(x).to_local(grad_placements=[Partial()])
            made.append((whole.T @ whole).sum())

    there = xl.wire_bytes(forward, leaf)["recv"]
    return there, xl.wire_bytes(torch.Tensor.backward, made[0])["recv"]


EXCHANGES: dict[str, Any] = {
    "gather": lambda w: xl.all_gather(w, dtype="bfloat16"),
    "exchange": lambda w: xl.interleave(w, out_sharding=w.placements),
}
SAVED = {"all but relu": lambda op: "relu" not in op, "collectives": lambda op: "c10d" in op,
         "products": lambda op: ".mm" in op, "nothing": lambda _op: False}  # fmt: skip


def checkpointed(rank: int, src: Sharding, how: str, saved: str) -> bool:
    """Whether gradients are the same if a selective checkpoint saves the results of some ops."""

    def policy(_context: Any, op: Any, *_args: Any, **_kwargs: Any) -> CheckpointPolicy:
        keeps = SAVED[saved](str(op))
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    def loss(weight: DTensor) -> torch.Tensor:
        part = EXCHANGES[how](weight).to_local()
        return torch.relu(torch.relu(part) @ part.T).float().square().sum()

    plain, leaf = (
        dtensor(rank, np.arange(40, dtype=np.float32).reshape(10, 4) % 7 - 3, src).requires_grad_()
        for _ in range(2)
    )
    loss(plain).backward()
    modes = partial(create_selective_checkpoint_contexts, policy)
    checkpoint(loss, leaf, use_reentrant=False, context_fn=modes).backward()
    return torch.equal(plain.grad.to_local(), leaf.grad.to_local())


def _resident() -> int:
    """Bytes held, once freed memory is back with the system, where its reuse would show."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return status("VmRSS")


def released(rank: int, src: Sharding) -> list[bool]:
    """Whether parts that nothing needs are let go of: by the next gather, by the end, after it."""
    parts: list[StorageWeakRef] = []

    def gather() -> None:
        part = dtensor(rank, np.ones((8, 8)), src)
        parts.append(StorageWeakRef(part.to_local().untyped_storage()))
        xl.all_gather(part)

    context = regather()
    with context:
        gather()
        gather()
        found = [parts[0].expired()]
    found.append(parts[1].expired())
    gather()
    return [*found, parts[2].expired()]


def described(rank: int, src: Sharding) -> bool:
    """Whether a DTensor that was gathered again is in every respect the one that was saved."""
    leaf, other = (dtensor(rank, np.ones((8, 4)), src).requires_grad_() for _ in range(2))
    with regather():
        turned = xl.all_gather(leaf).T
        made = turned * xl.all_gather(other).T
    again = made.grad_fn._saved_self  # type: ignore[union-attr]
    assert again is not turned
    return (
        torch.equal(again.to_local(), turned.to_local())
        and all(getattr(again, name)() == getattr(turned, name)() for name in ("size", "stride"))
        and (again.placements, again.dtype) == (turned.placements, turned.dtype)
    )


def sparse(rank: int, src: Sharding) -> bool:
    """Whether a sparse matrix, which has no storage, is saved beside a gathered one."""
    x = torch.ones(8, 8, requires_grad=True)
    with regather():
        whole = xl.all_gather(dtensor(rank, np.ones((8, 8), np.float32), src)).to_local()
        loss = torch.sparse.mm(torch.eye(8).to_sparse(), x * whole).sum()
    loss.backward()
    return torch.equal(x.grad, whole)


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


def written_before(rank: int, src: Sharding) -> bool:
    """Whether a whole keeps its elements if its part is written into before the whole is used."""
    leaf = dtensor(rank, np.ones((8, 8)), src)
    x = torch.ones(8, 8, dtype=torch.float64, requires_grad=True)
    with regather():
        whole = xl.all_gather(leaf).to_local()
        leaf.to_local().mul_(2)
        (x * whole).sum().backward()
    return torch.equal(x.grad, torch.ones_like(x))


def inferred(rank: int, src: Sharding, before: bool) -> bool:
    """Whether gathering gives the same in inference mode as outside of it, or of what it made."""
    with torch.inference_mode(before):
        part = dtensor(rank, np.arange(64.0).reshape(8, 8), src)
    found = []
    for context in (nullcontext, regather):
        with context(), torch.inference_mode(not before):
            found.append(xl.all_gather(part).to_local())
    return all(torch.equal(whole, xl.all_gather(part).to_local()) for whole in found)
