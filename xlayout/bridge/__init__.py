"""Exchange: the same memory in the other framework, sharded arrays and state dicts included.

Every exchange is two halves that do not know each other. The backend that has the memory *offers*
it: it refuses what is no plain memory and describes the rest. The backend that wants it *adopts*
the offer: it shares where its own rules allow, asks for a copy where they do not, and checks what
it got.
"""

from xlayout.bridge.arrays import to_jax, to_numpy, to_torch
from xlayout.bridge.shards import dtensor_to_jax, jax_to_dtensor, jax_to_shards, shards_to_jax

__all__ = [
    "dtensor_to_jax",
    "jax_to_dtensor",
    "jax_to_shards",
    "shards_to_jax",
    "to_jax",
    "to_numpy",
    "to_torch",
]
