"""Jax: what is idiomatic to JAX alone."""

from xlayout.jax.gather import all_gather as all_gather
from xlayout.jax.gather import regather as regather

__all__ = ["all_gather", "regather"]
