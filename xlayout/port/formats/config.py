"""The model's config beside its weights: a JSON object in Hugging Face's keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlayout.errors import FormatError
from xlayout.port.formats.strict_json import read_json

__all__ = ["CONFIG", "read_config", "render_config"]

CONFIG = "config.json"
"""Its name, in every format that has a place for it."""


def read_config(folder: Path, /) -> dict[str, Any]:
    """Return the config in a folder; empty if there is none.

    Raises:
        FormatError: The file is not a JSON object.
    """
    path = folder / CONFIG
    if not path.is_file():
        return {}
    config = read_json(path)
    if not isinstance(config, dict):
        raise FormatError(f"{path}: {config!r:.80}; wanted an object")
    return config


def render_config(config: Mapping[str, Any], /) -> bytes:
    """Return a config as a file's content, in the order of its keys.

    Raises:
        FormatError: A value cannot be expressed in JSON.

    >>> print(render_config({"hidden_size": 16}).decode(), end="")
    {
      "hidden_size": 16
    }
    """
    try:
        text = json.dumps(dict(config), indent=2, ensure_ascii=False, allow_nan=False)
        return (text + "\n").encode()
    except (TypeError, ValueError) as error:
        raise FormatError(f"config: {error}; wanted values that JSON can hold") from error
