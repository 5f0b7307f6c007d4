"""The pickle that `torch.save` makes of one tensor: its dtype, sizes and strides, not its bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from xlayout.errors import FormatError
from xlayout.port.formats.base import DTYPES, TensorSpec
from xlayout.port.formats.pickle_tree import Made, Name, Stored, read_pickle, show
from xlayout.port.formats.pickle_write import write_pickle

__all__ = ["DTYPE_NAMES", "STORAGE", "Strided", "parse_tensor", "render_tensor"]

STORAGE = "0"
"""The key of a tensor's only storage."""

_STORAGES: Mapping[str, str] = {
    "torch.BoolStorage": "bool",
    "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8",
    "torch.ShortStorage": "int16",
    "torch.IntStorage": "int32",
    "torch.LongStorage": "int64",
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.FloatStorage": "float32",
    "torch.DoubleStorage": "float64",
    "torch.ComplexFloatStorage": "complex64",
    "torch.ComplexDoubleStorage": "complex128",
}
_UNTYPED = "torch.storage.UntypedStorage"
_TYPED, _LATER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"
_HOOKS = "collections.OrderedDict"

DTYPE_NAMES: Mapping[str, str] = {f"torch.{name}": name for name in DTYPES}
"""Our names for torch's dtypes."""

_ALLOWED = frozenset({*_STORAGES, *DTYPE_NAMES, _UNTYPED, _TYPED, _LATER, _HOOKS})


@dataclass(frozen=True, slots=True)
class Strided:
    """A tensor as it lies in its storage.

    Args:
        spec: Its dtype and shape.
        order: Its axes, from the one with the largest stride to the contiguous one.
    """

    spec: TensorSpec
    order: tuple[int, ...]


def parse_tensor(raw: bytes, /, *, where: str) -> Strided:
    """Return what a pickle says about the one tensor that it makes.

    Args:
        raw: The record `data.pkl`.
        where: What to call it in errors.

    Raises:
        FormatError: It makes something else; or the tensor has a dtype that we do not know or gaps
            between its elements, or is a view that has yet to be computed.

    >>> parse_tensor(render_tensor(TensorSpec("int8", (2, 3))), where="x")
    Strided(spec=TensorSpec(dtype='int8', shape=(2, 3)), order=(0, 1))
    """

    def refuse(what: str, wanted: str) -> NoReturn:
        raise FormatError(f"{where}: {what}; wanted {wanted}")

    tree = read_pickle(raw, _ALLOWED, where=where)
    what, args = (tree.what, tree.args) if isinstance(tree, Made) else (None, ())
    if what == _TYPED and len(args) in (6, 7):
        args = (*args[:6], None, *args[6:])
    elif what != _LATER or len(args) not in (7, 8):
        refuse(f"makes {show(tree)}", "a plain tensor")
    storage, offset, shape, strides, _, _, said, *more = args
    if any(more):
        refuse(f"a view that is yet to be computed: {show(more)}", "a tensor that was resolved")
    match storage.key if isinstance(storage, Stored) else None:
        case ("storage", Name() as kind, "0", str(), int(count)):
            dtype = _STORAGES.get(kind)
            if kind == _UNTYPED and isinstance(said, Name):
                dtype = DTYPE_NAMES.get(said)
        case key:
            refuse(f"a storage {show(key)}", f"the one named {STORAGE!r}")
    if dtype is None:
        refuse(f"a dtype {show(said)} in {kind}", f"one of {', '.join(DTYPES)}")
    if not (_counts(shape) and _counts(strides) and len(shape) == len(strides)):
        refuse(f"shape {show(shape)}, strides {show(strides)}", "as many integers from 0")
    spec = TensorSpec(dtype, shape)
    if not spec.fits:
        refuse(f"shape {show(shape)}", "64 axes at most, and less than 2^63 bytes")
    order = _order(shape, strides)
    stored = count if kind == _UNTYPED else count * spec.itemsize
    if offset != 0 or stored != spec.nbytes or order is None:
        refuse(
            f"strides {show(strides)} from {show(offset)} in {stored} bytes",
            f"{spec.nbytes} bytes without gaps for shape {show(shape)}",
        )
    return Strided(spec, order)


def render_tensor(spec: TensorSpec, /) -> bytes:
    r"""Return the pickle of a contiguous tensor, whose bytes are the record `data/0`.

    >>> render_tensor(TensorSpec("int8", (2,)))[:34]
    b'\x80\x02ctorch._utils\n_rebuild_tensor_v2'
    """
    kind = next((kind for kind, dtype in _STORAGES.items() if dtype == spec.dtype), None)
    count = spec.nbytes if kind is None else spec.size
    strides = tuple(
        math.prod(max(n, 1) for n in spec.shape[axis + 1 :]) for axis in range(len(spec.shape))
    )
    args = (
        Stored(("storage", Name(kind or _UNTYPED), STORAGE, "cpu", count)),
        0,
        spec.shape,
        strides,
        False,
        Made(Name(_HOOKS)),
    )
    if kind is None:
        return write_pickle(Made(Name(_LATER), (*args, Name(f"torch.{spec.dtype}"))))
    return write_pickle(Made(Name(_TYPED), args))


def _counts(value: Any) -> bool:
    """Whether a value is a tuple of integers from 0."""
    return type(value) is tuple and all(type(n) is int and n >= 0 for n in value)


def _order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the axes by decreasing stride, if the elements then follow one another."""
    axes = tuple(range(len(shape)))
    for order in (axes, tuple(sorted(axes, key=lambda axis: -strides[axis]))):
        step = 1
        for axis in reversed(order):
            if shape[axis] != 1 and strides[axis] != step:
                break
            step *= shape[axis]
        else:
            return order
    return None
