"""State: the entries of a dense layer or of any grid in a state dict, cut for another grid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from torch.overrides import is_tensor_like

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape
from xlayout.errors import CompositionError, LayoutError
from xlayout.ops import from_tiles

__all__ = ["recut"]

Rows = Sequence[Sequence[Shape]]
"""The shapes of a grid of blocks."""

_NUMBER = "(0|[1-9][0-9]{0,8})"  # as torch writes it: no two texts name the same tile
_TILE = re.compile(rf"linears\.{_NUMBER}\.{_NUMBER}\.weight")


def recut(
    state: dict[str, Any],
    prefix: str,
    heights: Sequence[int],
    widths: Sequence[int],
    *,
    bias: bool,
    fresh: bool,
) -> list[str]:
    """Replace a layer's entries by tiles of these heights and widths.

    From tiles to tiles the dense weight is not made. Incomplete entries are left alone: torch
    reports what is missing and what is unexpected.

    Args:
        state: a state dict that may be changed.
        prefix: the prefix of the layer's entries.
        heights: the heights of the rows of tiles.
        widths: the widths of the columns.
        bias: whether the layer has a bias; if not, an entry for one is left alone.
        fresh: whether the tiles need fresh memory; else they may be views.

    Returns:
        Errors for entries that cannot be cut, for `load_state_dict` to report.

    >>> import torch
    >>> state = {"weight": torch.ones(3, 5), "bias": torch.ones(3)}
    >>> recut(state, "", (2, 1), (3, 2), bias=True, fresh=False)
    []
    >>> list(state)[:3], list(state)[3:]  # doctest: +NORMALIZE_WHITESPACE
    (['linears.0.0.weight', 'linears.0.1.weight', 'linears.1.0.weight'],
     ['linears.1.1.weight', 'linears.0.1.bias', 'linears.1.1.bias'])
    """
    held = _held(state, prefix)
    if held is None:
        return []
    grid, weights, biases = held
    ours: Rows = [[(h, w) for w in widths] for h in heights]
    own = dict(zip(_weights(prefix, ours), chain(*ours), strict=True))
    if all(own.get(name) == _shape(state[name]) for name in weights):
        return []  # already tiles of this grid, if perhaps not all
    wrong = _exchange(state, (weights, grid), ([*own], ours), fresh)
    if bias and all(name in state for name in biases):
        theirs = [[_shape(state[name])] for name in biases]
        ours = [[(h,)] for h in heights]
        names = _biases(prefix, len(heights), len(widths))
        wrong += _exchange(state, (biases, theirs), (names, ours), fresh)
    return wrong


def _held(state: dict[str, Any], prefix: str) -> tuple[Rows, list[str], list[str]] | None:
    """The shapes of the weights in a state dict, as rows; their names; names of their biases."""
    matches = [_TILE.fullmatch(name, len(prefix)) for name in state if name.startswith(prefix)]
    places = {(int(m[1]), int(m[2])) for m in matches if m}
    dense = f"{prefix}weight"
    if not places:
        one = [dense], [f"{prefix}bias"]
        return ([[_shape(state[dense])]], *one) if dense in state else None
    rows, columns = (1 + max(at) for at in zip(*places, strict=True))
    if len(places) < rows * columns:
        return None
    blank: Rows = [[()] * columns] * rows
    names = _weights(prefix, blank)
    shapes = iter([_shape(state[name]) for name in names])
    return [[next(shapes) for _ in row] for row in blank], names, _biases(prefix, rows, columns)


def _weights(prefix: str, grid: Rows) -> list[str]:
    return [
        f"{prefix}linears.{o}.{i}.weight" for o, row in enumerate(grid) for i in range(len(row))
    ]


def _biases(prefix: str, rows: int, columns: int) -> list[str]:
    return [f"{prefix}linears.{o}.{columns - 1}.bias" for o in range(rows)]


def _shape(entry: Any) -> Shape:
    return tuple(getattr(entry, "shape", ()))


def _whole(grid: Rows) -> Layout:
    """Blocks joined to one array: matrices in a grid, or vectors end to end."""
    if len(grid[0][0]) == 1:
        return Layout.concat([shape for row in grid for shape in row])
    return from_tiles.layout(grid)


def _exchange(
    state: dict[str, Any], theirs: tuple[list[str], Rows], ours: tuple[list[str], Rows], fresh: bool
) -> list[str]:
    """Replace their entries by ours; return errors."""
    (names, grid), (wanted, cuts) = theirs, ours
    if (names, grid) == (wanted, cuts):
        return []
    label = names[0] if len(names) == 1 else f"{names[0].rpartition('linears.')[0]}linears"
    try:
        parts = _whole(cuts)
        found = grid[0][0] if len(names) == 1 else _whole(grid).out_shape
        if found != parts.out_shape:
            told = f"the checkpoint has shape {found}, the layer {parts.out_shape}"
            return [f"size mismatch for {label}: {told}"]
        odd = [name for name in names if not is_tensor_like(state[name])]  # type: ignore[no-untyped-call]
        if odd:
            # Of a name that both have torch says it itself.
            return [_no_tensor(name, state[name]) for name in odd if name not in wanted]
        made = _cut(_whole(grid), parts.inverse(), [state[name].detach() for name in names], fresh)
    except (LayoutError, TypeError) as error:
        return [f"{label}: {error}"]
    for name in names:
        del state[name]
    state.update(zip(wanted, made, strict=True))
    return []


def _no_tensor(name: str, entry: Any) -> str:
    """In the words of torch."""
    wanted = "expected torch.Tensor or Tensor-like object from checkpoint"
    return f'While copying the parameter named "{name}", {wanted} but received {type(entry)}'


def _cut(whole: Layout, parts: Layout, entries: Sequence[Any], fresh: bool) -> Sequence[Any]:
    copy = True if fresh else None
    try:
        made = (whole >> parts)(*entries, copy=copy)
    except CompositionError:  # too many blocks for one layout
        made = parts(whole(*entries, copy=None), copy=copy)
    return made if isinstance(made, tuple) else (made,)
