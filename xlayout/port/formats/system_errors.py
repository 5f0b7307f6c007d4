"""System errors about files: which of them mean that a file is wrong, and their paths added."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["AMISS", "named"]

AMISS = frozenset({errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENOENT, errno.ENOTDIR})
"""Codes that mean a file is missing, or that something else is in its place. Other codes say
nothing about its content, and the next attempt may well succeed."""


@contextmanager
def named(path: str | os.PathLike[str], /) -> Iterator[None]:
    """Add the file's name to system errors, which reads and writes by handle leave out.

    Raises:
        OSError: The error that was raised inside, with `filename` set.

    >>> with named("model.safetensors"):
    ...     raise OSError(5, "Input/output error")
    Traceback (most recent call last):
    OSError: [Errno 5] Input/output error: 'model.safetensors'
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise
