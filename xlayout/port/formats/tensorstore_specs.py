"""Tensorstore's specs of the arrays of an Orbax checkpoint: where and how they are stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.orbax_tree import Tree

__all__ = ["read_spec", "store_spec", "write_spec"]


def store_spec(items: Path, /, key: str = "") -> dict[str, Any]:
    """Return the spec of an OCDBT store, or of what it has under a key."""
    base = {"driver": "file", "path": f"{items}/"}
    return {"driver": "ocdbt", "base": base, "path": key}


def read_spec(items: Path, key: str, tree: Tree, /) -> dict[str, Any]:
    """Return the spec of an existing array."""
    file = {"driver": "file", "path": f"{items}/{key}/"}
    store = store_spec(items, f"{key}/") if tree.ocdbt else file
    return {
        "driver": "zarr3" if tree.zarr3 else "zarr",
        "kvstore": store,
        # A missing chunk is an error; by default zarr would read it as zeros.
        "fill_missing_data_reads": not tree.filled,
    }


def write_spec(
    items: Path, name: str, spec: TensorSpec, chunk: tuple[int, ...], /
) -> dict[str, Any]:
    """Return the spec of an array to be created, in chunks of a given shape."""
    return {
        "driver": "zarr3",
        "kvstore": {
            **store_spec(items, name.replace("/", ".") + "/"),
            # Each write rewrites the nodes above it and keeps the old ones; large ones add up.
            "config": {"max_decoded_node_bytes": 8192},
        },
        "store_data_equal_to_fill_value": True,
        "fill_missing_data_reads": False,
        "metadata": {
            "shape": list(spec.shape),
            "data_type": spec.dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
            # Weights are close to noise: zstd saves a fifth of the size, and costs two thirds of
            # the speed.
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        },
    }
