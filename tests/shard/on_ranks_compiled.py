"""What the ranks of a pool are asked to compile and run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial as partial_of
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard

import xlayout as xl
from tests.shard.compilers import Aot, Inductor
from tests.shard.fsdp import WIDTH, Fsdp, collectives
from tests.shard.on_ranks import dtensor, partial
from xlayout import Layout, Sharding
from xlayout.torch import CastBeforeGather


def trained(rank: int) -> tuple[dict[str, bool], dict[str, int]]:
    """Whether loss and gradients equal those of eager mode; the bytes gathered, by compiler."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("fsdp",))
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(rank)).to(torch.bfloat16)
    wanted = _step(Fsdp(mesh), x)
    backends: dict[str, Any] = {
        "as it was traced": Aot(),
        "aot": Aot(CastBeforeGather()),
        "inductor": Inductor(
            joint_custom_post_pass=CastBeforeGather(), emulate_precision_casts=True
        ),
        "inductor, merged": Inductor(
            post_grad_custom_pre_pass=CastBeforeGather(), bucket_all_gathers_fx="all",
            emulate_precision_casts=True,
        ),
    }  # fmt: skip
    same, counted = {}, {}
    for name, backend in backends.items():
        torch._dynamo.reset()
        model, got = Fsdp(mesh), []
        run = torch.compile(model, backend=backend, fullgraph=True)
        received = xl.wire_bytes(lambda x: got.extend(_step(run, x, model)), x)  # noqa: B023
        same[name] = all(map(torch.equal, wanted, got))
        counted[name] = received["all_gather"]
    assert same.pop("as it was traced")
    return same, counted


def _step(run: Any, x: torch.Tensor, model: Any = None) -> list[torch.Tensor]:
    """The loss and this rank's part of each gradient."""
    loss = run(x)
    loss.backward()
    return [loss.detach(), *(p.grad.to_local() for p in (model or run).weights)]


@dataclass
class Made:
    """What a compiled function did, compared with eager mode.

    Attributes:
        same: whether values and gradients are equal, bit for bit.
        collectives: those of its graphs, forward and backward.
        saved: the elements of each tensor that is saved for the backward pass.
    """

    same: bool
    collectives: tuple[str, ...]
    saved: tuple[int, ...]


Order = tuple[int, ...] | None


def resharded(
    rank: int, x: np.ndarray, src: Sharding, dst: Sharding, layout: Layout, order: Order
) -> Made:
    return _compared(lambda x: xl.reshard(x * 2, dst, layout=layout), dtensor(rank, x, src, order))


def ran(
    rank: int, x: np.ndarray, src: Sharding, op: str, options: dict[str, Any], dst: Sharding
) -> Made:
    """Run an op with gradients; the result must be sharded as `dst`."""
    given = dtensor(rank, x, src)
    if options.get("out_sharding") == "columns":
        options = {**options, "out_sharding": [Shard(1)]}

    def use(x: Any) -> Any:
        return getattr(xl, op)(x * 2, **options)

    assert use(given).placements == dst.to_torch(given.device_mesh)
    return _compared(use, given)


def gathered(
    rank: int, x: np.ndarray, src: Sharding, axis: str | None, dtype: str, order: Order
) -> Made:
    """A gather whose result is used like a weight: the product's gradient needs it again."""

    def use(x: Any) -> Any:
        whole = xl.all_gather(x, mesh_axis=axis, dtype=dtype)
        local = whole.to_local(grad_placements=[partial(p) for p in whole.placements])
        return (local.T @ local) * (rank + 1)

    return _compared(use, dtensor(rank, x, src, order))


def changing(rank: int, x: np.ndarray, *shardings: Sharding) -> bool:
    torch._dynamo.reset()
    first = dtensor(rank, x, shardings[0])
    compiled = torch.compile(xl.reshard, backend=Aot(), fullgraph=True)
    return all(
        torch.equal(compiled(first, to).to_local(), xl.reshard(first, to).to_local())
        for to in shardings + shardings
    )


