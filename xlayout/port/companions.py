"""What goes along with the weights as it is: the tokenizer and its kin."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from xlayout.errors import FormatError
from xlayout.port.formats.safetensors_index import refuse_outside

if TYPE_CHECKING:
    from xlayout.port.formats import Source

__all__ = ["find_companions", "find_strays"]

_NAMES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tekken.json",
    "tiktoken.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.model.v1",
    "tokenizer.model.v2",
    "tokenizer.model.v3",
    "tokenizer.model.v7",
    "tokenizer.tiktoken",
    "tokenizer_config.json",
    "vocab.bpe",
    "vocab.json",
    "vocab.txt",
)


def find_companions(source: Source, /) -> dict[str, Path]:
    """Return the files beside a checkpoint's config that go along to a directory, by name.

    Raises:
        FormatError: One is a link out of its directory, or cannot be read.
    """
    if source.home is None:
        return {}
    home = source.home.absolute()  # they are copied last, wherever the process is by then
    found = {name: home / name for name in _NAMES if (home / name).is_file()}
    for name, path in found.items():
        refuse_outside(home, name)
        try:
            path.open("rb").close()
        except OSError as error:
            raise FormatError(f"{path}: {error.strerror}; wanted a readable file") from error
    return found


def find_strays(source: Source, known: Collection[str], /) -> tuple[str, ...]:
    """Return the files beside a checkpoint's config that stay where they are.

    Args:
        source: The checkpoint.
        known: Names of what goes along, or is the format's own.
    """
    if (home := source.home) is None:
        return ()
    own = {"config.json", *source.files, *known}
    return tuple(
        sorted(
            path.name
            for path in home.glob("[!.]*")  # of a folder that cannot be listed: none
            if path.is_file()
            and path.name not in own
            and not path.name.endswith(".safetensors.index.json")
        )
    )
