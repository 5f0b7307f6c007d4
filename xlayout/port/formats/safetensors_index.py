"""The index of a safetensors directory, which file has which tensor: read as hostile, and made."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from xlayout.errors import FormatError
from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.file_names import is_plain_name, natural_key
from xlayout.port.formats.strict_json import read_json

__all__ = [
    "INDEX",
    "listed_files",
    "refuse_mismatch",
    "render_index",
    "shard",
]

INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_OF_RANKS = re.compile(r"shard-\d+-model-")  # each file has a part of every tensor


def listed_files(folder: Path, /) -> Mapping[str, set[str] | None]:
    """Return the files of a directory, each with the tensors its index gives it (None: any).

    Raises:
        FormatError: There is not exactly one index or file, both are there, or the index is
            malformed.
    """
    indexes = sorted(path.name for path in folder.glob("[!.]*.safetensors.index.json"))
    files = sorted(path.name for path in folder.glob("[!.]*.safetensors"))
    if INDEX in indexes or len(indexes) == 1:
        index = INDEX if INDEX in indexes else indexes[0]
        listed = _read_index(folder / index)
        if _SINGLE in files and list(listed) != [_SINGLE]:
            raise FormatError(
                f"{folder}: {_SINGLE} beside {index}, which names other files; wanted one of the "
                "two, as readers differ in which they take"
            )
        return listed
    if not indexes and (_SINGLE in files or len(files) == 1):
        return {_SINGLE if _SINGLE in files else files[0]: None}
    found = ", ".join([*indexes, *files][:8]) or "no safetensors file"
    apart = any(_OF_RANKS.match(file) for file in files)
    raise FormatError(
        f"{folder}: {found}; wanted one file, or one index that names the shards"
        + "; what torch's ranks saved apart, its HuggingFaceStorageWriter puts together with "
        "enable_consolidation=True" * apart
    )


def _read_index(path: Path) -> dict[str, set[str]]:
    index = read_json(path)
    weights = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weights, dict):
        raise FormatError(f"{path}: no weight_map; wanted an object of tensor: file")
    listed = defaultdict(set)
    for tensor, file in weights.items():
        if not is_plain_name(file) or not re.fullmatch(r"(?s).+\.safetensors", file):
            raise FormatError(
                f"{path}: {tensor!r}: {file!r:.200}; wanted the plain name of a *.safetensors "
                "file in this directory"
            )
        listed[file].add(tensor)
    return listed


def refuse_mismatch(there: Iterable[str], listed: set[str], /, *, file: Path) -> None:
    """Refuse a file whose tensors are not exactly those that the index gives it.

    Raises:
        FormatError: Some are listed but not there, or there but not listed.
    """
    ghosts, extra = sorted(listed.difference(there)), sorted(set(there) - listed)
    if ghosts or extra:
        raise FormatError(
            f"{file}: listed in the index but not there: {ghosts[:8]}; there but not listed: "
            f"{extra[:8]}; both must name the same tensors"
        )


def shard(
    specs: Mapping[str, TensorSpec], limit: int | None, /
) -> dict[str, dict[str, tuple[TensorSpec, int]]]:
    """Distribute tensors, in natural order, over files of at most `limit` bytes (None: one file).

    A larger tensor has a file of its own. Within a file wide dtypes come first, so that each tensor
    is aligned to its dtype.

    >>> shard({"a": TensorSpec("int8", (9,)), "b": TensorSpec("int16", (3,))}, 6)
    ... # doctest: +NORMALIZE_WHITESPACE
    {'model-00001-of-00002.safetensors': {'a': (TensorSpec(dtype='int8', shape=(9,)), 0)},
     'model-00002-of-00002.safetensors': {'b': (TensorSpec(dtype='int16', shape=(3,)), 0)}}
    """
    groups: list[list[str]] = [[]]
    filled = 0
    for name, spec in sorted(specs.items(), key=lambda item: natural_key(item[0])):
        if limit is not None and groups[-1] and filled + spec.nbytes > limit:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += spec.nbytes
    shards = {}
    for number, group in enumerate(groups, 1):
        file = _SINGLE if len(groups) == 1 else f"model-{number:05}-of-{len(groups):05}.safetensors"
        entries, offset = {}, 0
        for name in sorted(group, key=lambda name: -specs[name].itemsize):
            entries[name] = (specs[name], offset)
            offset += specs[name].nbytes
        shards[file] = entries
    return shards


def render_index(shards: Mapping[str, Mapping[str, tuple[TensorSpec, int]]], /) -> bytes:
    """Return the index file for the shards."""
    placed = {name: file for file, entries in shards.items() for name in entries}
    total = sum(spec.nbytes for entries in shards.values() for spec, _ in entries.values())
    index = {
        "metadata": {"total_size": total},
        "weight_map": {name: placed[name] for name in sorted(placed, key=natural_key)},
    }
    return (json.dumps(index, indent=2, ensure_ascii=False) + "\n").encode()
