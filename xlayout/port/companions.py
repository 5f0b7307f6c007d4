"""What goes along with the weights as it is: the tokenizer and its kin."""

from __future__ import annotations

from pathlib import Path

from xlayout.errors import FormatError
from xlayout.port.formats.safetensors_index import refuse_outside

__all__ = ["find_companions"]

_NAMES = (
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
    "merges.txt",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
)


def find_companions(src: Path, dst: Path, /) -> dict[str, Path]:
    """Return the files that go from one directory to another, by name.

    Raises:
        FormatError: One is a link out of its directory, or cannot be read.
    """
    if not src.is_dir() or dst.suffix == ".safetensors":
        return {}
    found = {name: src / name for name in _NAMES if (src / name).is_file()}
    for name, path in found.items():
        refuse_outside(src, name)
        try:
            path.open("rb").close()
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror}; wanted a readable file") from error
    return found
