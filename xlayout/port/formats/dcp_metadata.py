"""The `.metadata` of a DCP directory: which bytes of which file are which chunk of a tensor.

It is a pickle of torch's classes, read as data. It has to be consistent: every chunk must have its
bytes, and the chunks of a tensor must cover it, each element once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from xlayout.errors import FormatError
from xlayout.port.formats import dcp_names as names
from xlayout.port.formats.base import DTYPES, Bounds, TensorSpec
from xlayout.port.formats.boxes import Boxed
from xlayout.port.formats.file_names import is_plain_name
from xlayout.port.formats.pickle_tree import Made, Name, read_pickle, show
from xlayout.port.formats.torch_tensor import DTYPE_NAMES

__all__ = ["VERSION", "Chunk", "Contents", "Entry", "Item", "parse_metadata"]

VERSION = "1.0.0"
"""The version that torch gives the metadata; earlier releases gave none."""

_MOST_CUT = 4  # axes along which a tensor is cut into chunks


@dataclass(frozen=True, slots=True)
class Item:
    """The bytes of a file in which one chunk is serialized."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """A box of a tensor, and where it lies."""

    box: Bounds
    item: Item


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor, and the chunks that cover it."""

    spec: TensorSpec
    boxed: Boxed[Chunk]

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks, sorted by their boxes."""
        return self.boxed.items


@dataclass(frozen=True, slots=True)
class Contents:
    """The tensors by name, and the names of what is not a tensor."""

    tensors: Mapping[str, Entry]
    others: tuple[str, ...]


class _WrongError(Exception):
    """What is wrong with one entry, without its name."""


def parse_metadata(raw: bytes, /, *, where: str) -> Contents:
    """Return what a directory holds.

    Args:
        raw: The file's content.
        where: What to call it in errors.

    Raises:
        FormatError: It names what does not belong in it, or is inconsistent: a chunk outside its
            tensor or in no file, chunks that overlap or leave a hole, a file outside the directory.

    >>> parse_metadata(b"N.", where=".metadata")
    Traceback (most recent call last):
    xlayout.errors.FormatError: .metadata: None where a Metadata stands; wanted one
    """
    tree = read_pickle(raw, names.ALLOWED, where=where)
    try:
        fields = _fields(tree, names.METADATA)
        version, said = fields.get("version"), fields.get("state_dict_metadata")
        if version not in (None, VERSION):
            raise _WrongError(f"version {show(version)}; wanted {VERSION!r}")
        if not isinstance(said, dict) or not all(isinstance(name, str) for name in said):
            raise _WrongError(f"state_dict_metadata {show(said)}; wanted a dict of names")
        items = _items(fields.get("storage_data"))
    except _WrongError as error:
        raise FormatError(f"{where}: {error}") from None
    tensors, others = {}, []
    for name, value in said.items():
        if isinstance(value, Made) and value.what == names.BYTES:
            others.append(name)
            continue
        try:
            tensors[name] = _entry(name, value, items)
        except _WrongError as error:
            raise FormatError(f"{where}: {name!r:.200}: {error}") from None
    return Contents(tensors, tuple(others))


def _items(storage: Any) -> dict[tuple[str, tuple[int, ...]], Item]:
    """Return where each chunk lies, by its tensor's name and its place in it."""
    if not isinstance(storage, dict):
        raise _WrongError(f"storage_data {show(storage)}; wanted a dict")
    items: dict[tuple[str, tuple[int, ...]], Item] = {}
    for key, value in storage.items():
        index, info = _fields(key, names.INDEX), _fields(value, names.STORAGE_INFO)
        name, offset = index.get("fqn"), index.get("offset")
        if not isinstance(name, str):
            raise _WrongError(f"storage_data of {show(name)}; wanted a name")
        if offset is None:  # not a tensor's
            continue
        try:
            place = name, _size(offset)
            if place in items:
                raise _WrongError(f"two items for the chunk at {place[1]}; wanted one")
            items[place] = _item(info)
        except _WrongError as error:
            raise _WrongError(f"{name!r:.200}: {error}") from None
    return items


def _item(info: dict[Any, Any]) -> Item:
    file, offset, length = info.get("relative_path"), info.get("offset"), info.get("length")
    if not is_plain_name(file):
        raise _WrongError(f"{show(file)}; wanted the plain name of a file in this directory")
    if type(offset) is not int or type(length) is not int or offset < 0 or length < 0:
        raise _WrongError(f"bytes {show(length)} from {show(offset)}; wanted integers from 0")
    if how := info.get("transform_descriptors"):
        raise _WrongError(f"stored by way of {show(how)}; wanted a checkpoint without extensions")
    return Item(file, offset, length)


