"""What a strict type checker sees where torch and JAX are installed: each keeps its own type."""

from __future__ import annotations

from typing import assert_type

import jax
import torch

import xlayout as xl
import xlayout_jax
import xlayout_numpy
import xlayout_torch
from xlayout.backend import Backend

assert_type(xl.interleave(torch.zeros(4)), torch.Tensor)
assert_type(xl.interleave(jax.numpy.zeros(4)), jax.Array)
assert_type(xl.tiled_linear(torch.zeros(4), [[torch.zeros(3, 4)]], torch.zeros(3)), torch.Tensor)
assert_type(xl.tiled_linear([jax.numpy.zeros(4)], [[jax.numpy.zeros((3, 4))]]), jax.Array)

# The modules themselves are the backends.
backends: tuple[Backend, ...] = (xlayout_jax, xlayout_numpy, xlayout_torch)
