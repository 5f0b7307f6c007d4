"""Errors that tensorstore reports as text, turned back into typed ones."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from contextlib import contextmanager

from xlayout.errors import FormatError
from xlayout.port.formats.system_errors import AMISS, named

__all__ = ["broken_arrays", "system_errors"]


@contextmanager
def broken_arrays(where: str, /) -> Iterator[None]:
    """Refuse an array that cannot be read because of what is stored.

    Raises:
        FormatError: The array is broken, or part of it is missing.
        OSError: The system failed, which says nothing about the array.
    """
    try:
        with named(where), system_errors(unless=AMISS):
            yield
    except ValueError as error:
        raise FormatError(f"{where}: {_words(error)}") from error


@contextmanager
def system_errors(*, unless: Container[int] = ()) -> Iterator[None]:
    """Raise the system's error, such as a full disk, that tensorstore reported as text.

    Args:
        unless: Codes that are left as text.

    Raises:
        OSError: The system's error; tensorstore's own are left as they are.
    """
    try:
        yield
    except ValueError as error:
        code = re.search(r"os_error_code='(\d+)'", str(error))
        if code and int(code[1]) not in unless:
            raise OSError(int(code[1]), _words(error)) from error
        raise


def _words(error: ValueError) -> str:
    """Return tensorstore's message, without the spec of the array that it appends."""
    return str(error).split(" [tensorstore_spec=")[0]