def alternating(rank: int, x: np.ndarray, src: Sharding, *ops: str) -> bool:
    """Whether a compiled function that is given different ops in turn runs each of them."""
    torch._dynamo.reset()
    array = dtensor(rank, x, src)
    run = torch.compile(lambda op, x: op(x, groups=4), backend="aot_eager", fullgraph=True)
    same = []
    for op in (getattr(xl, name) for name in (*ops, *ops)):
        made, wanted = run(op, array), op(array, groups=4)
        same.append(made.placements == wanted.placements and made.equal(wanted))
    return all(same)


def growing(rank: int, x: np.ndarray, src: Sharding) -> bool:
    """Whether ops on several arrays run if their sizes are dynamic from the second call on."""
    torch._dynamo.reset()

    def use(x: Any, y: Any) -> Any:
        return xl.stack([x, y], axis=1), xl.fuse_qkv(x, y, y, heads=2, kv_heads=2)

    run = torch.compile(use, backend="aot_eager", fullgraph=True)
    same = []
    for n in (4, 6, 10):
        array = dtensor(rank, x[:, :n], src)
        made, wanted = run(array, array + 1), use(array, array + 1)
        same += [a.equal(b) for a, b in zip(made, wanted, strict=True)]
    return all(same)


def varying(rank: int, x: np.ndarray, src: Sharding) -> list[str]:
    """The options that a compiled op does not follow when their numbers change."""
    holes = xl.pad.layout(x.shape, to=30)
    uses: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "an integer": (lambda x, n: xl.interleave(x, block=n), (1, 2, 3, 4)),
        "in a list": (lambda x, n: xl.regroup(x, sizes=[4 * n, 24 - 4 * n], groups=2), (1, 2, 3)),
        "by a name": (lambda x, n: xl.rearrange(x, "(a b) c -> b a c", a=n), (2, 3, 4)),
        "a value": (lambda x, n: xl.pad(x, to=30, value=n), (1.5, 2.5, 3.5)),
        "a fill": (lambda x, n: xl.apply(holes, x, fill=n), (1, 2, 3)),
    }
    array, wrong = dtensor(rank, x, src), []
    for name, (use, numbers) in uses.items():
        torch._dynamo.reset()
        run = torch.compile(use, backend="aot_eager", fullgraph=True)
        if not all(run(array, n).equal(use(array, n)) for n in numbers):
            wrong.append(name)
    return wrong


def recompiled(rank: int, x: np.ndarray, src: Sharding) -> list[int]:
    """How many more calls are cached after each of five compilations of two alternating ops."""
    from xlayout_torch import opaque

    array = dtensor(rank, x, src)
    known = []
    for fill in (0.0, 0.0, -0.0, 0.0, -0.0):
        torch._dynamo.reset()
        use = partial_of(xl.pad, to=30, value=fill)
        made = torch.compile(use, backend="aot_eager", fullgraph=True)(array)
        assert torch.equal(made.to_local().signbit(), use(array).to_local().signbit())
        known.append(len(opaque._CALLS))
    return [n - known[0] for n in known]


def _compared(use: Any, x: Any) -> Made:
    torch._dynamo.reset()
    backend = Aot()
    runs = [_gradient(run, x) for run in (use, torch.compile(use, backend=backend, fullgraph=True))]
    same = all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    forward = backend.graphs[0]
    (kept,) = forward.graph.find_nodes(op="output")
    saved = [n.meta["val"] for n in kept.args[0][1:] if hasattr(n, "meta")]
    names = tuple(name for name, *_ in collectives(backend.graphs))
    return Made(same, names, tuple(v.numel() for v in saved if isinstance(v, torch.Tensor)))


def _gradient(run: Any, x: Any) -> tuple[torch.Tensor, torch.Tensor]:
    leaf = x.detach().requires_grad_()
    made = run(leaf)
    local = made.to_local() if hasattr(made, "to_local") else made
    local.float().square().sum().backward()
    return local.detach(), leaf.grad.to_local()
