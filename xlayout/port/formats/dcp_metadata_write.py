"""The `.metadata` of a DCP directory as ranks would have saved it, for torch to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xlayout.port.formats import dcp_names as names
from xlayout.port.formats.base import Bounds, TensorSpec
from xlayout.port.formats.boxes import extent
from xlayout.port.formats.dcp_metadata import VERSION, Chunk
from xlayout.port.formats.pickle_tree import Made, Name
from xlayout.port.formats.pickle_write import write_pickle

__all__ = ["render_metadata"]


def render_metadata(tensors: Mapping[str, tuple[TensorSpec, Sequence[Chunk]]], /) -> bytes:
    """Return the file for tensors, each with the chunks that cover it.

    Raises:
        FormatError: A name is not text that a file can hold.

    >>> from xlayout.port.formats.dcp_metadata import Item, parse_metadata
    >>> chunk = Chunk(((0, 2),), Item("__0_0.distcp", 0, 900))
    >>> raw = render_metadata({"x": (TensorSpec("int8", (2,)), [chunk])})
    >>> parse_metadata(raw, where="x").tensors["x"].chunks == (chunk,)
    True
    """
    return write_pickle(
        _object(
            names.METADATA,
            state_dict_metadata={name: _tensor(*stored) for name, stored in tensors.items()},
            # If torch builds a state dict from scratch, it uses the names as keys unchanged.
            planner_data={name: (name,) for name in tensors},
            storage_data={
                _object(names.INDEX, fqn=name, index=number, offset=_starts(chunk.box)): _object(
                    names.STORAGE_INFO,
                    relative_path=chunk.item.file,
                    offset=chunk.item.offset,
                    length=chunk.item.length,
                )
                for name, (_, chunks) in tensors.items()
                for number, chunk in enumerate(chunks)
            },
            storage_meta=None,
            version=VERSION,
        )
    )


def _tensor(spec: TensorSpec, chunks: Sequence[Chunk]) -> Made:
    layout = Made(Name(names.LAYOUT), ("torch.strided",))
    contiguous = Made(Name(names.ENCODING), (0,))
    state = (Name(f"torch.{spec.dtype}"), layout, False, contiguous, False)
    return _object(
        names.TENSOR,
        properties=Made(Name(names.PROPERTIES), new=True, state=state),
        size=_size(spec.shape),
        chunks=[
            _object(names.CHUNK, offsets=_starts(chunk.box), sizes=_size(extent(chunk.box)))
            for chunk in chunks
        ],
    )


def _starts(box: Bounds) -> Made:
    return _size(tuple(start for start, _ in box))


def _size(sizes: tuple[int, ...]) -> Made:
    return Made(Name(names.SIZE), (sizes,))


def _object(kind: str, **fields: Any) -> Made:
    return Made(Name(kind), new=True, state=fields)
