"""The key by which an interrupted run is recognised: its plan, and the bytes of its source."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from xlayout.port.formats.system_errors import named
from xlayout.port.stamps import paths_of

if TYPE_CHECKING:
    from xlayout.port.formats import Source
    from xlayout.port.value import PortPlan

__all__ = ["key_of"]

_HEAD = 1 << 20  # bytes; a header, or enough of it to tell two files apart


def key_of(plan: PortPlan, source: Source, /) -> str:
    """Return a digest of everything that determines the written bytes.

    That is every move with its tiles, every tensor, file and config of the output, and for each
    file of the source its name, size, time of change and first mebibyte, but not its location.
    """
    digest = hashlib.blake2b(digest_size=16)
    stored = plan.format, plan.specs, plan.chunks, plan.files, plan.mesh
    for part in (*stored, plan.moves, plan.config):
        digest.update(repr(part).encode())
    for name, path in paths_of(source):
        with path.open("rb") as file, named(path):
            stat = path.stat()
            digest.update(repr((name, stat.st_size, stat.st_mtime_ns)).encode())
            digest.update(file.read(_HEAD))
    return digest.hexdigest()
