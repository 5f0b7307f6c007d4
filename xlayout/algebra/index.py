"""Index: a layout as an index table, element by element: the brute-force oracle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from xlayout.algebra.piece import Piece

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["index_table"]


def index_table(pieces: Iterable[Piece], out_size: int) -> NDArray[np.int64]:
    """For every output position the input position it reads, or -1.

    Raises:
        ModuleNotFoundError: numpy is not installed.
    """
    try:
        import numpy as np  # the algebra itself needs no arrays
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"index: {error}; pip install 'xlayout-arrays[numpy]'", name=error.name
        ) from error
    table = np.full(out_size, -1, dtype=np.int64)
    for p in pieces:
        ins = np.array([p.in_offset], dtype=np.int64)
        outs = np.array([p.out_offset], dtype=np.int64)
        for n, x, z in p.loops:
            steps = np.arange(n, dtype=np.int64)
            ins = (ins[:, None] + steps * x).ravel()
            outs = (outs[:, None] + steps * z).ravel()
        table[outs] = ins
    return table
