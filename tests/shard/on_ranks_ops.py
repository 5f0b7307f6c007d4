"""What the ranks of a pool are asked about every op."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils import _pytree as pytree

import xlayout as xl
from tests.shard.compilers import Aot
from tests.shard.on_ranks import device_mesh, dtensor, position
from tests.shard.ops import OPS, REPEATS, Spec, some
from xlayout import Mesh, Sharding
from xlayout.shard import Split

__all__ = [
    "UNEVEN",
    "compared",
    "derivatives",
    "of_dtypes",
    "of_no_elements",
    "of_one_element",
    "of_other_axes",
    "of_segments",
    "of_uneven",
    "out_of_order",
    "repeated",
    "repeated_alone",
    "second_derivative",
]


def compared(
    _rank: int, name: str, on: Mesh, told: bool, compiled: bool
) -> tuple[bool, bool, bool]:
    """Whether an op on DTensors has the values and gradients it has on tensors, and its place."""
    op, shapes, lies, to = OPS[name]
    mesh = device_mesh(on)
    src, dst = (Sharding(on, spec).to_torch(mesh) for spec in (lies, to))
    given = [torch.from_numpy(some(shape, k)) for k, shape in enumerate(shapes)]
    wanted, back = _run(op, [x.requires_grad_() for x in given])

    def use(*xs: Any) -> Any:
        return op(*xs, **({"out_sharding": dst} if told else {}))

    if compiled:
        torch._dynamo.reset()
        use = torch.compile(use, backend=Aot(), fullgraph=True)
    leaves = [_distributed(x.detach(), mesh, src).requires_grad_() for x in given]
    made, gradients = _run(use, leaves)
    lying = not told or all(tuple(y.placements) == tuple(dst) for y in made)
    return _same(made, wanted), _same(gradients, back), lying


def _run(op: Any, xs: list[Any]) -> tuple[list[Any], list[Any]]:
    """The op's results, and the gradients of a weighted sum of them."""
    made = pytree.tree_leaves(op(*xs))
    weights = [torch.from_numpy(some(tuple(y.shape), 9 + k)) for k, y in enumerate(made)]
    like = [
        _distributed(w, y.device_mesh, y.placements) if isinstance(y, DTensor) else w
        for y, w in zip(made, weights, strict=True)
    ]
    return made, list(torch.autograd.grad(made, xs, like))


def _distributed(x: torch.Tensor, mesh: DeviceMesh, placements: Any) -> DTensor:
    return distribute_tensor(x, mesh, placements, src_data_rank=None)


def _same(made: list[Any], wanted: list[Any]) -> bool:
    return all(torch.equal(y.full_tensor(), w) for y, w in zip(made, wanted, strict=True))


def of_one_element(_rank: int, on: Mesh) -> list[str]:
    """How the results of an array with a single, sharded row are placed; wrong ones say so."""
    values = torch.arange(6.0).reshape(1, 2, 3)
    x = _distributed(values, device_mesh(on), Sharding(on, ("tp",)).to_torch(device_mesh(on)))
    found = []
    for op in (
        lambda x: xl.unstack(x, axis=1)[1],
        lambda x: xl.rearrange(x, "a b c -> (a b) c"),
        lambda x: xl.rearrange(x, "a b c -> a (b c)"),
        lambda x: xl.permute_dims(x, axes=(1, 0, 2)),
    ):
        y = op(x)
        right = torch.equal(y.full_tensor(), op(values))
        lies = Sharding.from_torch(y.device_mesh, y.placements, y.ndim)
        found.append(f"{lies.spec}" if right else "wrong")
    return found


def of_no_elements(_rank: int, on: Mesh, comm: str, spec: Spec) -> list[bool]:
    """Whether results are right, and have torch's strides, where some arrays are empty, or all."""
    mesh, found = device_mesh(on), []
    for pattern, *shapes in (
        ("a b -> (a b)", (0, 4)),
        ("(a b=4) -> a b", (0,)),
        ("a b -> b a", (0, 4)),
        ("a b, c -> (a b + c)", (0, 4), (8,)),
        ("(a b=4 + c=8) -> a b, c", (8,)),
    ):
        given = [torch.arange(float(math.prod(shape))).reshape(shape) for shape in shapes]
        lies = [Sharding(on, spec[: x.ndim]).to_torch(mesh) for x in given]
        parts = [_distributed(x, mesh, at) for x, at in zip(given, lies, strict=True)]
        made = pytree.tree_leaves(xl.rearrange(parts, pattern, comm=comm))
        wanted = pytree.tree_leaves(xl.rearrange(given, pattern))
        strides = [y.stride() for y in made] == [y.stride() for y in wanted]
        found.append(_same(made, wanted) and strides)
    return found


