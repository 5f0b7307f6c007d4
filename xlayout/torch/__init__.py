"""Torch only: modules, gradient clipping, gathering again, and a pass for compiled graphs."""

from xlayout.torch.cast_before_gather import CastBeforeGather as CastBeforeGather
from xlayout.torch.parallel.clip import clip_grad_norm_ as clip_grad_norm_
from xlayout.torch.regather import regather as regather
from xlayout.torch.tiled import TiledLinear as TiledLinear
from xlayout.torch.tiled import TiledLinearReturnBias as TiledLinearReturnBias

__all__ = [
    "CastBeforeGather",
    "TiledLinear",
    "TiledLinearReturnBias",
    "clip_grad_norm_",
    "regather",
]
