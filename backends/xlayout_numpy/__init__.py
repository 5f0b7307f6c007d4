"""The verbs of a backend, in numpy."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xlayout_native.keys import find_by_shape, keep_by_shape
from xlayout_native.overlap import Extent, conflict
from xlayout_native.overlap import extent as extent_of
from xlayout_native.strided import FEW
from xlayout_numpy import exchange as exchange
from xlayout_numpy import native
from xlayout_numpy.native import move as move
from xlayout_numpy.native import writer as writer
from xlayout_numpy.small import quick as quick

name = "numpy"
immutable = False

_ALL = builtins.slice(None)


def kind(x: Any, /) -> tuple[Any, Any]:
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError("x: a masked array would lose its mask; give x.filled(...) or x.data")
    if isinstance(x, np.generic):
        raise TypeError(f"x: the scalar {x!r}; wanted an array, as np.asarray(x)")
    if isinstance(x, np.matrix):
        raise TypeError("x: a matrix has two axes whatever is done with it; give np.asarray(x)")
    return x.dtype, "cpu"


find, keep = find_by_shape, keep_by_shape


def as_constants(_arrays: Sequence[Any], _args: Sequence[Any], _options: dict[str, Any], /) -> None:
    return None


def tracing(*_xs: Any) -> bool:
    return False


def is_sharded(_x: Any, /) -> bool | None:
    return False


def symbolic(_n: Any, /) -> bool:
    return False


def concrete(n: Any, /) -> int:
    return int(n)


def reshape(x: Any, shape: Sequence[Any], /) -> Any:
    return x.reshape(shape)


def permute(x: Any, axes: Sequence[int], /) -> Any:
    return x.transpose(axes)


def slice(x: Any, axis: int, start: Any, stop: Any, step: int, /) -> Any:  # noqa: A001 -- the verb's name
    return x[(_ALL,) * axis + (builtins.slice(start, stop, step),)]


def concatenate(xs: Sequence[Any], axis: int, /) -> Any:
    joined = np.concatenate(xs, axis, dtype=xs[0].dtype)  # it turns other byte orders native
    return joined if joined.flags.c_contiguous else joined.copy()  # and keeps Fortran order


def stack(axis: int, rank: int, /) -> Callable[..., Any]:
    def last(*xs: Any) -> Any:
        return np.ascontiguousarray(np.stack(xs, axis, dtype=xs[0].dtype))

    def at(*xs: Any) -> Any:
        shape = xs[0].shape
        whole = concatenate(xs, axis)
        return whole.reshape((*shape[:axis], len(xs), *shape[axis:]))  # a third faster

    return last if axis == rank - 1 else at


def pad(x: Any, axis: int, before: int, after: int, value: Any, /) -> Any:
    shape, dtype = list(x.shape), x.dtype
    stop = before + shape[axis]
    shape[axis] = stop + after
    zero = type(value) is int and value == 0 and dtype.kind not in "SUT"
    y = np.zeros(shape, dtype) if zero else np.full(shape, _filler(value, dtype), dtype)
    if axis:
        y[(_ALL,) * axis + (builtins.slice(before, stop),)] = x
    else:
        y[before:stop] = x
    return y


def expand(x: Any, shape: Sequence[Any], /) -> Any:
    return np.broadcast_to(x, tuple(shape))


def full(shape: Sequence[Any], value: Any, like: Any, /) -> Any:
    return np.full(shape, _filler(value, like.dtype), like.dtype)


def _filler(value: Any, dtype: Any) -> Any:
    """What numpy takes for 0 in records; any other number was refused before."""
    return np.zeros((), dtype) if issubclass(dtype.type, np.void) else value


def gather(xs: Sequence[Any], table: Any, value: Any, /) -> Any:
    flat = concatenate([x.reshape(-1) for x in xs], 0)
    y = flat[np.maximum(table, 0)]
    y[table < 0] = _filler(value, flat.dtype)
    return y


def fresh(x: Any, /) -> Any:
    return _copy(x) if x.size > FEW else x.copy()


def _copy(x: Any) -> Any:
    made = native.fresh(x)
    return x.copy() if made is None else made


def compiled(
    _function: Callable[..., Any],
    _elsewhere: Callable[..., Any] | None,
    _arrays: Sequence[Any],
    /,
) -> Callable[..., Any] | None:
    return None


def linear(_make: Callable[[], Any], _arrays: Sequence[Any], /) -> Sequence[Any] | None:
    return None


def linear_pays(_form: str, _seen: Sequence[Any], /) -> bool:
    return False


def relayout(steps: tuple[Any, Any, Any, Any], copies: bool, size: int, /) -> Callable[[Any], Any]:
    window, split, axes, merged = steps
    copy = _copy if size > FEW else np.ndarray.copy
    if window is not None:
        key, rest = _key(window), relayout((None, split, axes, merged), copies, size)
        return lambda x: rest(x[key])
    if axes is None:
        return copy if split is None else lambda x: copy(x).reshape(split)
    if split is None and merged is None:
        return lambda x: copy(x.transpose(axes))
    if split is None:
        return lambda x: copy(x.transpose(axes)).reshape(merged)
    if merged is None:
        return lambda x: copy(x.reshape(split).transpose(axes))
    return lambda x: copy(x.reshape(split).transpose(axes)).reshape(merged)


def _key(window: tuple[builtins.slice | int, ...]) -> Any:
    """The shortest index that cuts a window: each word of it costs as much as a small copy."""
    kept = list(window)
    while kept and kept[-1] == _ALL:
        kept.pop()
    if any(isinstance(at, builtins.slice) for at in kept) or len(kept) < len(window):
        return kept[0] if len(kept) == 1 else tuple(kept)
    return (*kept, ...)  # an array even where every axis is dropped


_PLAIN = (np.ndarray, np.memmap)


def strides(x: Any, /) -> tuple[int, ...] | None:
    if type(x) not in _PLAIN or x.dtype.hasobject:
        return None
    return native.in_elements(x.strides, x.itemsize)


view_strides = strides


class _Window:
    """Memory of an array, seen with another shape; keeps the array alive."""

    def __init__(self, base: Any, interface: dict[str, Any]) -> None:
        self.base = base
        self.__array_interface__ = interface


def view(x: Any, offset: int, strides: Sequence[int], shape: Sequence[int], /) -> Any | None:
    # np.lib.stride_tricks.as_strided does the same at three times the cost, and without an offset.
    address, read_only = x.__array_interface__["data"]
    repeats = 0 in strides and any(s == 0 and n > 1 for s, n in zip(strides, shape, strict=True))
    interface = {
        "version": 3,
        "typestr": f"|V{x.itemsize}",  # the text of a dtype of ml_dtypes may mean nothing to numpy
        "data": (address + offset * x.itemsize, read_only or repeats),  # as `broadcast_to`
        "shape": tuple(shape),
        "strides": tuple(s * x.itemsize for s in strides),
    }
    return np.asarray(_Window(x, interface)).view(x.dtype)


def empty(shape: Sequence[int], like: Any, /) -> Any:
    return native.empty(shape, like.dtype)


def assign(to: Any, source: Any, /) -> None:
    to[...] = source if isinstance(source, np.ndarray) else _filler(source, to.dtype)


def concatenates_well(_xs: Sequence[Any], _axis: int, /) -> bool:
    return False


def batch_strides(_xs: Sequence[Any], /) -> None:
    return None


def move_many(_items: Sequence[Any], /) -> bool:
    return False


def in_place(_moves: Any, _x: Any, _shape: tuple[int, ...], /) -> None:
    return None


def release(_x: Any, /) -> Callable[[], None]:
    raise TypeError("donate: nothing can empty an array of numpy; do not donate it")


def extent(x: Any, /) -> Extent | None:
    return None if strides(x) is None else _extent(x)


def refusal(out: Any, inputs: Sequence[Any], /) -> str | None:
    if not out.flags.writeable:
        return "it is read-only"
    for x in (out, *inputs):
        if type(x) not in _PLAIN:
            named = type(x).__qualname__
            return f"a {named} may be more than its elements; pass it as x.view(np.ndarray)"
    if strides(out) is None:
        return "its elements are objects, or no whole elements apart"
    if any(strides(x) is None for x in inputs):
        return "an input's elements are objects, or no whole elements apart"
    return conflict(_extent(out), map(_extent, inputs))


def _extent(x: Any) -> Extent:
    return extent_of(x.__array_interface__["data"][0], x.shape, x.strides, x.itemsize)
