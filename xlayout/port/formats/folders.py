"""Which format a folder is of, and where one without any has what could be meant by it.

Who moves checkpoints points at the folder of a training run, of a model in a cache, or at files
that torch pickled, and should learn what to name in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from xlayout.port.formats.file_names import natural_key
from xlayout.port.formats.orbax_tree import tree_folders

__all__ = ["folder_format", "instead"]

_DEPTH = 3  # of a model in a cache: snapshots, a revision, a GGUF file
_MOST = 1000  # entries of a level that are looked at
_SHOWN = 4
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")


def folder_format(folder: Path, /) -> str:
    """Return the format of the checkpoint that a folder is; nothing where it is none."""
    if any(folder.glob("*.safetensors")) or any(folder.glob("*.safetensors.index.json")):
        return "safetensors"
    if tree_folders(folder):
        return "maxtext"
    return "dcp" if (folder / ".metadata").is_file() else ""


def instead(path: Path, /) -> str:
    """Return what would work in place of a path that is no checkpoint, as the end of a message."""
    with suppress(OSError):  # what cannot be looked into is not told
        for depth in range(_DEPTH):
            if told := _told(path, list(_level(path, depth))):
                return f"; {told}"
    return ""


def _told(path: Path, below: Sequence[Path]) -> str:
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
    """Yield what lies so deep in a folder, hidden names left out; a file is all that it has."""
    if path.is_file():
        return iter((path,))
    return islice(path.glob("/".join(["[!.]*"] * (depth + 1))), _MOST)
