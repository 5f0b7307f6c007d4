"""Whether a source stayed as it was while it was read, by its files' sizes and times of change.

A download that is still going on may have a whole header, and zeros for what has yet to arrive: a
comparison after the run would then find the same zeros on both sides.

A file that is removed or replaced is read to its end if it was opened with its checkpoint. DCP and
Orbax open theirs when they are needed, so after a replacement they would mix two checkpoints. Of
many safetensors some are closed and opened again, but only if they have not changed (`OpenFiles`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from xlayout.errors import PortError

if TYPE_CHECKING:
    from os import stat_result

    from xlayout.port.formats import Source

__all__ = ["paths_of", "refuse_changed", "stamps_of"]

_OPENED_AT_ONCE = ("safetensors", "gguf")


def paths_of(source: Source, /) -> Iterator[tuple[str, Path]]:
    """Yield the files of a source by name, each with its path, in a fixed order."""
    home = source.path if source.path.is_dir() else source.path.parent
    for name in sorted(source.files):
        yield name, home.absolute() / name


def stamps_of(source: Source, /) -> dict[Path, stat_result]:
    """Return what the system says about each file of a source."""
    return {path: path.stat() for _, path in paths_of(source)}


def refuse_changed(source: Source, stamps: Mapping[Path, stat_result], /) -> None:
    """Refuse files that were written to since they were stamped, or replaced before they were read.

    A file that was removed passes, and so does one that another has replaced if it was open by
    then: it was read as it was opened.

    Raises:
        PortError: A file has another size or time of change, or another one may have been read.
    """
    for path, then in stamps.items():
        try:
            now = path.stat()
        except OSError:
            continue
        if (now.st_size, now.st_mtime_ns) == (then.st_size, then.st_mtime_ns):
            continue  # even if the file has another number, which some network shares keep changing
        if (now.st_dev, now.st_ino) == (then.st_dev, then.st_ino):
            raise PortError(
                f"{path}: written to while it was read ({then.st_size:,} bytes before, "
                f"{now.st_size:,} after); wanted a checkpoint that is complete"
            )
        if source.format not in _OPENED_AT_ONCE:
            raise PortError(
                f"{path}: replaced while its checkpoint was read; wanted one that stays as it is, "
                "because its files are opened when they are needed"
            )
