"""What the system says went wrong with a file: told with its path, and told apart."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["AMISS", "named"]

AMISS = frozenset({errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENOENT, errno.ENOTDIR})
"""Said where a file is missing or something else stands there; the others say nothing of what
is in it, and the next attempt may well go through."""


@contextmanager
def named(path: str | os.PathLike[str], /) -> Iterator[None]:
    """Let an error of the system name the file, which reads and writes by handle leave out.

    Raises:
        OSError: The one that was raised inside, with `filename` set.

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
