"""JSON treated as hostile: unique keys, valid text, and bounds on its nesting and its bytes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from xlayout.errors import FormatError
from xlayout.port.formats.file_names import require_file
from xlayout.port.formats.git_lfs import refuse_pointer
from xlayout.port.formats.system_errors import named

__all__ = ["parse_json", "read_json"]

_MAX_BYTES = 100_000_000


def parse_json(raw: bytes, /, *, file: str) -> Any:
    """Return JSON as Python values; keys are unique and text is valid Unicode.

    Raises:
        FormatError: It is not such JSON.

    >>> parse_json(b'{"x": 1, "x": 2}', file="a.json")
    Traceback (most recent call last):
    xlayout.errors.FormatError: a.json: key 'x' stands twice; keys must be unique
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) != len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise FormatError(f"{file}: key {twice!r} stands twice; keys must be unique")
        return table

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # refuses a lone surrogate
    except FormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{file}: not valid JSON ({error})") from error
    return value


def read_json(path: Path, /) -> Any:
    """Return the JSON of a whole file.

    Raises:
        FormatError: It is not a file, absurdly large, a pointer of Git LFS, or not JSON that can be
            trusted.
    """
    require_file(path)
    if (size := path.stat().st_size) > _MAX_BYTES:
        raise FormatError(f"{path}: {size:,} bytes; {_MAX_BYTES:,} at most")
    refuse_pointer(path)
    with named(path):
        return parse_json(path.read_bytes(), file=str(path))
