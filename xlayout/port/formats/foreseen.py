"""Why nothing could be written at a place, foreseen by looking: nothing is made or locked there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from xlayout.errors import PortError
from xlayout.port.formats.publish import nearest_folder, refuse_taken
from xlayout.port.formats.stages import stages_beside

__all__ = ["why_refused"]


def why_refused(path: Path, needed: int, /, *, single: bool) -> str:
    """Return why a run that writes to a place would be refused; empty if nothing speaks against it.

    Args:
        path: The place.
        needed: Bytes that will be written, at least.
        single: Whether a file will appear, rather than a folder.
    """
    place = Path(os.path.realpath(path))
    try:
        refuse_taken(place, single=single)
        there = nearest_folder(place)
    except PortError as error:
        return str(error)
    except PermissionError as error:
        return f"{place}: {error.filename} cannot be looked at; wanted a place that can be"
    if not there.is_dir():
        return f"{place}: {there}: not a folder; wanted a place in one that can be written to"
    if not os.access(there, os.W_OK | os.X_OK, effective_ids=True):
        return f"{place}: {there} cannot be written to; wanted a place in a folder that can be"
    free = shutil.disk_usage(there).free
    # What an interrupted run left may be gone on with, or else makes room.
    if needed > free and not any(stages_beside(place)):
        return f"{place}: the disk is full: the tensors take {needed:,} bytes, {free:,} are free"
    return ""
