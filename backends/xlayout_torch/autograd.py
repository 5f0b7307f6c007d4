"""Autograd: a large layout of tensors that require grad, as one operation of the graph.

Autograd does not see a raw copy. It sees the operation, which the copy kernel runs, forward and
backward. If one of the gates is closed, torch's own ops run the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import xlayout_native
from xlayout_native.strided import are_many
from xlayout_native.switch import wanted
from xlayout_torch.memory import WIDTHS, addresses_of, watched
from xlayout_torch.operation import parse, relayout

__all__ = ["FROM", "GATES", "linear"]

FROM = 1 << 22
"""Bytes from which the operation is faster for some layouts, forward and backward together."""

GATES: dict[str, Callable[[Sequence[Any]], bool]] = {
    "small": lambda arrays: sum([x.numel() * x.itemsize for x in arrays]) < FROM,
    "absent": lambda _arrays: not xlayout_native.available,
    "off": lambda _arrays: not wanted(),
    "watched": lambda _arrays: watched(),
    "memory": lambda arrays: not _readable(arrays),
    "dtype": lambda arrays: arrays[0].dtype not in WIDTHS,
}
"""Name -> whether it leaves tensors to torch's own ops, here and now."""


def linear(make: Callable[[], str | None], arrays: Sequence[Any]) -> Sequence[Any] | None:
    """The results, in the graph; None if plain ops should make them.

    `make` returns the layout as text, or None if it has none.
    """
    if any(closed(arrays) for closed in GATES.values()):
        return None
    form = make()
    return None if form is None or are_many(parse(form).moves) else relayout(arrays, form)


def _readable(arrays: Sequence[Any]) -> bool:
    with torch.no_grad():  # whether they require it does not matter here
        return addresses_of(arrays) is not None
