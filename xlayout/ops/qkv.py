"""QKV: query, key and value weights fused into one axis, in the orders that real models use."""

from __future__ import annotations

from typing import Literal, Unpack, get_args

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape, axis_of, divide, integer, one_of
from xlayout.errors import SizeError
from xlayout.ops.op import one_to_many, three_to_one
from xlayout.ops.options import Options
from xlayout.ops.segments import dealt

__all__ = ["fuse_qkv", "split_qkv"]

Order = Literal["concat", "per_head", "grouped", "codegen"]


@three_to_one
def fuse_qkv(
    q_shape: Shape,
    k_shape: Shape,
    v_shape: Shape,
    /,
    *,
    heads: int,
    kv_heads: int,
    order: Order = "grouped",
    blocks: int = 4,
    axis: int = 0,
    **_options: Unpack[Options],
) -> Layout:
    """Queries, keys and values in one array.

    Orders along `axis`, for `heads` query heads and `kv_heads` key/value heads:

    * "concat": all Q, all K, all V (Phi-3, MPT, ChatGLM).
    * "per_head": q, k, v of head 0, then of head 1, ... (BLOOM, GPT-NeoX; needs kv_heads == heads).
    * "grouped": per KV group its query heads, its key, its value (Megatron, TransformerEngine,
      Falcon-40B).
    * "codegen": `blocks` groups, each its q, v, k in this order (CodeGen; `blocks` divides both).

    Args:
        q_shape: queries, `axis` = heads * head_dim.
        k_shape: keys, `axis` = kv_heads * head_dim.
        v_shape: values, as the keys.
        heads: query heads.
        kv_heads: key/value heads; 1 is multi-query attention.
        order: which of the orders above.
        blocks: groups of the "codegen" order.
        axis: the axis that holds the heads.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Raises:
        SizeError: when head counts, order and shapes do not fit together.
        AxisError: when the arrays have no such axis.
        LayoutError: for an unknown order.

    >>> import numpy as np
    >>> q, k, v = np.array([0, 1, 2, 3]), np.array([10, 11]), np.array([20, 21])
    >>> fuse_qkv(q, k, v, heads=4, kv_heads=2)
    array([ 0,  1, 10, 20,  2,  3, 11, 21])
    """
    axis = axis_of(axis, len(q_shape))
    if len({(len(s), s[:axis], s[axis + 1 :]) for s in (q_shape, k_shape, v_shape)}) > 1:
        raise SizeError(
            f"q, k, v: shapes {q_shape}, {k_shape}, {v_shape} differ outside axis {axis}; only "
            "that may differ"
        )
    heads, kv_heads = integer(heads, "heads", 1), integer(kv_heads, "kv_heads", 1)
    d = divide(q_shape[axis], heads, f"q: axis {axis}", "heads")
    for name, shape in (("k", k_shape), ("v", v_shape)):
        if shape[axis] != kv_heads * d:
            raise SizeError(
                f"{name}: axis {axis} = {shape[axis]}; wanted kv_heads * head_dim = {kv_heads} * "
                f"{d} = {kv_heads * d}"
            )
    core = _fused(heads, kv_heads, d, order, blocks)
    return core.lift(q_shape[:axis], q_shape[axis + 1 :])


@one_to_many
def split_qkv(
    qkv_shape: Shape,
    /,
    *,
    heads: int,
    kv_heads: int,
    order: Order = "grouped",
    blocks: int = 4,
    axis: int = 0,
    **_options: Unpack[Options],
) -> Layout:
    """The queries, keys and values of a fused array; undoes `fuse_qkv` with the same options.

    Args:
        qkv_shape: the fused array, `axis` = (heads + 2 * kv_heads) * head_dim.
        heads: query heads.
        kv_heads: key/value heads.
        order: how they are fused; see `fuse_qkv`.
        blocks: groups of the "codegen" order.
        axis: the axis that holds the heads.
        **_options: where the result goes; see `xlayout.ops.options.Options`.

    Returns:
        (q, k, v).

    Raises:
        SizeError: when head counts, order and shape do not fit together.
        AxisError: when the array has no such axis.
        LayoutError: for an unknown order.

    >>> import numpy as np
    >>> split_qkv(np.array([0, 1, 10, 20, 2, 3, 11, 21]), heads=4, kv_heads=2)
    (array([0, 1, 2, 3]), array([10, 11]), array([20, 21]))
    """
    axis = axis_of(axis, len(qkv_shape))
    heads, kv_heads = integer(heads, "heads", 1), integer(kv_heads, "kv_heads", 1)
    of, parts = f"qkv: axis {axis}", "heads + 2 * kv_heads"
    blocks = integer(blocks, "blocks", 1)
    d = divide(
        qkv_shape[axis], heads + 2 * kv_heads, of, parts, lambda n: _serves(n, order, blocks)
    )
    core = _fused(heads, kv_heads, d, order, blocks).inverse()
    return core.lift(qkv_shape[:axis], qkv_shape[axis + 1 :])


def _serves(parts: int, order: Order, blocks: int) -> bool:
    """Whether an order can have so many queries, keys and values together, of any heads."""
    match order:
        case "per_head":
            return parts % 3 == 0
        case "codegen":
            return parts % blocks == 0 and parts > 2 * blocks
        case _:
            return parts > 2


def _fused(heads: int, kv_heads: int, d: int, order: Order, blocks: int) -> Layout:
    sizes = (heads * d, kv_heads * d, kv_heads * d)
    one_of("order", order, get_args(Order))
    blocks = integer(blocks, "blocks", 1)
    if order == "concat":
        return dealt(sizes, 1)
    if order == "codegen":
        divide(heads, blocks, "heads", "blocks", lambda n: kv_heads % n == 0)
        divide(kv_heads, blocks, "kv_heads", "blocks", lambda n: heads % n == 0)
        return dealt(sizes, blocks, order=(0, 2, 1))
    if heads % kv_heads:
        raise SizeError(
            f"heads, kv_heads: {heads}, {kv_heads}; order {order!r} needs heads to be a multiple "
            "of kv_heads"
        )
    if order == "per_head" and heads != kv_heads:
        raise SizeError(
            f"kv_heads: {kv_heads}; order {order!r} needs kv_heads == heads = {heads}; use "
            "order='grouped'"
        )
    return dealt(sizes, kv_heads)
