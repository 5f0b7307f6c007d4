"""What a checkpoint holds, and how two differ, from their headers alone."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import Any

from xlayout.errors import PortError
from xlayout.port.checkpoint import Checkpoint, open_checkpoint
from xlayout.port.families import find_family
from xlayout.port.family import Family
from xlayout.port.fold import fold, fold_counted, general
from xlayout.port.formats import TensorSpec, open_source
from xlayout.port.formats.file_names import given_path
from xlayout.port.units import show_bytes, show_count
from xlayout.table import Table, Tabled

__all__ = ["Difference", "Inspection", "diff", "inspect"]


@dataclass(frozen=True, slots=True)
class Inspection(Tabled):
    """A checkpoint's tensors as described in its headers.

    Args:
        path: The checkpoint.
        format: Its file format.
        tensors: Every tensor.
        files: Bytes per file.
        config: The model's config.
        verdict: The family and dialect it belongs to, or why it belongs to none.
    """

    path: str
    format: str
    tensors: dict[str, TensorSpec]
    files: dict[str, int]
    config: dict[str, Any]
    verdict: str

    def _table(self) -> Table:
        groups: dict[tuple[TensorSpec, str], list[str]] = {}
        for name, spec in self.tensors.items():
            groups.setdefault((spec, general(name)[0]), []).append(name)
        rows = tuple(
            (
                name,
                spec.dtype,
                " × ".join(map(str, spec.shape)) or "scalar",
                show_bytes(count * spec.nbytes),
            )
            for (spec, _), names in groups.items()
            for name, count in fold_counted(names).items()
        )
        total = sum(spec.nbytes for spec in self.tensors.values())
        elements = sum(spec.size for spec in self.tensors.values())
        notes = (
            f"{show_count(len(self.tensors), 'tensor')}, {elements:,} elements, {show_bytes(total)}"
            f" as read; {show_count(len(self.files), 'file')}, "
            f"{show_bytes(sum(self.files.values()))} on disk",
            self.verdict,
        )
        return Table(
            f"{self.path} ({self.format})", ("tensor", "dtype", "shape", ">bytes"), rows, notes
        )


def inspect(path: str | PathLike[str], *, family: str | Family | None = None) -> Inspection:
    """Return what a checkpoint holds, from headers alone; it may belong to no family.

    Args:
        path: A checkpoint of any format that can be read.
        family: The rules to check it against; None goes by the config's `architectures`.

    Raises:
        FormatError: The file is broken or of no known format.
        PortError: There is no family of this name.
        TypeError: The path is none, or the family neither one nor a name.

    >>> from xlayout.port.demo.weights import make_tiny
    >>> held = inspect(make_tiny())  # a Llama of two layers, in a temporary folder
    >>> held.format, held.tensors["blk.0.attn_k.weight"]
    ('gguf', TensorSpec(dtype='float32', shape=(128, 96)))
    >>> held.verdict
    'family llama, gguf: every tensor accounted for'
    """
    if family is not None:
        find_family(family)  # what is asked for in vain is no verdict on the checkpoint
    try:
        with open_checkpoint(path, family=family) as checkpoint:
            verdict = (
                f"family {checkpoint.family.name}, {checkpoint.dialect}: every tensor accounted for"
            )
    except PortError as error:
        verdict = f"!no family: {error}"
    with open_source(path) as source:
        return Inspection(
            path=str(path),
            format=source.format,
            tensors=dict(source.tensors),
            files=dict(source.files),
            config=dict(source.config),
            verdict=verdict,
        )


@dataclass(frozen=True, slots=True)
class Difference(Tabled):
    """Where two checkpoints differ, whatever their formats.

    Args:
        first: The path of the first.
        second: The path of the second.
        lines: What differs (a canonical name or a key of the config), as it is in each of them.
    """

    first: str
    second: str
    lines: tuple[tuple[str, str, str], ...]

    def _table(self) -> Table:
        notes = () if self.lines else ("no difference in names, shapes, dtypes or config",)
        title = f"{self.first} ~ {self.second}"
        return Table(title, ("what", "first", "second"), self.lines, notes)


def diff(
    a: str | PathLike[str], b: str | PathLike[str], *, family: str | Family | None = None
) -> Difference:
    """Return where two checkpoints differ, from headers alone, whatever their formats.

    Names, shapes and dtypes are compared in canonical form. `verify` compares the values.

    Args:
        a: A checkpoint of any format that can be read.
        b: Another one of the same model.
        family: The rules to follow; None goes by each config's `architectures`.

    Raises:
        FormatError: One of them is broken.
        PortError: One of them does not match its rules.
        TypeError: One of them is no path.

    >>> from xlayout.port.demo.weights import make_tiny
    >>> from xlayout.port import run
    >>> gguf = make_tiny()  # a Llama of two layers, in a temporary folder
    >>> report = run(gguf, gguf.with_name("hf"), to="hf")
    >>> diff(gguf, gguf.with_name("hf")).lines
    (('config: dtype', 'absent', "'float32'"),)
    """
    a, b = given_path(a, "a"), given_path(b, "b")
    with open_checkpoint(a, family=family) as first, open_checkpoint(b, family=family) as second:
        lines = [
            (f"config: {key}", _shown(first.config, key), _shown(second.config, key))
            for key in sorted({*first.config, *second.config})
            if first.config.get(key) != second.config.get(key)
        ]
        pairs: dict[tuple[str, str], list[str]] = {}
        for name in dict.fromkeys((*first.places, *second.places)):
            one, other = _described(first, name), _described(second, name)
            if one != other:
                pairs.setdefault((one, other), []).append(name)
        lines += [(name, *pair) for pair, names in pairs.items() for name in fold(names)]
        return Difference(str(a), str(b), tuple(lines))


def _described(checkpoint: Checkpoint, name: str) -> str:
    if (place := checkpoint.places.get(name)) is None:
        return "absent"
    shape = " × ".join(map(str, place.rule.shape(checkpoint.sizes)))
    return f"{checkpoint.dtype(place)} {shape}"


def _shown(config: Any, key: str) -> str:
    return repr(config[key]) if key in config else "absent"
