"""Files that are copied along with the weights unchanged: the tokenizer and the like."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from xlayout.errors import FormatError
from xlayout.port.formats.file_names import refuse_outside
from xlayout.port.formats.git_lfs import refuse_pointer

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
    """Return the files beside a checkpoint's config that are copied to the output, by name.

    Raises:
        FormatError: One is a link that leaves its directory, cannot be read, or is a pointer of Git
            LFS.
    """
    if source.home is None:
        return {}
    home = source.home.absolute()  # they are copied last; the working directory may change
    found = {name: home / name for name in _NAMES if (home / name).is_file()}
    for name, path in found.items():
        refuse_outside(home, name)
        try:
            path.open("rb").close()
        except PermissionError as error:
            raise FormatError(f"{path}: {error.strerror}; wanted a readable file") from error
        refuse_pointer(path)
    return found


def find_strays(
    source: Source, known: Collection[str], /, *, own: Mapping[str, bytes]
) -> tuple[str, ...]:
    """Return what is beside a checkpoint's config but not copied; folders end with a slash.

    Args:
        source: The checkpoint.
        known: Names of the files that are copied.
        own: Files that belong to the format, by their usual content; these are strays only if
            their content differs from it.
    """
    if (home := source.home) is None:
        return ()
    known = {"config.json", *source.files, *known}
    beside = [path for path in home.glob("[!.]*") if path.name not in known]  # none if unreadable
    files = [
        path.name
        for path in beside
        if path.is_file()
        and not path.name.endswith(".safetensors.index.json")
        and not (path.name in own and _is(path, own[path.name]))
    ]
    folders = [f"{path.name}/" for path in beside if path.is_dir() and not _holds(path, source)]
    return (*sorted(files), *sorted(folders))


def _is(path: Path, content: bytes) -> bool:
    """Whether a file, which may be large, has exactly this content."""
    return path.stat().st_size == len(content) and path.read_bytes() == content


def _holds(folder: Path, source: Source) -> bool:
    """Whether a folder contains the checkpoint's own files."""
    files = (source.path, *(source.path / file for file in source.files))
    return any(file.absolute().is_relative_to(folder.absolute()) for file in files)
