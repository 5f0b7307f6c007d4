"""Exchange: the same memory in the other framework, sharded arrays and state dicts included.

Every exchange has two independent halves. The backend that owns the memory *offers* it: it refuses
arrays without plain memory and describes the others. The other backend *adopts* the offer: it
shares if its own rules allow, else asks for a copy, and checks the result.
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
