"""Many: layouts on many arrays at once, on a GPU in a few kernel launches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.layout import check_layout
from xlayout.algebra.shapes import a_type
from xlayout.backend import Backend, Moves
from xlayout.errors import SizeError
from xlayout.lower.calls import array_name, common_backend
from xlayout.lower.fill import as_number, check_fill, is_zero
from xlayout.lower.holes import fill_holes
from xlayout.lower.moves import moves_of
from xlayout.lower.recipe import write_pieces
from xlayout.lower.run import check_shapes
from xlayout.ops.apply import apply
from xlayout.registry import backend_of

__all__ = ["apply_many"]

_Item = tuple[Layout, bool, Moves, Sequence[Any], Sequence[Any]]
"""(layout, whether it has holes, its moves, arrays, outputs)"""


def apply_many(
    layouts: Iterable[Layout], arrays: Iterable[Any], /, *, fill: Any = 0
) -> tuple[Any, ...]:
    """Run many layouts, each on its own array, as for the tensors of a state dict.

    The results are those of `apply`. Tensors on a GPU are copied together, in one kernel launch for
    each kind of copy, however many tensors there are.

    Args:
        layouts: the layouts, one for each of `arrays`.
        arrays: torch.Tensor, jax.Array or numpy.ndarray; a tuple or list of them where a layout has
            several inputs.
        fill: value for holes, positions of an output that no input goes to.

    Returns:
        For each pair one array, or a tuple of arrays when the layout has several outputs.

    Raises:
        SizeError: if the numbers of layouts and arrays differ.
        ShapeError: for an array of another shape than its layout's.
        TypeError: for a layout that is not a Layout, and for arrays of one layout that differ in
            framework, dtype or device; a ValueError of JAX's own for its devices.
        ShardingError: for arrays of one layout on meshes with different orders of devices.

    >>> import numpy as np
    >>> turned = Layout.permute((2, 3), (1, 0))
    >>> apply_many([turned, turned], [np.zeros((2, 3)), np.ones((2, 3))])[1].shape
    (3, 2)
    """
    all_layouts, all_arrays = _listed(layouts, "layouts"), _listed(arrays, "arrays")
    fill = as_number(fill)
    if len(all_layouts) != len(all_arrays):
        raise SizeError(
            f"arrays: {len(all_arrays)} for {len(all_layouts)} layouts; wanted one for each layout"
        )
    results: list[Any] = []
    waiting: dict[str, list[_Item]] = {}
    for number, layout in enumerate(all_layouts):
        check_layout(layout, f"layouts[{number}]", "apply_many(layouts, arrays)")
    for number, (layout, x) in enumerate(zip(all_layouts, all_arrays, strict=True)):
        several = isinstance(x, (tuple, list))
        xs = tuple(x) if several else (x,)
        name = f"arrays[{number}]"
        batch = _batched(layout, xs, name if several else (name,))
        if batch is None:
            results.append(apply(layout, x, fill=fill))
            continue
        backend, strides = batch
        holes, moves = _copies(layout, strides)
        if holes or not is_zero(fill):  # not every dtype has a zero
            check_fill(xs[0].dtype, fill)
        outputs = tuple([backend.empty(shape, xs[0]) for shape in layout.out_shapes])
        waiting.setdefault(backend.name, []).append((layout, holes, moves, xs, outputs))
        results.append(outputs[0] if len(outputs) == 1 else outputs)
    for items in waiting.values():
        _write(common_backend(items[0][3]), items, fill)
    return tuple(results)


def _listed(given: Any, name: str) -> list[Any]:
    try:
        if not isinstance(given, (set, frozenset)):  # those have no order to pair them by
            return list(given)
    except TypeError:
        pass
    raise TypeError(f"{name}: {a_type(given)}; wanted a sequence of {name}")


def _batched(
    layout: Layout, xs: Sequence[Any], names: str | Sequence[str]
) -> tuple[Backend, tuple[tuple[int, ...], ...]] | None:
    """The backend and the strides, if it prefers to copy these arrays together with others."""
    if not xs:
        return None
    backend = backend_of(xs[0], array_name(names, 0))
    strides = backend.batch_strides(xs)
    if strides is None:
        common_backend(xs, names)  # they may differ, and `apply` does not know these names
    check_shapes(layout, xs, names if isinstance(names, str) else names[0])
    return None if strides is None else (backend, strides)


# One cache for both: each look-up compares two equal layouts, for each of a thousand tensors.
@lru_cache(1024)
def _copies(layout: Layout, strides: tuple[tuple[int, ...], ...]) -> tuple[bool, Moves]:
    """Whether a layout has holes, and its moves between such arrays and row-major ones."""
    return layout.has_holes, moves_of(layout, strides)


def _write(backend: Backend, items: Sequence[_Item], fill: Any) -> None:
    for layout, holes, _, _, outputs in items:
        if holes:
            fill_holes(backend, layout, outputs, fill)
    if not backend.move_many([(moves, xs, outputs) for _, _, moves, xs, outputs in items]):
        for layout, _, _, xs, outputs in items:
            write_pieces(backend, layout, xs, outputs, fill)
