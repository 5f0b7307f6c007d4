"""Region: the nodes between a gather and the casts of its elements; whether a cast may go first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from xlayout.torch.movement import cast_to, moved, reads_only_sizes

__all__ = ["Region", "Verdict", "region_of"]

_CARRIED = frozenset(
    {torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8}
)
"""Dtypes that every transport and copy supports; others are sent as uint8."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a pass decided about one gather.

    Attributes:
        gather: the name of its node.
        dtype: the dtype that it gathers now; None if it was left alone.
        why: the reason, in words.
    """

    gather: str
    dtype: torch.dtype | None
    why: str


@dataclass(slots=True)
class Region:
    """A gather and all nodes that only move what it gathered, up to the casts.

    Attributes:
        gather: the node it starts from.
        nodes: the gather and the moving nodes after it.
        casts: the nodes that end it.
        entries: (node, input) where other elements come in.
        wide: the dtype of the elements.
        mode: the fake mode of the values in the graph; None if they are not fakes.
        narrow: the dtype that every cast casts to.
    """

    gather: Node
    nodes: dict[Node, None] = field(default_factory=dict)
    casts: list[Node] = field(default_factory=list)
    entries: list[tuple[Node, Node]] = field(default_factory=list)
    wide: Any = None
    mode: Any = None
    narrow: Any = None

    @property
    def carrier(self) -> torch.dtype:
        """The dtype in which the narrow elements are sent."""
        return self.narrow if self.narrow in _CARRIED else torch.uint8


def region_of(gather: Node) -> Region | str:
    """The region of a gather whose cast may go first; or the reason why it may not."""
    region = Region(gather)
    source = gather.args[0]
    value = source.meta.get("val") if isinstance(source, Node) else None
    if not isinstance(value, torch.Tensor):
        return "its dtype is not known: the graph has no values in `node.meta`"
    region.wide, region.mode = value.dtype, getattr(value, "fake_mode", None)
    why = _follow(region)
    if why is not None:
        return why
    if not region.casts:
        return "nothing casts what it gathers"
    dtypes = {cast_to(cast) for cast in region.casts}
    if len(dtypes) > 1:
        return f"its casts differ: {', '.join(sorted(map(str, dtypes)))}"
    (region.narrow,) = dtypes
    return _narrows(region) or region


def _follow(region: Region) -> str | None:
    """Follow the gathered elements up to their casts; return text if anything else uses them."""
    todo = [region.gather]
    while todo:
        node = todo.pop()
        region.nodes[node] = None
        for user in node.users:
            if user in region.nodes or user in region.casts or reads_only_sizes(user):
                continue
            if cast_to(user) is not None:
                region.casts.append(user)
                continue
            if user.op == "output":
                return "what it gathers is returned as it is"
            elements = moved(user)
            if elements is None or node not in elements:
                return f"{user.name} ({user.target}) needs the wide elements"
            todo.append(user)
    for node in region.nodes:
        if node is region.gather:
            continue
        for other in dict.fromkeys(moved(node) or ()):
            if other not in region.nodes:
                value = other.meta.get("val")
                if not isinstance(value, torch.Tensor) or value.dtype != region.wide:
                    return f"{node.name} ({node.target}) mixes in {other.name} of another dtype"
                if getattr(value, "fake_mode", None) is not region.mode:
                    return f"{node.name} ({node.target}) mixes in {other.name} of another fake mode"
                region.entries.append((node, other))
    return None


def _narrows(region: Region) -> str | None:
    wide, narrow = region.wide, region.narrow
    if narrow.itemsize >= wide.itemsize:
        return f"a cast from {wide} to {narrow} does not narrow it"
    if region.carrier.itemsize != narrow.itemsize:
        return f"no transport takes {narrow}"
    pads = any(n.target is torch.ops.aten.constant_pad_nd.default for n in region.nodes)
    if pads and region.carrier is not narrow:
        return f"it is padded, and a zero of {narrow} may have other bits than a zero byte"
    return None
