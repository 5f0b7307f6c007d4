"""Which plan on which bytes: the key by which an interrupted run is known again."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from xlayout.port.formats.system_errors import named

if TYPE_CHECKING:
    from xlayout.port.formats import Source
    from xlayout.port.plan import PortPlan

__all__ = ["key_of"]

_HEAD = 1 << 20  # bytes; a header, or as much of it as tells two files apart


def key_of(plan: PortPlan, source: Source, /) -> str:
    """Return a digest of everything that the written bytes follow from.

    That is every move with its tiles, every tensor, file and config of the output, and of each file
    of the source the name, size, time of change and first mebibyte. It is not where they lie.
    """
    digest = hashlib.blake2b(digest_size=16)
    for part in (plan.format, plan.moves, plan.specs, plan.chunks, plan.files, plan.config):
        digest.update(repr(part).encode())
    home = source.path if source.path.is_dir() else source.path.parent
    for name in sorted(source.files):
        path = home / name
        with path.open("rb") as file, named(path):
            stat = path.stat()
            digest.update(repr((name, stat.st_size, stat.st_mtime_ns)).encode())
            digest.update(file.read(_HEAD))
    return digest.hexdigest()
