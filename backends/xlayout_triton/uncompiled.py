"""Uncompiled: launches that there is no kernel for, so that the framework copies instead."""

from __future__ import annotations

import os
import warnings

__all__ = ["CompileError", "reason_of", "say", "switched_off"]


def switched_off() -> str:
    """Why the kernel is not to be used, if the environment asks for that, or nothing."""
    asked = os.environ.get("XLAYOUT_TRITON") or "auto"
    if asked not in ("auto", "off"):
        warnings.warn(f"XLAYOUT_TRITON: {asked!r}; wanted 'off' or nothing", stacklevel=2)
    return "switched off by XLAYOUT_TRITON=off" if asked == "off" else ""


class CompileError(RuntimeError):
    """There is no kernel for a launch, or none that is right, so that it was not started."""


def reason_of(error: Exception) -> str:
    r"""The first line of what an error says, or else its name.

    >>> reason_of(ValueError("too wide\nsee there")), reason_of(KeyError())
    ('too wide', 'KeyError')
    """
    return (str(error) or type(error).__name__).partition("\n")[0]


def say(error: CompileError, framework: str) -> None:
    """Warn that a framework copies in place of the kernel, once for each reason."""
    text = (
        f"the Triton kernel is not used for some copies, which {framework} makes: {error}; "
        f"XLAYOUT_TRITON=off leaves all of them to {framework}"
    )
    if text not in _said:
        _said.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)


_said: set[str] = set()