def of_dtypes(_rank: int, on: Mesh, names: tuple[str, ...]) -> list[str]:
    """The dtypes of which a DTensor's rows, cut over all ranks, do not come apart bit for bit."""
    mesh, wrong = device_mesh(on), []
    for name in names:
        x = torch.arange(24, dtype=torch.float32).reshape(4, 6).to(getattr(torch, name))
        made = xl.unstack(_distributed(x, mesh, Sharding(on, ("tp",)).to_torch(mesh)))
        rows = [y.to_local() for y in made]
        same = all(torch.equal(row.float(), y.float()) for row, y in zip(rows, x, strict=True))
        if not same or {y.dtype for y in made} != {x.dtype}:
            wrong.append(name)
    return wrong


def at_once(_rank: int, on: Mesh) -> bool:
    """Whether an op whose result DTensor lays is compiled on a mesh on which none ran before."""
    torch._dynamo.reset()
    values = torch.arange(32.0).reshape(4, 8)
    x = _distributed(values, device_mesh(on), Sharding(on, on.names).to_torch(device_mesh(on)))
    made = torch.compile(xl.unstack, backend="aot_eager", fullgraph=True)(x)
    return all(torch.equal(y.full_tensor(), row) for y, row in zip(made, values, strict=True))


def inferred(_rank: int, on: Mesh) -> bool:
    """Whether holes are filled in inference mode."""
    values = torch.arange(8.0).reshape(4, 2)
    x = _distributed(values, device_mesh(on), Sharding(on, ("tp",)).to_torch(device_mesh(on)))
    with torch.inference_mode():
        made, wanted = (xl.pad(y, to=3, axis=1, value=2.5) for y in (x, values))
    return torch.equal(made.full_tensor(), wanted)


def of_uneven(_rank: int, on: Mesh, by: str | tuple[str, ...]) -> list[bool]:
    """Whether axes are regrouped correctly that are cut unevenly, before or afterwards."""
    cases: list[tuple[tuple[int, ...], str, dict[str, int]]] = [
        ((8,), "(a b) -> b a", {"a": 2}),
        ((5, 8), "a b -> (b a)", {}),
        ((18, 2), "(a b) c -> a b c", {"a": 6}),
    ]
    found = []
    for shape, pattern, sizes in cases:
        values = torch.from_numpy(some(shape, 3))
        lies = Sharding(on, (by,)).to_torch(device_mesh(on))
        given = [values.clone(), _distributed(values, device_mesh(on), lies)]
        (made, back), (wanted, right) = (
            _run(lambda x, p=pattern, o=sizes: xl.rearrange(x, p, **o), [x.requires_grad_()])
            for x in reversed(given)
        )
        found.append(_same(made, wanted) and _same(back, right))
    return found


def out_of_order(rank: int, on: Mesh, order: tuple[int, ...]) -> bool:
    """Whether results with other axes are right when the mesh lists its ranks in this order."""
    values = np.arange(24.0).reshape(8, 3)
    xs = [dtensor(rank, values, Sharding(on, (name,)), order) for name in on.names]
    made = [y for x in xs for y in (*xl.unstack(x), xl.rearrange(x, "a b -> (b a)"))]
    lie = [Sharding.from_torch(y.device_mesh, y.placements, y.ndim) for y in made]
    at, wholes = position(rank, order), [*values, values.T.ravel()] * len(xs)
    return all(
        np.array_equal(y.to_local().numpy(), sharding.layout(at, whole.shape)(whole))
        for y, sharding, whole in zip(made, lie, wholes, strict=True)
    )


def of_segments(rank: int, on: Mesh) -> bool:
    """Whether rows come out right if one has segments that both mesh axes cut."""
    rows = [np.arange(12.0), np.arange(12.0) + 20]
    fused = Sharding(on, (on.names,), splits={0: Split(segments=3)})
    given = [dtensor(rank, rows[0], Sharding(on, ("tp",))), dtensor(rank, rows[1], fused)]
    made = xl.reshard(xl.stack(given), Sharding(on, ())).to_local().numpy()
    return np.array_equal(made, np.stack(rows))


def of_other_axes(rank: int, on: Mesh, parts: int, size: int, pattern: str) -> bool:
    """Whether an array that is cut in segments is regrouped correctly."""
    x = np.arange(float(size))
    given = dtensor(rank, x, Sharding(on, ("tp",), splits={0: Split(segments=parts)}))
    made, wanted = (xl.rearrange(y, pattern, a=4) for y in (given, x))
    lies = Sharding.from_torch(made.device_mesh, made.placements, made.ndim)
    return np.array_equal(made.to_local().numpy(), lies.layout(rank, wanted.shape)(wanted))


