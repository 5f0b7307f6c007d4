"""Checkpoint formats: open one to read regions of tensors, or create one and fill it by regions.

    with open_source(path) as source, create_sink(out, "maxtext", specs, config=config) as sink:
        tile = source.read("model.norm.weight", (slice(0, 64),))      # a numpy array, raw bits
        sink.write("params/params/decoder/decoder_norm/scale", tile, (slice(0, 64),))
        sink.commit()                                                 # otherwise nothing remains

| format | what it reads | what it writes | a tensor's name |
|---|---|---|---|
| `safetensors` | a file; a directory, with an index or without | the same | its key |
| `gguf` | a file; quantised tensors come in float32 | nothing | its GGUF name |
| `maxtext` | an Orbax checkpoint, or a folder above it | `<path>/0/items` | its path, with "/" |
| `dcp` | a directory of torch.distributed.checkpoint | the same | its key, nested ones with "." |

`Source.config` is the model's config in Hugging Face keys, whatever the format. Broken files raise
`FormatError`, wrong regions `ShapeError`, an output that exists or a full disk `PortError`.

Its modules, from the bottom up:

    base                                             what every source and sink offers
    git_lfs                                          pointers where files should be
    system_errors, strict_json, config, file_names   errors, JSON and names, treated as hostile
    open_files, runs, boxes                          open files; the bytes of a region; boxes
    coverage, journal                                what is written, and noted
    stages, publish, foreseen, sink, laid_out        an output that appears whole or not at all
    safetensors_header, safetensors_index, safetensors
    gguf_header, gguf
    pickle_tree, pickle_write, torch_tensor, torch_archive, torch_archive_write
    dcp_names, dcp_metadata, dcp_metadata_write, dcp_items, dcp, dcp_sink
    orbax_tree, tensorstore_errors, tensorstore_specs, chunk_grid, maxtext
    folders                                          which format a folder is of
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.errors import FormatError
from xlayout.port.formats.base import Region, Sink, Source, TensorSpec, numpy_dtype
from xlayout.port.formats.file_names import given_path, require_file
from xlayout.port.formats.folders import folder_format, instead
from xlayout.port.formats.git_lfs import refuse_pointer
from xlayout.port.formats.system_errors import named

if TYPE_CHECKING:
    from os import PathLike

    from xlayout.port.formats.dcp_sink import Shares

__all__ = [
    "Region",
    "Sink",
    "Source",
    "TensorSpec",
    "create_sink",
    "numpy_dtype",
    "open_source",
    "sniff",
]


def sniff(path: str | PathLike[str], /) -> str:
    """Return the format of a checkpoint by its name and first bytes.

    Raises:
        FormatError: Nothing is there, or it is in none of the formats we read.
        PortError: The path is empty.
        TypeError: It is no path.

    >>> sniff("absent")
    Traceback (most recent call last):
    xlayout.errors.FormatError: absent: nothing is there; wanted a checkpoint file or directory
    """
    where = given_path(path)
    if where.is_dir():
        if known := folder_format(where):
            return known
        found = ", ".join(sorted(p.name for p in where.iterdir())[:8]) or "nothing"
        raise FormatError(
            f"{where}: a directory with {found}; wanted *.safetensors, 0/items or .metadata"
            + instead(where)
        )
    if not where.exists():
        hub = "" if where.parent.is_dir() else "; a model on a hub is fetched first (hf download)"
        raise FormatError(f"{where}: nothing is there; wanted a checkpoint file or directory{hub}")
    require_file(where, "a regular file or a directory")
    refuse_pointer(where)
    with where.open("rb") as file, named(where):
        magic = file.read(4)
    if magic == b"GGUF" or where.suffix == ".gguf":
        return "gguf"
    if where.suffix == ".safetensors":
        return "safetensors"
    raise FormatError(
        f"{where}: not a checkpoint we read; wanted safetensors, GGUF, Orbax or DCP{instead(where)}"
    )


def open_source(
    path: str | PathLike[str],
    /,
    format: str | None = None,  # noqa: A002
) -> Source:
    """Open a checkpoint for reading, from its headers alone.

    Args:
        path: A `.safetensors` or `.gguf` file, a directory of shards, an Orbax checkpoint, or a
            directory of torch.distributed.checkpoint.
        format: "safetensors", "gguf", "maxtext" or "dcp"; None looks at the file.

    Raises:
        FormatError: The checkpoint is broken, hostile, or of no known format.
        PortError: The path is empty.
        TypeError: It is no path.

    >>> open_source("absent", "pickle")
    Traceback (most recent call last):
    xlayout.errors.FormatError: format: 'pickle'; wanted 'safetensors', 'gguf', 'maxtext' or 'dcp'
    """
    where = given_path(path)
    match sniff(where) if format is None else format:
        case "safetensors":
            from xlayout.port.formats.safetensors import SafetensorsSource

            return SafetensorsSource(where)
        case "gguf":
            from xlayout.port.formats.gguf import GGUFSource

            return GGUFSource(where)
        case "maxtext":
            from xlayout.port.formats.maxtext import MaxTextSource

            return MaxTextSource(where)
        case "dcp":
            from xlayout.port.formats.dcp import DCPSource

            return DCPSource(where)
        case other:
            raise FormatError(
                f"format: {other!r}; wanted 'safetensors', 'gguf', 'maxtext' or 'dcp'"
            )


def create_sink(
    path: str | PathLike[str],
    format: str,  # noqa: A002
    specs: Mapping[str, TensorSpec],
    /,
    *,
    config: Mapping[str, Any] | None = None,
    max_shard_size: int | str = "5GB",
    chunks: Mapping[str, tuple[int, ...]] | None = None,
    shares: Shares | None = None,
    key: str | None = None,
    beside: Mapping[str, Path | bytes] | None = None,
) -> Sink:
    """Create a checkpoint that will hold exactly `specs`, hidden until it is committed.

    Args:
        path: A directory that is absent or empty; for safetensors also a `*.safetensors` file.
        format: "safetensors", "maxtext" or "dcp".
        specs: Every tensor that will be written.
        config: The model's config in Hugging Face keys, published with the weights.
        max_shard_size: For safetensors and dcp: bytes per file, as a number or "5GB", "200MiB".
        chunks: For maxtext: the extent of the regions that will be written, per tensor; the
            default is one layer of a stack, or the whole tensor. Regions must lie on its grid.
        shares: For dcp: the boxes of each tensor that are stored apart, each with the rank whose
            file it is in; together they are all of the tensor. The default is whole tensors.
        key: Identifies what is being written. With one, a run that is interrupted leaves its files,
            and the next run with the same key continues in them (`Sink.holds`).
        beside: Files to publish with the tensors, by the name they will have there: their path, or
            their content.

    Raises:
        FormatError: The format cannot be written, or cannot hold one of the tensors.
        PortError: The output already holds something, the disk is too small, the path is empty, or
            `max_shard_size` is not an amount of bytes.
        ShapeError: `chunks` or `shares` do not fit their tensors.
        TypeError: The path is none, or `max_shard_size` neither a number nor text.

    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/x.safetensors"
    ...     with create_sink(path, "safetensors", {"x": TensorSpec("int8", (4,))}) as sink:
    ...         sink.write("x", np.array([3, 4], np.int8), (slice(2, 4),))
    ...         sink.write("x", np.array([1, 2], np.int8), (slice(0, 2),))
    ...         sink.commit()
    ...     with open_source(path) as source:
    ...         print(source.tensors["x"], source.read("x", (slice(1, 3),)))
    TensorSpec(dtype='int8', shape=(4,)) [2 3]
    """
    where = given_path(path, wanted="where the output will appear")
    common: Any = {"config": config, "key": key, "beside": beside}
    match format:
        case "safetensors":
            from xlayout.port.formats.safetensors import SafetensorsSink

            return SafetensorsSink(where, specs, max_shard_size=max_shard_size, **common)
        case "maxtext":
            from xlayout.port.formats.maxtext import MaxTextSink

            return MaxTextSink(where, specs, chunks=chunks, **common)
        case "dcp":
            from xlayout.port.formats.dcp_sink import DCPSink

            return DCPSink(where, specs, shares=shares, max_shard_size=max_shard_size, **common)
        case other:
            raise FormatError(
                f"format: {other!r} cannot be written; 'safetensors', 'maxtext' or 'dcp' can"
            )
