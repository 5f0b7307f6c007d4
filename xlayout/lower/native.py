"""Native: with the compiled copy kernel or without it, for as long as a block lasts."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager

from xlayout.registry import backend_named
from xlayout_native.switch import switched

__all__ = ["native"]


def native(on: bool, /) -> AbstractContextManager[None]:
    """`with xl.native(False):` copies by the frameworks' own ops, in this thread.

    (`comm="native"` is another thing: there the framework moves what goes between devices.)

    The results are the same bits. Under `jax.jit` on CPU it keeps the program free of calls that
    only a process with this library can run; what `jit` compiled inside is remembered apart from
    what it compiled outside. `jax.export` needs no switch: it never records such a call. What
    `torch.compile` meets inside for the first time has plain ops from then on, inside and outside;
    a program that it made outside copies by torch's own ops inside.

    Raises:
        TypeError: for anything but True and False.

    >>> import numpy as np
    >>> with native(False):
    ...     from xlayout import matrix_transpose
    ...     matrix_transpose(np.ones((300, 200))).shape
    (200, 300)
    """
    if not isinstance(on, bool):
        raise TypeError(f"on: {on!r} is a {type(on).__name__}; wanted True or False")
    if "jax" in sys.modules:
        backend_named("jax")  # what it compiles from now on is compiled under the switch
    return switched(on)