def second_derivative(_rank: int, on: Mesh) -> bool:
    """The second derivative of squared sums of a padded array, on many ranks and on one."""

    def twice(x: Any) -> Any:
        rows = xl.pad(x, to=3, axis=1, value=2.5).sum(1)
        (once,) = torch.autograd.grad((rows**2).sum(), x, create_graph=True)
        (again,) = torch.autograd.grad((once * once).sum(), x)
        return again

    mesh, values = device_mesh(on), torch.arange(16.0).reshape(8, 2)
    given = _distributed(values, mesh, Sharding(on, ("tp",)).to_torch(mesh)).requires_grad_()
    return torch.equal(twice(given).full_tensor(), twice(values.requires_grad_()))


# name: (shape, op on the rows of an array); some ranks hold less than others, before or after
UNEVEN: dict[str, tuple[tuple[int, ...], Any]] = {
    "interleave": ((2, 4), xl.interleave),
    "matrix_transpose": ((3, 4), xl.matrix_transpose),
    "rearrange": ((2, 4), lambda x: xl.rearrange(x, "a b -> (b a)")),
    "split_qkv": ((8, 4), lambda x: xl.split_qkv(x, heads=2, kv_heads=1)),
    "unstack": ((3, 4), lambda x: xl.unstack(x, axis=1)),
    "all_gather": ((3, 4), lambda x: xl.all_gather(x) if isinstance(x, DTensor) else x * 1),
}


def derivatives(_rank: int, name: str, on: Mesh) -> list[bool]:
    """Whether the first three derivatives of an op's results are those that it has on one rank."""
    shape, op = UNEVEN[name]

    def found(x: torch.Tensor) -> list[Any]:
        made, values = [x], pytree.tree_leaves(op(x))
        for power in (4, 2, 2):
            loss = sum((y**power).sum() for y in values)
            values = list(torch.autograd.grad(loss, x, create_graph=True))
            made += values
        return made[1:]

    mesh, x = device_mesh(on), torch.arange(float(math.prod(shape))).reshape(shape) % 7 - 3
    given = _distributed(x, mesh, Sharding(on, ("tp",)).to_torch(mesh)).requires_grad_()
    pairs = zip(found(given), found(x.requires_grad_()), strict=True)
    return [torch.equal(a.full_tensor(), b) for a, b in pairs]


def repeated(_rank: int, name: str, src: Any, dst: Any, compiler: Any) -> list[bool]:
    """Whether a layout that repeats elements has the gradients that it has on one rank.

    The first derivative, where its arrays lie, and the second, except of what is compiled: there
    torch itself has none.
    """
    layout, mesh = REPEATS[name], device_mesh(src[0].mesh)

    def numbers(shapes: Any) -> list[torch.Tensor]:  # whole ones: sums do not depend on the order
        return [torch.arange(float(np.prod(s))).reshape(s) % 7 - 3 for s in shapes]

    def onto(xs: list[Any], lies: Any) -> list[Any]:
        pairs = zip(xs, lies, strict=True)
        return [_distributed(x.detach(), mesh, s.to_torch(mesh)) for x, s in pairs]

    def run(move: Any, xs: list[Any], weights: list[Any]) -> list[list[Any]]:
        xs = [x.requires_grad_() for x in xs]
        made = pytree.tree_leaves(move(*xs))
        loss = sum((y**2 * w).sum() for y, w in zip(made, weights, strict=True))
        once = list(torch.autograd.grad(loss, xs, create_graph=True))
        if compiler:
            return [once]
        return [once, list(torch.autograd.grad(sum((g**2).sum() for g in once), xs))]

    def move(*xs: Any) -> Any:
        return xl.reshard(xs, dst, layout=layout)

    if compiler:
        torch._dynamo.reset()
        move = torch.compile(move, backend=compiler(), fullgraph=True)
    plain, weights = numbers(layout.in_shapes), numbers(layout.out_shapes)
    made = run(move, onto(plain, src), onto(weights, dst))
    wanted = run(layout, plain, weights)
    lies = [tuple(g.placements) == s.to_torch(mesh) for g, s in zip(made[0], src, strict=True)]
    return [*(_same(a, b) for a, b in zip(made, wanted, strict=True)), *lies]


def repeated_alone(_rank: int, on: Mesh) -> dict[str, int]:
    """What moves for a gradient if no element leaves its rank, and nothing is cut along `dp`."""
    mesh = device_mesh(on)
    to = Sharding(on, ("tp",)).to_torch(mesh)
    x = _distributed(torch.ones(8, 8), mesh, to).requires_grad_()

    def gradient(x: Any) -> Any:
        made = xl.reshard(x, to, layout=REPEATS["heads"])
        return torch.autograd.grad(made, x, made.detach())

    return xl.wire_bytes(gradient, x)
