"""Native: the switch that turns the compiled copy kernel off, or on again, inside a block."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager

from xlayout.algebra.shapes import boolean
from xlayout.registry import backend_named
from xlayout_native.switch import switched

__all__ = ["native"]


def native(on: bool, /) -> AbstractContextManager[None]:
    """Inside `with xl.native(False):` the frameworks' own ops replace the compiled copy kernel.

    It holds for this thread, and results are identical bit for bit, but for NaNs of a few dtypes
    that XLA on CPU replaces by others where it joins or pads. (`comm="native"` is unrelated:
    it leaves communication between devices to the framework.)

    Under `jax.jit` on CPU the program then has no custom calls, which only a process with this
    library can run; JAX caches it apart from the one compiled outside. `jax.export` never records
    such calls and needs no switch. A function that `torch.compile` compiles inside keeps plain ops
    outside too; one compiled outside uses torch's own ops while it is called inside.

    Args:
        on: False disables the kernel; True enables it again inside such a block.

    Raises:
        TypeError: for a value other than True or False.

    >>> import numpy as np
    >>> with native(False):
    ...     from xlayout import matrix_transpose
    ...     matrix_transpose(np.ones((300, 200))).shape
    (200, 300)
    """
    boolean(on, "on")
    if sys.modules.get("jax") is not None:
        backend_named("jax")  # so that what it compiles from now on is subject to the switch
    return switched(on)
