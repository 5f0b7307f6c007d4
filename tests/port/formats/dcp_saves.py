"""Directories that torch saved, and the same ones with one thing in their metadata changed."""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from tests.port.formats.arrays import Array

__all__ = ["Evil", "change", "load", "save_dcp", "to_torch"]


class Evil:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch owned",)


def to_torch(array: Array) -> torch.Tensor:
    """The same bits in a separate tensor."""
    raw = torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy())
    dtype = getattr(torch, str(array.dtype))
    return (
        raw.view(dtype).reshape(array.shape)
        if array.size
        else torch.empty(array.shape, dtype=dtype)
    )


def save_dcp(path: Path, state: dict[str, Any], **options: Any) -> Path:
    """Save the state of a single process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about a single process
        dcp.save(state, storage_writer=FileSystemWriter(path, **options))
    return path


def load(path: Path, arrays: dict[str, Array]) -> dict[str, torch.Tensor]:
    """Load tensors with the shapes and dtypes of these arrays."""
    state = {
        name: torch.empty(array.shape, dtype=getattr(torch, str(array.dtype)))
        for name, array in arrays.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=path)
    return state


def change(path: Path, how: Callable[[Any], object]) -> Path:
    """Let a function change a directory's metadata, in torch's form."""
    file = path / ".metadata"
    metadata = pickle.loads(file.read_bytes())
    how(metadata)
    file.write_bytes(pickle.dumps(metadata))
    return path
