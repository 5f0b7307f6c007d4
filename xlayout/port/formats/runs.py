"""A box of a row-major tensor in a file, as runs of bytes that are read or written in place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.errors import FormatError
from xlayout.port.formats.base import Bounds, TensorSpec
from xlayout.port.formats.system_errors import named

if TYPE_CHECKING:
    import numpy as np

    from xlayout.port.formats.base import Array

__all__ = ["read_box", "reading", "write_box", "write_full"]

_SMALL = 16 << 10  # below this, a system call costs more than copying the bytes
_SPARSE = 16  # at most so many bytes are read for each that is wanted
_SPAN = 4 << 20
_PIECE = 4 << 20  # bytes, of the copy of what is not contiguous in memory


@contextmanager
def reading(file: Path, name: str, /) -> Iterator[None]:
    """Say which file cannot be read, while boxes of a tensor are.

    Raises:
        FormatError: It ends before the tensor does.
        OSError: The system failed.
    """
    try:
        with named(file):
            yield
    except EOFError as error:
        raise FormatError(f"{file}: {name!r:.200}: {error}; the file was cut short") from error


def read_box(handle: int, offset: int, spec: TensorSpec, box: Bounds, out: Array) -> None:
    """Read a box of the tensor that begins at `offset` into an array, strided or not.

    Raises:
        EOFError: The file ends before the tensor does.
    """
    if not out.flags.c_contiguous:
        import numpy as np

        for part, into in _pieces(box, out):
            piece = np.empty(into.shape, into.dtype)
            read_box(handle, offset, spec, part, piece)
            into[...] = piece
        return
    starts, run = _runs(spec, box)
    target = _bytes(out).reshape(*starts.shape, run)
    for row, into in zip(starts, target, strict=True):
        stride = int(row[1] - row[0]) if len(row) > 1 else run
        if run < _SMALL and run < stride <= _SPARSE * run:
            _read_span(handle, offset + int(row[0]), stride, into)
            continue
        for start, part in zip(row.tolist(), into, strict=True):
            _read_full(handle, part, offset + start)


def write_box(handle: int, offset: int, spec: TensorSpec, box: Bounds, array: Array) -> None:
    """Write an array, strided or not, into a box of the tensor that begins at `offset`."""
    if not array.flags.c_contiguous:
        for part, piece in _pieces(box, array):
            write_box(handle, offset, spec, part, piece.copy(order="C"))
        return
    starts, run = _runs(spec, box)
    source = _bytes(array).reshape(-1, run or 1)
    for start, row in zip(starts.reshape(-1).tolist(), source, strict=True):
        write_full(handle, row.data, offset + start)


def write_full(handle: int, data: bytes | memoryview, position: int) -> None:
    """Write all of the data at a position; a single system call may write only part of it."""
    view = memoryview(data)
    while view:
        done = os.pwrite(handle, view, position)
        view, position = view[done:], position + done


def _pieces(box: Bounds, array: Array) -> Iterator[tuple[Bounds, Array]]:
    """Yield a box and its array in pieces that are small enough to be copied."""
    if array.nbytes <= _PIECE:
        yield box, array
        return
    axis = next(axis for axis, n in enumerate(array.shape) if n > 1)
    start, stop = box[axis]
    half = (stop - start) // 2
    for a, b in ((start, start + half), (start + half, stop)):
        part = array[(slice(None),) * axis + (slice(a - start, b - start),)]
        yield from _pieces((*box[:axis], (a, b), *box[axis + 1 :]), part)


def _runs(spec: TensorSpec, box: Bounds) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """Return where the runs of a box start, and how long each is, in bytes.

    The starts are a table whose rows are evenly spaced.
    """
    import numpy as np

    if any(start == stop for start, stop in box):
        return np.zeros((0, 1), np.int64), 0
    run, stride = spec.itemsize, spec.itemsize
    starts = np.zeros((1, 1), np.int64)
    whole, rows = True, False
    for (start, stop), size in zip(reversed(box), reversed(spec.shape), strict=True):
        steps = np.arange(start, stop, dtype=np.int64) * stride
        if whole:  # all inner axes are taken whole, so this one only lengthens the run
            starts += start * stride
            run *= stop - start
            whole = (start, stop) == (0, size)
        elif not rows:
            starts = starts + steps
            rows = True
        else:
            starts = (steps[:, None, None] + starts).reshape(-1, starts.shape[1])
        stride *= size
    return starts, run


def _read_span(
    handle: int, position: int, stride: int, into: np.ndarray[Any, np.dtype[np.uint8]]
) -> None:
    """Read many short, evenly spaced runs at once, including the bytes between them."""
    import numpy as np

    run = into.shape[1]
    block = _SPAN // stride  # at least one: `stride` is at most _SMALL * _SPARSE
    scratch = np.empty(block * stride, np.uint8)
    for first in range(0, len(into), block):
        rows = into[first : first + block]
        span = scratch[: (len(rows) - 1) * stride + run]
        _read_full(handle, span, position + first * stride)
        rows[...] = np.lib.stride_tricks.as_strided(span, rows.shape, (stride, 1))


def _read_full(handle: int, into: np.ndarray[Any, np.dtype[np.uint8]], position: int) -> None:
    view = into.data
    while view:
        done = os.preadv(handle, [view], position)
        if not done:
            raise EOFError(f"no byte at {position}")
        view, position = view[done:], position + done


def _bytes(array: Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    import numpy as np

    return array.reshape(-1).view(np.uint8)
