"""Where memory is: what the exchange tests ask about arrays of every framework."""

from __future__ import annotations

from typing import Any

import numpy as np


def pointer(x: Any) -> int:
    """Address of the first element of a torch.Tensor, jax.Array or numpy.ndarray."""
    if isinstance(x, np.ndarray):
        return int(x.__array_interface__["data"][0])
    return int(x.data_ptr() if hasattr(x, "data_ptr") else x.unsafe_buffer_pointer())


def bits(x: Any) -> bytes:
    """The bytes of the elements, in row-major order."""
    if hasattr(x, "data_ptr"):
        import torch

        return x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return np.asarray(x).tobytes()


def every_bit(dtype: str, size: int = 256) -> Any:
    """A tensor with all byte values, and so with NaN payloads and subnormals."""
    import torch

    if dtype == "bool":
        return torch.arange(size) % 3 == 0
    itemsize = getattr(torch, dtype).itemsize
    raw = torch.arange(size * itemsize, dtype=torch.int64).mul(37).to(torch.uint8)
    return raw.view(getattr(torch, dtype))


def at_offset(values: Any, offset: int) -> np.ndarray:
    """A copy of `values` that begins `offset` bytes after a 64-byte boundary."""
    values = np.asarray(values)
    raw = np.empty(values.nbytes + 128, np.uint8)
    start = -pointer(raw) % 64 + offset
    out = raw[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    out[...] = values
    return out
