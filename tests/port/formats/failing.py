"""Failing: a function that fails as the system would, in place of one of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

__all__ = ["failing"]


def failing(number: int) -> Callable[..., NoReturn]:
    """Takes any arguments and fails with an error of this number."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    return fail
