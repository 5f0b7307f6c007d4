"""System errors about files: which of them mean that a file is wrong, and their paths added."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["AMISS", "TOO_MANY", "closed", "limited", "named"]

AMISS = frozenset({errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENOENT, errno.ENOTDIR})
"""Codes that mean a file is missing, or that something else is in its place. Other codes say
nothing about its content, and the next attempt may well succeed."""

TOO_MANY = (errno.EMFILE, errno.ENFILE)
"""Codes that mean no file can be opened, whichever it is: the process or the system has too many
open."""


def closed(path: str | os.PathLike[str], /) -> OSError:
    """Return the error for a read from a checkpoint after it was closed.

    >>> closed("model.gguf")
    OSError(9, 'the checkpoint is closed; wanted one that is open')
    """
    told = "the checkpoint is closed; wanted one that is open"
    return OSError(errno.EBADF, told, os.fspath(path))


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


@contextmanager
def limited() -> Iterator[None]:
    """Say in an error about too many open files how many a process may have, and what would help.

    Raises:
        OSError: The error that was raised inside, with another text.

    >>> with limited():
    ...     raise OSError(5, "Input/output error", "model.safetensors")
    Traceback (most recent call last):
    OSError: [Errno 5] Input/output error: 'model.safetensors'
    """
    try:
        yield
    except OSError as error:
        if error.errno == errno.EMFILE:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            helps = f"ulimit -n {hard}" if soft < hard else "ulimit -n, as an administrator"
            error.strerror = (
                f"{os.strerror(errno.EMFILE)}: this process may have {soft:,}; wanted a higher "
                f"limit ({helps})"
            )
        raise
