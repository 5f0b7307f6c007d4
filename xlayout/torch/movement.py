"""Movement: which nodes of an ATen graph only move elements, so that a cast commutes with them.

Elements may be dropped, repeated, reordered or sent to another device; none is changed, and none is
added except the zeros of a padding. A view of the bits as another dtype does not count.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

__all__ = [
    "GATHERS",
    "cast_to",
    "may_write",
    "moved",
    "reads_addresses",
    "reads_only_sizes",
    "shares_memory",
]

_VIEWS = (
    "alias", "detach", "diagonal", "expand", "movedim", "narrow", "permute", "reshape",
    "_reshape_alias", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose",
    "unbind", "unfold", "unsqueeze", "view", "_unsafe_view",
)  # fmt: skip
_COPIES = ("cat", "clone", "constant_pad_nd", "flip", "index_select", "repeat", "roll", "stack")
_SIZES = ("sym_is_contiguous", "sym_numel", "sym_size", "sym_storage_offset", "sym_stride")


_BITS_AS = frozenset({torch.ops.aten.view.dtype})  # another dtype, by the name of a view


def _overloads(*names: str) -> frozenset[Any]:
    packets = [getattr(torch.ops.aten, name) for name in names]
    return frozenset(getattr(p, o) for p in packets for o in p.overloads()) - _BITS_AS


_SHARE = _overloads(*_VIEWS) | {operator.getitem, torch.ops._c10d_functional.wait_tensor.default}
_FRESH = _overloads(*_COPIES)
_RELAYOUT = "xlayout.relayout."  # by name: it is registered on first use
_ASK = _overloads(*_SIZES)
_BY_ADDRESS = _BITS_AS | _overloads(
    "as_strided", "as_strided_copy", "as_strided_scatter", "sym_storage_offset"
)

GATHERS = frozenset(
    {
        torch.ops._c10d_functional.all_gather_into_tensor.default,
        torch.ops._c10d_functional.all_to_all_single.default,
        torch.ops._c10d_functional.broadcast.default,
    }
)
"""Collectives that move elements unchanged."""


def moved(node: Node) -> list[Node] | None:
    """The nodes whose elements `node` moves; None if it does anything else."""
    if node.op != "call_function" or "out" in node.kwargs:
        return None
    if node.target not in _SHARE | _FRESH | GATHERS and not str(node.target).startswith(_RELAYOUT):
        return None
    if node.target is torch.ops.aten.constant_pad_nd.default and any(node.args[2:]):
        return None  # another value may be rounded by the cast
    given = node.args[0]
    several = given if isinstance(given, (list, tuple)) else (given,)
    return [n for n in several if isinstance(n, Node)]


def shares_memory(node: Node) -> bool:
    """Whether a node's result may share memory with its arguments."""
    if node.target is operator.getitem:
        return shares_memory(node.args[0])  # type: ignore[arg-type]
    return node.target in _SHARE or any(a.alias_info for a in _arguments(node))


def may_write(node: Node) -> bool:
    """Whether a node writes into any of its arguments."""
    return any(a.alias_info and a.alias_info.is_write for a in _arguments(node))


def _arguments(node: Node) -> Sequence[Any]:
    return node.target._schema.arguments if isinstance(node.target, torch._ops.OpOverload) else ()


def reads_addresses(node: Node) -> bool:
    """Whether it matters to a node where in its memory an argument begins."""
    return node.target in _BY_ADDRESS


def reads_only_sizes(node: Node) -> bool:
    """Whether a node reads only sizes."""
    return node.target in _ASK


def cast_to(node: Node) -> torch.dtype | None:
    """The dtype that a node casts to; None if it does anything else.

    The cast may also set a memory format, but not a device.
    """
    if node.target is torch.ops.prims.convert_element_type.default:
        return node.args[1]  # type: ignore[return-value]
    if node.target is not torch.ops.aten._to_copy.default:
        return None
    asked = {name for name, value in node.kwargs.items() if value not in (None, False)}
    if not asked <= {"dtype", "memory_format"}:
        return None
    return node.kwargs.get("dtype")  # type: ignore[return-value]
