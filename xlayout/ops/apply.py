"""Apply: any layout as an op, on one device or on many."""

from __future__ import annotations

from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.layout import check_layout
from xlayout.lower.calls import Comm, any_sharded
from xlayout.lower.fill import as_number, check_fill, is_zero
from xlayout.lower.run import check_copy
from xlayout.ops.options import refuse_out_and_views, runs_sharded, sharding_options
from xlayout.registry import backend_of

__all__ = ["apply"]


def apply(
    layout: Layout,
    x: Any,
    /,
    *,
    out: Any = None,
    copy: bool | None = True,
    fill: Any = 0,
    comm: Comm = "auto",
    out_sharding: Any = None,
    in_sharding: Any = None,
) -> Any:
    """Run any layout on an array, or on a sequence of arrays when it has several inputs.

    `layout(x)` is the same without the sharding options: what happens to sharded arrays is up to
    the framework.

    Args:
        layout: the layout.
        x: a torch.Tensor, jax.Array (tracers included) or numpy.ndarray of shape
            `layout.in_shape`; a tuple or list of them, one per input, when the layout has several.
        out: arrays to write into, shaped like the result (torch and numpy, outside tracing).
        copy: True (default): fresh row-major memory. None: a view where that is possible. False: a
            view, or an error. While tracing, memory is up to the compiler, and False an error.
        fill: value for holes, positions of the output that no input goes to.
        comm: for sharded arrays, as for every op: "auto", "local" or "native".
        out_sharding: sharding of the result, as for `reshard`; default: one that needs no
            communication if there is one, else the input's.
        in_sharding: sharding of tracers that carry none: on automatic mesh axes, and parts inside
            `shard_map`.

    Returns:
        One array, or a tuple of arrays when the layout has several outputs; same framework, dtype,
        device.

    Raises:
        ShapeError: for shapes other than the layout's, or an `out` that does not fit.
        TypeError: for arrays of different frameworks, dtypes or devices; a ValueError of JAX's own
            for its arrays on different devices.
        BufferError: for `copy=False` where a copy is needed, as it always is for sharded arrays.
        ShardingError: for `comm="local"` where communication is needed.

    >>> import numpy as np
    >>> apply(Layout.permute((2, 3), (1, 0)), np.arange(6).reshape(2, 3))
    array([[0, 3],
           [1, 4],
           [2, 5]])
    """
    check_layout(layout, "layout", "apply(layout, x)")
    arrays = tuple(x) if isinstance(x, (tuple, list)) else (x,)
    given = {"comm": comm, "out_sharding": out_sharding, "in_sharding": in_sharding}
    sharding = sharding_options(given, lambda: layout)
    if not (arrays and runs_sharded(any_sharded(backend_of(arrays[0]), arrays), sharding)):
        return layout(*arrays, out=out, copy=copy, fill=fill)
    from xlayout.shard.sharded import run_layout  # not needed on one device

    check_copy(copy)
    refuse_out_and_views(out, copy)
    if not is_zero(fill := as_number(fill)):  # not every dtype has a zero
        check_fill(arrays[0].dtype, fill)
    return run_layout(layout, arrays, fill=fill, **sharding)
