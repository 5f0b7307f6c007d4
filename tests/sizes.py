"""Sizes: how large the tensors are that torch makes in a block."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Sizes"]


class Sizes(TorchDispatchMode):
    """Records the size of every fresh result."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor) and made._base is None:
            self.made.append(made.numel())
        return made
