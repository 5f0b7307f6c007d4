"""A MaxText parameter tree in an Orbax checkpoint, read and written chunk by chunk.

Orbax keeps each leaf as a zarr array in an OCDBT store, and the tree in a `_METADATA` file. We
access the arrays through tensorstore, so a stacked kernel of all layers is read and written one
layer at a time. Plain Orbax restores what we write, as numpy arrays or onto any sharding. A
tensor's name is its path in the tree: "params/params/decoder/layers/mlp/wi_0/kernel".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.errors import FormatError, ShapeError
from xlayout.port.formats.base import (
    Bounds,
    Region,
    Source,
    TensorSpec,
    check_out,
    require,
    resolve,
)
from xlayout.port.formats.chunk_grid import chunk_count, chunk_keys, chunk_shape, stored_bytes
from xlayout.port.formats.config import read_config
from xlayout.port.formats.file_names import require_file
from xlayout.port.formats.git_lfs import refuse_pointer
from xlayout.port.formats.orbax_tree import (
    METADATA,
    STEP_METADATA,
    find_items,
    read_tree,
    refuse_path,
    render_step,
    render_tree,
)
from xlayout.port.formats.sink import StagedSink
from xlayout.port.formats.system_errors import closed
from xlayout.port.formats.tensorstore_errors import broken_arrays, system_errors
from xlayout.port.formats.tensorstore_specs import read_spec, store_spec, write_spec

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["MaxTextSink", "MaxTextSource"]

_ITEMS = "0/items"
_SLACK = 4096  # bytes of bookkeeping per array and per chunk, generously
_PROBES = 8  # pairs of writes: at each 16th one, the nodes of earlier versions are read
_STACKS = ("layers", "dense_layers", "moe_layers")


class MaxTextSource(Source):
    """An Orbax checkpoint of arrays, opened at its items or at a folder above them.

    Attributes:
        chunks: The chunk shape of every tensor; reading part of a chunk reads all of it.

    Raises:
        FormatError: The tree is malformed, an array is missing or broken, or it is unclear which of
            several steps is meant.
    """

    format = "maxtext"

    def __init__(self, path: str | os.PathLike[str], /) -> None:
        self.path = Path(os.path.realpath(path))  # unlike resolve(), it tolerates a loop
        items = find_items(self.path)
        tree = read_tree(items)
        _refuse_unfit_files(items)
        ts = require("tensorstore")
        opening = {
            name: ts.open(read_spec(items, key, tree), read=True) for name, key in tree.keys.items()
        }
        self._arrays: dict[str, Any] = {}
        tensors = {}
        for name, future in opening.items():
            with broken_arrays(f"{items}: {name}"):
                array = self._arrays[name] = future.result()
                tensors[name] = TensorSpec(array.dtype.name, tuple(array.shape))
        self.tensors: Mapping[str, TensorSpec] = tensors
        self.chunks: Mapping[str, tuple[int, ...]] = {
            name: tuple(array.chunk_layout.read_chunk.shape or ())
            for name, array in self._arrays.items()
        }
        self.home, self.config = _config_above(items)
        files = (Path(root) / file for root, _, files in os.walk(items) for file in files)
        self.files: Mapping[str, int] = {
            str(file.relative_to(self.path)): file.stat().st_size
            for file in files  # no dangling links, and no unfinished output of a port
            if file.is_file() and ".partial/" not in file.relative_to(self.path).as_posix()
        }

    def read(self, name: str, region: Region | None = None, out: Array | None = None) -> Array:
        """Read one region of one tensor; see `Source.read`."""
        spec = self.tensors[name]
        if not self._arrays:
            raise closed(self.path)
        box = resolve(region, spec.shape)
        out = check_out(out, spec.dtype, box)
        with broken_arrays(f"{self.path}: {name}"):
            target = require("tensorstore").array(out, copy=False, write=True)
            target.write(self._arrays[name][tuple(starmap(slice, box))]).result()
        return out

    def close(self) -> None:
        """Forget the arrays."""
        self._arrays.clear()


class MaxTextSink(StagedSink):
    """An Orbax checkpoint being written to `<path>/0/items`, with a `<path>/config.json`.

    Regions are whole chunks, because an OCDBT store keeps every version of a chunk it is given.

    Args:
        path: The directory that will appear.
        specs: Every tensor that will be written, by its path in the tree.
        config: Stored as config.json.
        chunks: The extent of the regions per tensor; the default is one layer, or all of it.
        key: See `StagedSink`.
        beside: See `StagedSink`.

    Attributes:
        chunks: The chunk shape of every tensor: its extent, or an even part of that.

    Raises:
        FormatError: A name is not a path in a tree, or a dtype, shape or config cannot be stored.
        PortError: The output already holds something, or the disk is too small.
    """

    format = "maxtext"

    def __init__(
        self,
        path: str | os.PathLike[str],
        specs: Mapping[str, TensorSpec],
        /,
        *,
        config: Mapping[str, Any] | None = None,
        chunks: Mapping[str, tuple[int, ...]] | None = None,
        key: str | None = None,
        beside: Mapping[str, Path | bytes] | None = None,
    ) -> None:
        refuse_path(path)
        require("tensorstore")  # fail before touching what an interrupted run wrote
        extents = {name: _one_layer(name, spec.shape) for name, spec in specs.items()}
        extents |= chunks or {}
        for name, extent in extents.items():
            if name not in specs:
                raise ShapeError(f"chunks: {name!r:.200}; wanted the name of a tensor in specs")
            _refuse_unfit(name, specs[name], extent)
        self.chunks: Mapping[str, tuple[int, ...]] = {
            name: chunk_shape(extents[name], spec.itemsize) for name, spec in specs.items()
        }
        self._tree = render_tree(specs)
        self._step = render_step(config or {})
        parts = sum(chunk_count(specs[name].shape, chunk) for name, chunk in self.chunks.items())
        total = sum(stored_bytes(spec, extents[name]) for name, spec in specs.items())
        needed = total + _SLACK * (len(specs) + parts)
        needed += len(self._tree) + len(self._step)
        self._arrays: dict[str, Any] = {}
        super().__init__(
            path,
            specs,
            needed=needed,
            parts={"0"},
            extras={},
            config=config,
            key=key,
            beside=beside,
        )

    def _create(self) -> None:
        self._items = self._staging.folder / _ITEMS
        self._items.mkdir(parents=True, exist_ok=True)
        for unfinished in self._items.rglob("*.__lock"):  # from a killed run
            unfinished.unlink()
        ts = require("tensorstore")
        # Everything is flushed once, before publishing, instead of after every chunk.
        context = ts.Context({"file_io_sync": False})
        if self._staging.resumed:  # read all nodes: a write would fail at a broken one
            with system_errors():
                store = ts.KvStore.open(store_spec(self._items), context=context).result()
                store.list().result()
                for value in (b"", None) * _PROBES:
                    store.write("probe", value).result()
        specs = {
            name: write_spec(self._items, name, spec, self.chunks[name])
            for name, spec in self.tensors.items()
        }
        opening: dict[str, Any] = {}
        try:
            for name, spec in specs.items():
                opening[name] = ts.open(spec, create=True, open=True, context=context)
            for future in opening.values():
                future.exception()
        finally:
            # Wait for all before one raises, or an interrupt passes: nothing else may use the
            # folder while it is cleared.
            for future in opening.values():
                future.exception()
        for name, future in opening.items():
            with system_errors():
                self._arrays[name] = future.result()

    def _fit(self, name: str, box: Bounds) -> None:
        whole = zip(box, self.chunks[name], self.tensors[name].shape, strict=True)
        if any(start % c or (stop % c and stop != n) for (start, stop), c, n in whole):
            raise ShapeError(
                f"{name}: {box} cuts chunks of {self.chunks[name]}; wanted regions of whole "
                "chunks, and `chunks` says how large they will be"
            )

    def _get(self, name: str, box: Bounds, out: Array) -> bool:
        target = require("tensorstore").array(out, copy=False, write=True)
        try:
            target.write(self._arrays[name][tuple(starmap(slice, box))]).result()
        except ValueError:  # a chunk is missing or damaged
            return False
        return True

    def _put(self, name: str, array: Array, box: Bounds) -> None:
        with broken_arrays(str(self.path)):
            try:
                self._store(name, array, box)
            except ValueError:
                if not self._staging.resumed:
                    raise
                # One that reaches over the edge is read before it is overwritten, also if damaged.
                for key in chunk_keys(box, self.chunks[name]):
                    self._arrays[name].kvstore.write(key, None).result()
                self._store(name, array, box)

    def _store(self, name: str, array: Array, box: Bounds) -> None:
        target = self._arrays[name][tuple(starmap(slice, box))]
        # We wait for the write to finish, so tensorstore may use the array in place.
        target.write(array, can_reference_source_data_indefinitely=True).result()

    def _finish(self) -> None:
        (self._items / METADATA).write_bytes(self._tree)
        (self._items.parent / STEP_METADATA).write_bytes(self._step)

    def _release(self) -> None:
        self._arrays.clear()


def _one_layer(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a tensor's shape, cut to one layer if MaxText stacks layers in it, along axis 1."""
    scanned = len(shape) > 1 and any(part in _STACKS for part in name.split("/"))
    return (shape[0], 1, *shape[2:]) if scanned else shape


def _refuse_unfit(name: str, spec: TensorSpec, chunk: tuple[int, ...]) -> None:
    if not spec.size:
        raise FormatError(f"{name}: shape {spec.shape}; Orbax holds no tensor of zero elements")
    if len(chunk) != len(spec.shape) or not all(
        0 < c <= n for c, n in zip(chunk, spec.shape, strict=True)
    ):
        raise ShapeError(f"chunks: {chunk} for {name}; wanted from 1 to {spec.shape}")


def _refuse_unfit_files(items: Path) -> None:
    """Refuse pointers of Git LFS, and pipes, at which tensorstore would wait for a writer."""
    for file in (Path(root) / name for root, _, names in os.walk(items) for name in names):
        if file.exists():
            require_file(file)
        refuse_pointer(file)


def _config_above(items: Path) -> tuple[Path | None, Mapping[str, Any]]:
    """Return the folder of the config, and the config beside the items, the step or the steps."""
    for folder in (items, items.parent, items.parent.parent):
        if config := read_config(folder):
            return folder, config
    return None, {}
