"""Torch: what is idiomatic to torch alone."""

from xlayout.torch.cast_before_gather import CastBeforeGather as CastBeforeGather
from xlayout.torch.regather import regather as regather

__all__ = ["CastBeforeGather", "regather"]
