"""A state dict on a GPU: a thousand tensors laid out together, beside one copy of as many bytes.

    python -m bench.gpu.state [--mib 64 1024]

The tensors are those of a small Llama with many layers: query, key and value fused, gate and up
interleaved, the other weights transposed, norms copied. Every answer is checked. Calls with too
many launches to be queued are timed with their host; a row lists them as "host beside device".
What a call returns is freed before the next one, whose results then mostly lie in the same place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

import xlayout as xl
from bench.gpu.checks import contest, measured, show
from bench.gpu.speed import CUDA, DEVICE, options, raw
from bench.gpu.timing import race
from xlayout.algebra import Layout
from xlayout.lower.moves import moves_of
from xlayout_torch.batch import Batch

__all__ = ["TENSORS", "figures", "main", "row", "state"]

TENSORS = 1000
LAYER = 9  # tensors read in each layer


def state(mib: int) -> tuple[list[Layout], list[Any]]:
    """Layouts and their inputs, about `mib` MB of bfloat16 in all."""
    layers = TENSORS // LAYER
    width = max(64, int(math.sqrt((mib << 20) / 2 / layers / 10.75)) // 16 * 16)
    wide = 3 * width - width % 64
    q, kv, up = (width, width), (width // 4, width), (wide, width)
    layouts = [
        xl.fuse_qkv.layout(q, kv, kv, heads=8, kv_heads=2),
        xl.matrix_transpose.layout(q),
        xl.stack.layout([up, up])
        >> xl.interleave.layout((2 * wide, width)).regrouped(in_shapes=[(2, wide, width)]),
        xl.matrix_transpose.layout((width, wide)),
        Layout.identity((width,)),
        Layout.identity((width,)),
    ] * layers
    return layouts, [tuple(map(filled, layout.in_shapes)) for layout in layouts]


def filled(shape: Sequence[int]) -> torch.Tensor:
    """Random bytes."""
    size = math.prod(shape) * 2
    return (
        torch.randint(0, 127, (size,), dtype=torch.uint8, device=DEVICE)
        .view(torch.bfloat16)
        .view(*shape)
    )


def by_hand(xs: Sequence[Any]) -> Any:
    """What each of the layouts does, in torch."""
    if len(xs) == 3:
        q, k, v = (x.view(2, -1, x.shape[1]) for x in xs)
        return torch.cat((q, k, v), 1).view(-1, q.shape[2])
    if len(xs) == 2:
        return torch.stack(tuple(xs), 1).view(-1, xs[0].shape[1])
    return xs[0].t().contiguous() if xs[0].ndim == 2 else xs[0].clone()


def row(mib: int) -> dict[str, Any]:
    """The figures of a size, or why there are none."""
    op = f"state dict of {TENSORS // LAYER * LAYER}"
    return measured(
        {"framework": "torch", "op": op, "dtype": "bfloat16", "mib": mib}, lambda: figures(op, mib)
    )


def figures(op: str, mib: int) -> dict[str, Any]:
    """The launches alone, the whole call, and torch tensor by tensor."""
    layouts, inputs = state(mib)
    wanted = [by_hand(xs) for xs in inputs]
    outputs = [torch.zeros_like(x) for x in wanted]
    calls: dict[str, Callable[[], Any]] = {
        "apply_many": lambda: xl.apply_many(layouts, inputs),
        "each": lambda: [layout(*xs) for layout, xs in zip(layouts, inputs, strict=True)],
        "eager": lambda: [by_hand(xs) for xs in inputs],
    }
    many = {"each", "eager"}
    batch = Batch.of(
        (moves_of(layout, tuple(x.stride() for x in xs), (y.stride(),)), xs, (y,))
        for layout, xs, y in zip(layouts, inputs, outputs, strict=True)
    )
    if batch is None:
        many.add("apply_many")
    else:
        calls["batch"] = lambda: (batch.run(), outputs)[1]
    size = sum(y.nbytes for y in wanted)
    source, target = torch.ones(2, size, dtype=torch.uint8, device=DEVICE).unbind()
    found = contest(
        op,
        calls,
        lambda made: all(map(torch.equal, map(raw, made), map(raw, wanted))),
        lambda sound: race(sound, lambda: target.copy_(source), cuda=CUDA, many=many),
    )
    return {
        "mib": size >> 20,
        "launches": batch.launches if batch is not None else None,
        "host beside device": sorted(many),
        "calls": found,
    }


def main() -> None:
    """Print a row for each size."""
    show(map(row, options(__doc__ or "").mib))


if __name__ == "__main__":
    main()
