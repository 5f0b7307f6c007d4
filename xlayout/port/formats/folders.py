"""The format of a folder, or if it has none, suggestions what in it may have been meant.

Users name the folder of a training run or of a model in a cache, or files that torch pickled, and
should be told what to name instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from xlayout.port.formats.file_names import natural_key
from xlayout.port.formats.orbax_tree import tree_folders

__all__ = ["folder_format", "instead"]

_DEPTH = 3  # levels of a model in a cache: snapshots, a revision, a GGUF file
_MOST = 1000  # entries examined on each level
_SHOWN = 4
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")


def folder_format(folder: Path, /) -> str:
    """Return the format of the checkpoint in a folder; empty if it is not a checkpoint."""
    if any(folder.glob("[!.]*.safetensors")) or any(folder.glob("[!.]*.safetensors.index.json")):
        return "safetensors"
    if tree_folders(folder):
        return "maxtext"
    return "dcp" if (folder / ".metadata").is_file() else ""


def instead(path: Path, /) -> str:
    """Return what would work instead of a path that is not a checkpoint, to end a message with."""
    with suppress(OSError):  # skip what cannot be read
        if path.is_file() and folder_format(path.parent):
            return f"; name the directory that it is in: {path.parent}"
        for depth in range(_DEPTH):
            if advice := _advice(path, list(_level(path, depth))):
                return f"; {advice}"
    return ""


def _advice(path: Path, below: Sequence[Path]) -> str:
    if found := [p for p in below if p.suffix == ".gguf" or (p.is_dir() and folder_format(p))]:
        names = sorted((str(p.relative_to(path)) for p in found), key=natural_key)
        return f"name the one that is meant in it: {', '.join(names[-_SHOWN:])}"
    if any(p.name.startswith("mp_rank_") or p.name == "model_optim_rng.pt" for p in below):
        return (
            "Megatron's training script turns its older form, mp_rank_*, into one that is read "
            "(--ckpt-convert-format torch_dist)"
        )
    if any(p.suffix in _PICKLED for p in below):
        return (
            "what torch pickled is not read: load it, and save it as safetensors, as "
            "save_pretrained of transformers does"
        )
    return ""


def _level(path: Path, depth: int) -> Iterator[Path]:
    """Yield what lies at a depth in a folder, except hidden names; a file yields only itself."""
    if path.is_file():
        return iter((path,))
    return islice(path.glob("/".join(["[!.]*"] * (depth + 1))), _MOST)
