"""The `.metadata` of a DCP directory as one process would have saved it, for torch to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xlayout.port.formats import dcp_names as names
from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.dcp_metadata import VERSION, Item
from xlayout.port.formats.pickle_tree import Made, Name
from xlayout.port.formats.pickle_write import write_pickle

__all__ = ["render_metadata"]


def render_metadata(placed: Mapping[str, tuple[TensorSpec, Item]], /) -> bytes:
    """Return the file for tensors that lie in one chunk each.

    Raises:
        FormatError: A name is not text that a file can hold.

    >>> from xlayout.port.formats.dcp_metadata import parse_metadata
    >>> raw = render_metadata({"x": (TensorSpec("int8", (2,)), Item("__0_0.distcp", 0, 900))})
    >>> parse_metadata(raw, where="x").tensors["x"].chunks
    (Chunk(box=((0, 2),), item=Item(file='__0_0.distcp', offset=0, length=900)),)
    """
    return write_pickle(
        _object(
            names.METADATA,
            state_dict_metadata={name: _tensor(spec) for name, (spec, _) in placed.items()},
            # If torch builds a state dict from scratch, it uses the names as keys unchanged.
            planner_data={name: (name,) for name in placed},
            storage_data={
                _object(
                    names.INDEX, fqn=name, index=0, offset=_size((0,) * len(spec.shape))
                ): _object(
                    names.STORAGE_INFO,
                    relative_path=item.file,
                    offset=item.offset,
                    length=item.length,
                )
                for name, (spec, item) in placed.items()
            },
            storage_meta=None,
            version=VERSION,
        )
    )


def _tensor(spec: TensorSpec) -> Made:
    layout = Made(Name(names.LAYOUT), ("torch.strided",))
    contiguous = Made(Name(names.ENCODING), (0,))
    state = (Name(f"torch.{spec.dtype}"), layout, False, contiguous, False)
    chunk = _object(names.CHUNK, offsets=_size((0,) * len(spec.shape)), sizes=_size(spec.shape))
    return _object(
        names.TENSOR,
        properties=Made(Name(names.PROPERTIES), new=True, state=state),
        size=_size(spec.shape),
        chunks=[chunk],
    )


def _size(sizes: tuple[int, ...]) -> Made:
    return Made(Name(names.SIZE), (sizes,))


def _object(kind: str, **fields: Any) -> Made:
    return Made(Name(kind), new=True, state=fields)
