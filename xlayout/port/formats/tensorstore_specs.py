"""How tensorstore is told where the arrays of an Orbax checkpoint lie, and how they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.orbax_tree import Tree

__all__ = ["read_spec", "store_spec", "write_spec"]


def store_spec(items: Path, /, key: str = "") -> dict[str, Any]:
    """Return the spec of an OCDBT store, or of what lies under a key in it."""
    base = {"driver": "file", "path": f"{items}/"}
    return {"driver": "ocdbt", "base": base, "path": key}


def read_spec(items: Path, key: str, tree: Tree, /) -> dict[str, Any]:
    """Return the spec of an array that is there."""
    file = {"driver": "file", "path": f"{items}/{key}/"}
    store = store_spec(items, f"{key}/") if tree.ocdbt else file
    return {
        "driver": "zarr3" if tree.zarr3 else "zarr",
        "kvstore": store,
        # A chunk that is not there is an error, and not the zeros that zarr would make of it.
        "fill_missing_data_reads": not tree.filled,
    }


def write_spec(
    items: Path, name: str, spec: TensorSpec, chunk: tuple[int, ...], /
) -> dict[str, Any]:
    """Return the spec of an array to be made, in chunks of a shape."""
    return {
        "driver": "zarr3",
        "kvstore": {
            **store_spec(items, name.replace("/", ".") + "/"),
            # Each write makes the nodes above it anew, and old ones stay: large ones add up.
            "config": {"max_decoded_node_bytes": 8192},
        },
        "store_data_equal_to_fill_value": True,
        "fill_missing_data_reads": False,
        "metadata": {
            "shape": list(spec.shape),
            "data_type": spec.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
            # Weights are near to noise: zstd takes a fifth off them, and two thirds of the speed.
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        },
    }
