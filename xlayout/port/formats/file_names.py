"""Names in a checkpoint: which are safe to open as files, and how names sort."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeGuard

from xlayout.errors import FormatError

__all__ = ["is_plain_name", "natural_key", "refuse_outside"]

_DIGITS = 1000  # that are compared: Python limits the digits of an int made from text
_LONGEST = 255  # bytes of a file's name; looking for a longer one is a system error


def is_plain_name(file: object, /) -> TypeGuard[str]:
    """Whether this is a file name without a folder, and not too long to be one.

    >>> is_plain_name("a.bin"), is_plain_name("../a.bin"), is_plain_name("é" * 128)
    (True, False, False)
    """
    return (
        isinstance(file, str)
        and re.fullmatch(r"(?!\.+$)[^/\\\0:]+", file) is not None
        and len(file.encode("utf-8", "surrogatepass")) <= _LONGEST
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
