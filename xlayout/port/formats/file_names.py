"""Paths that callers give, and names in a checkpoint: which are safe to open, and how they sort."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, TypeGuard

from xlayout.errors import FormatError, PortError

__all__ = ["given_path", "is_plain_name", "natural_key", "refuse_outside", "require_file"]

_DIGITS = 1000  # that are compared: Python limits the digits of an int made from text
_LONGEST = 255  # bytes of a file's name; looking for a longer one is a system error


def given_path(
    path: Any, name: str = "path", /, *, wanted: str = "a checkpoint file or directory"
) -> Path:
    """Return the path that a caller gave as the argument of this name.

    Raises:
        PortError: It is empty, which a `Path` would take for the current directory, or no file can
            have it.
        TypeError: It is neither text nor a path of text.
    """
    text = path.__fspath__() if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        error = PortError if isinstance(text, str) else TypeError
        raise error(f"{name}: {path!r:.200}; wanted {wanted}")
    return Path(path)


def is_plain_name(file: object, /) -> TypeGuard[str]:
    """Whether this is a file name without a folder, and not too long to be one.

    >>> is_plain_name("a.bin"), is_plain_name("../a.bin"), is_plain_name("é" * 128)
    (True, False, False)
    """
    # Surrogates that are let through stand for bytes of a name that is no text (os.fsdecode).
    return (
        isinstance(file, str)
        and re.fullmatch(r"(?!\.+$)[^/\\\0:\ud800-\udc7f\udd00-\udfff]+", file) is not None
        and len(file.encode("utf-8", "surrogateescape")) <= _LONGEST
    )


def refuse_outside(folder: Path, file: str, /) -> None:
    """Refuse a link that leaves the directory, except into the blobs of a Hugging Face cache.

    Raises:
        FormatError: The file lies elsewhere.
    """
    home, target = (Path(os.path.realpath(path)) for path in (folder, folder / file))
    homes = [home]
    if home.parent.name == "snapshots":
        homes.append(home.parent.parent / "blobs")
    if not any(target.is_relative_to(allowed) for allowed in homes):
        raise FormatError(f"{folder / file}: a link to {target}; wanted a file in {home}")


def natural_key(name: str, /) -> tuple[tuple[int, str], ...]:
    """Return a sort key in which digits count as numbers: layer 2 comes before layer 10.

    >>> sorted(["layers.10", "layers.2"], key=natural_key)
    ['layers.2', 'layers.10']
    """
    parts = re.split(r"([0-9]+)", name)
    return tuple((int(part[:_DIGITS]) if part.isdecimal() else -1, part) for part in parts)


def require_file(path: Path, /, wanted: str = "a regular file") -> None:
    """Refuse what is not a file; opening a pipe would wait for a writer.

    Raises:
        FormatError: nothing is there, or a folder, a device or a pipe.
    """
    if not path.is_file():
        found = "not a file" if path.exists() else "no such file"
        raise FormatError(f"{path}: {found}; wanted {wanted}")