def _entry(name: str, value: Any, items: Mapping[tuple[str, tuple[int, ...]], Item]) -> Entry:
    fields = _fields(value, names.TENSOR)
    spec = TensorSpec(_dtype(fields.get("properties")), _size(fields.get("size")))
    if not spec.fits:
        raise _WrongError(
            f"shape {show(spec.shape)}; wanted 64 axes at most, and less than 2^63 bytes"
        )
    said = fields.get("chunks")
    if not isinstance(said, list):
        raise _WrongError(f"chunks {show(said)}; wanted a list")
    chunks = []
    for one in said:
        parts = _fields(one, names.CHUNK)
        starts, sizes = _size(parts.get("offsets")), _size(parts.get("sizes"))
        if len(starts) != len(spec.shape) or len(sizes) != len(spec.shape):
            raise _WrongError(
                f"a chunk of {show(sizes)} at {show(starts)}; wanted one of {len(spec.shape)} axes"
            )
        if 0 in sizes:  # from a rank that got no share of the tensor
            continue
        box = tuple((start, start + n) for start, n in zip(starts, sizes, strict=True))
        if any(stop > n for (_, stop), n in zip(box, spec.shape, strict=True)):
            raise _WrongError(f"a chunk of {sizes} at {starts}; wanted one within {spec.shape}")
        item = items.get((name, starts))
        if item is None:
            raise _WrongError(f"its chunk at {starts} lies in no file; wanted an item for each")
        if item.length < (nbytes := math.prod(sizes) * spec.itemsize):
            raise _WrongError(
                f"its chunk at {starts} has {item.length} bytes in a file; wanted {nbytes} or more"
            )
        chunks.append(Chunk(box, item))
    _refuse_cover(spec.shape, [chunk.box for chunk in chunks])
    return Entry(spec, Boxed(chunks, len(spec.shape)))


def _refuse_cover(shape: tuple[int, ...], boxes: Sequence[Bounds]) -> None:
    """Refuse chunks that overlap or leave a hole.

    The number of chunks that contain an element is the sum of steps at the corners of the chunks,
    up and down in alternation. It is one everywhere if all these steps add up to those of the whole
    tensor; otherwise the first step left over is at an element with another number. The time this
    takes does not depend on how the chunks lie.
    """
    cut = [axis for axis, n in enumerate(shape) if any(box[axis] != (0, n) for box in boxes)]
    if len(cut) > _MOST_CUT:
        raise _WrongError(f"chunks cut along axes {show(cut)}; wanted at most {_MOST_CUT} of them")
    whole = tuple((0, n) for n in shape)
    steps: Counter[tuple[int, ...]] = Counter()
    for ends in product((0, 1), repeat=len(cut)):
        up = (-1) ** sum(ends)
        steps[tuple(whole[axis][end] for axis, end in zip(cut, ends, strict=True))] -= up
        for box in boxes:
            steps[tuple(box[axis][end] for axis, end in zip(cut, ends, strict=True))] += up
    left = min((place for place, step in steps.items() if step), default=None)
    if left is not None and 0 not in shape:
        at = dict(zip(cut, left, strict=True))
        raise _WrongError(
            f"its element at {[at.get(axis, 0) for axis in range(len(shape))]} is in "
            f"{1 + steps[left]} chunks; wanted each element in one"
        )


def _dtype(properties: Any) -> str:
    state = properties.state if _is(properties, names.PROPERTIES) else None
    if type(state) is not tuple or len(state) not in (5, 6):  # strides came with torch 2.15
        raise _WrongError(f"properties {show(state)}; wanted dtype, layout and three or four more")
    dtype, layout = state[:2]
    if not isinstance(dtype, Name) or dtype not in DTYPE_NAMES:
        raise _WrongError(f"dtype {show(dtype)}; known are {', '.join(DTYPES)}")
    if not _is(layout, names.LAYOUT) or layout.args != ("torch.strided",):
        said = layout.args if isinstance(layout, Made) else layout
        raise _WrongError(f"layout {show(said)}; wanted that of a dense tensor, 'torch.strided'")
    return DTYPE_NAMES[dtype]


def _size(value: Any) -> tuple[int, ...]:
    sizes = value.args[0] if _is(value, names.SIZE) and len(value.args) == 1 else None
    if type(sizes) is not tuple or not all(type(n) is int and n >= 0 for n in sizes):
        raise _WrongError(f"size {show(sizes)}; wanted integers from 0")
    return sizes


def _fields(value: Any, kind: str) -> dict[Any, Any]:
    state = value.state if _is(value, kind) else None
    if not isinstance(state, dict):
        raise _WrongError(f"{show(value)} where a {kind.rpartition('.')[2]} stands; wanted one")
    return state


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, Made) and value.what == kind
