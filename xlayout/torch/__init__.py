"""Torch: what is idiomatic to torch alone."""

from xlayout.torch.cast_before_gather import CastBeforeGather as CastBeforeGather

__all__ = ["CastBeforeGather"]
