"""The tree of an Orbax checkpoint: where it is, which arrays it names, and how it is written.

Orbax joins a leaf's keys with "." to name its array; we join them with "/", as MaxText's own code
does when it prints a path.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xlayout.errors import FormatError
from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.file_names import natural_key
from xlayout.port.formats.strict_json import read_json

__all__ = [
    "METADATA",
    "STEP_METADATA",
    "Tree",
    "find_items",
    "read_tree",
    "refuse_path",
    "render_step",
    "render_tree",
    "tree_folders",
]

METADATA = "_METADATA"
STEP_METADATA = "_CHECKPOINT_METADATA"
_ITEMS = ("items", "default")
_DICT_KEY = 2
_SHOWN = 4  # the latest steps


@dataclass(frozen=True, slots=True)
class Tree:
    """The arrays of a checkpoint: name -> name in storage, and how they are stored.

    Attributes:
        keys: The array's name in storage, by the tensor's name.
        ocdbt: Whether the arrays lie in one OCDBT store, not in a folder each.
        zarr3: Whether they are zarr version 3.
        filled: Whether every chunk was written, so that a missing one is an error.
    """

    keys: Mapping[str, str]
    ocdbt: bool
    zarr3: bool
    filled: bool


def tree_folders(path: Path, /) -> list[Path]:
    """Return the folders with a tree: `path` itself, its items, or those of its steps in order."""
    steps = [step for step in path.glob("*") if step.name.isdecimal()]
    steps.sort(key=lambda step: natural_key(step.name))
    places = [path, *(base / item for base in (path, *steps) for item in _ITEMS)]
    return [place for place in places if (place / METADATA).is_file()]


def find_items(path: Path, /) -> Path:
    """Return the one folder with a tree.

    Raises:
        FormatError: There is none, there are several, or tensorstore cannot be given the path.
    """
    refuse_path(path)
    found = tree_folders(path)
    if len(found) == 1:
        return found[0]
    shown = ", ".join(map(str, found[-_SHOWN:])) or f"no {METADATA}"
    raise FormatError(f"{path}: {shown}; wanted the folder of one step, or of its items")


def refuse_path(path: str | os.PathLike[str], /) -> None:
    """Refuse a path that tensorstore would reject, or mistake for another one.

    Raises:
        FormatError: It is not UTF-8, or has a name with a backslash in it.
    """
    real = os.path.realpath(path)
    try:
        real.encode()
    except UnicodeEncodeError as error:
        raise FormatError(
            f"{path}: a path that is not UTF-8; wanted one that is, for tensorstore takes no other"
        ) from error
    if "\\" in real:
        raise FormatError(
            f"{path}: {real!r} has a backslash; wanted a path without, for tensorstore takes it "
            "for '/'"
        )


def read_tree(items: Path, /) -> Tree:
    """Return the arrays that a checkpoint's metadata names.

    Raises:
        FormatError: It is not the metadata of a tree of arrays.
    """
    path = items / METADATA
    metadata = read_json(path)
    entries = metadata.get("tree_metadata") if isinstance(metadata, dict) else None
    if not isinstance(entries, dict):
        raise FormatError(f"{path}: no tree_metadata; wanted an object of leaves")
    keys: dict[str, str] = {}
    for leaf, entry in entries.items():
        try:
            parts = [part["key"] for part in entry["key_metadata"]]
            value = entry["value_metadata"]
            skipped = value.get("skip_deserialize", False) or value["value_type"] == "string"
        except (TypeError, KeyError, AttributeError) as error:
            raise FormatError(f"{path}: {leaf!r:.200}: {error!r}; wanted a leaf") from error
        if not skipped:
            _refuse_unsafe(parts, where=f"{path}: {leaf!r:.200}")
            keys["/".join(parts)] = ".".join(parts)
    return Tree(
        keys,
        ocdbt=bool(metadata.get("use_ocdbt", (items / "manifest.ocdbt").is_file())),
        zarr3=bool(metadata.get("use_zarr3", False)),
        filled=bool(metadata.get("store_array_data_equal_to_fill_value", False)),
    )


def render_tree(specs: Mapping[str, TensorSpec], /) -> bytes:
    """Return the metadata for tensors named by their paths.

    The leaves are declared as numpy arrays, which Orbax restores with or without a device mesh.

    Raises:
        FormatError: A name is not a path, or one tensor lies inside another.
    """
    leaves: dict[str, Any] = {}
    for name, spec in specs.items():
        parts = name.split("/")
        _refuse_unsafe(parts, where=name)
        if any("." in part for part in parts):
            raise FormatError(f"{name}: keys with '.' are ambiguous in Orbax; rename the tensor")
        if above := next(
            (p for n in range(1, len(parts)) if (p := "/".join(parts[:n])) in specs), ""
        ):
            raise FormatError(f"{name}: lies inside {above}, which is a tensor; wanted a tree")
        leaves[str(tuple(parts))] = {
            "key_metadata": [{"key": part, "key_type": _DICT_KEY} for part in parts],
            "value_metadata": {
                "value_type": "np.ndarray",
                "skip_deserialize": False,
                "write_shape": list(spec.shape),
            },
        }
    metadata = {
        "tree_metadata": leaves,
        "use_ocdbt": True,
        "use_zarr3": True,
        "store_array_data_equal_to_fill_value": True,
        "custom_metadata": None,
    }
    return json.dumps(metadata).encode()


def render_step(config: Mapping[str, Any], /) -> bytes:
    """Return the metadata of a step with this config, as MaxText reads it.

    Unless the step says whether its layers are single or stacked, MaxText silently loads one into a
    model of the other, and the model's layers stay random.
    """
    said = config.get("maxtext")
    stacked = said.get("scan_layers") if isinstance(said, Mapping) else None
    known = {} if stacked is None else {"scan_layers": stacked}
    return json.dumps({"custom_metadata": known}).encode()


def _refuse_unsafe(parts: list[Any], *, where: str) -> None:
    """Refuse keys that could lead out of the checkpoint's folder, or are ambiguous."""
    good = all(
        isinstance(p, str) and p.strip(".") and not {"/", "\\", "\0"} & set(p) for p in parts
    )
    if not parts or not good:
        raise FormatError(f"{where}: keys {parts!r:.200}; wanted names without '/'")
