"""Sizes: what a layer says of its matrix, changed to what is true of a rank's part."""

from __future__ import annotations

from torch import nn

__all__ = ["IN", "OUT", "resize", "shift_padding"]

OUT = ("out_features", "nf", "num_embeddings")
IN = ("in_features", "nx")


def resize(module: nn.Module, names: tuple[str, ...], size: int, part: int) -> None:
    """Change a layer's number of features, wherever it has that under one of these names."""
    for name in names:
        if getattr(module, name, None) == size:
            setattr(module, name, part)


def shift_padding(module: nn.Embedding, rows: range) -> None:
    """Count the padding row of an embedding among the rows of a rank."""
    if module.padding_idx is not None:
        inside = module.padding_idx in rows
        module.padding_idx = module.padding_idx - rows.start if inside else None
