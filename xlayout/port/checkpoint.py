"""A checkpoint opened as a member of a family: it opens only if every tensor has a place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any

from xlayout.errors import PortError, about
from xlayout.port.account import account
from xlayout.port.configs import plain_config, section
from xlayout.port.families import family_of, find_family
from xlayout.port.family import Dialect, Family
from xlayout.port.fold import fold
from xlayout.port.foreign import foreign
from xlayout.port.formats import Source, open_source
from xlayout.port.formats.maxtext import MaxTextSource
from xlayout.port.formats.system_errors import limited
from xlayout.port.gguf_metadata import refuse_part, refuse_stranger, with_metadata
from xlayout.port.move import Move, homeward
from xlayout.port.places import Place
from xlayout.port.rope_factors import with_rope_scaling
from xlayout.port.spoken import spoken
from xlayout.port.twice import find_doubles
from xlayout.port.unwrapped import unwrapped

__all__ = ["Checkpoint", "open_checkpoint"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An open checkpoint whose names are all accounted for.

    Args:
        source: Reads its tensors.
        family: The family whose rules they follow.
        dialect: The name of the rules: their key in `family.dialects`, a prefix, wrappers.
        rules: The rules that its names follow.
        config: The model's config in Hugging Face's keys, nothing else.
        origin: The dtype a tensor had before it was stored wider, if known.
        sizes: The model's sizes.
        places: Where each canonical tensor lives.
        ignored: Names that add no information: tables that code recomputes, or a tied head.
        unkept: What is not a weight of the model, and is not ported.
        chunks: The shape of a tensor's chunks, if each has to be read whole.
    """

    source: Source
    family: Family
    dialect: str
    rules: Dialect
    config: Mapping[str, Any]
    origin: Mapping[str, str]
    sizes: Mapping[str, int]
    places: Mapping[str, Place]
    ignored: tuple[str, ...]
    unkept: tuple[str, ...]
    chunks: Mapping[str, tuple[int, ...]]

    def dtype(self, place: Place, /) -> str:
        """Return the dtype in which a canonical tensor is stored."""
        return self.source.tensors[place.tensor].dtype

    def chunk(self, place: Place, /) -> tuple[int, ...]:
        """Return the shape of the chunks in which a canonical tensor is stored; `()` for none."""
        return self.chunks.get(place.tensor, ())

    def homeward(self, name: str, /) -> Move:
        """Return the move that takes a stored tensor to its canonical layout, values untouched."""
        place = self.places[name]
        return homeward(place, self.dtype(place), self.sizes, self.chunk(place))

    def scale(self, place: Place, /) -> float:
        """Return what the canonical values of this model are multiplied by in a place."""
        return place.rule.scale.of(self.sizes) if place.rule.scale else 1.0


@contextmanager
def open_checkpoint(
    path: str | PathLike[str],
    /,
    *,
    family: str | Family | None = None,
    config: Mapping[str, Any] | None = None,
) -> Iterator[Checkpoint]:
    """Open a checkpoint and account for every name in it.

    Args:
        path: The checkpoint.
        family: The rules to follow; None goes by the config's `architectures`.
        config: The model's config, if a port has just written the weights and not yet the config.
            Their chunks then need no extra room: they fit in the port's memory.

    Raises:
        FormatError: The file is broken or of no known format.
        PortError: Its family is unknown, its config lacks a size, or its tensors do not match the
            rules.
        OSError: The system failed. If it is because too many files are open, even in the context,
            the error says how many may be.
    """
    named = None if family is None else find_family(family)
    with limited(), open_source(path) as opened:
        source, wrappers = unwrapped(opened)
        refuse_part(source)
        if named is None:
            refuse_stranger(source)
        said = source.config if config is None else config
        if not said:
            raise PortError(
                f"{path}: no config; wanted a config.json with the model's Hugging Face keys "
                "beside the weights" + "".join(f"; it holds {k}" for k in foreign(source.tensors))
            )
        with about(str(path), PortError):
            found = named or family_of(said)
        dialect, rules = spoken(found, source, said)
        whole = with_rope_scaling(source, with_metadata(source, said))
        with about(str(path), PortError):
            plain = plain_config(whole)
            sizes = found.model_sizes(plain)
            absent = found.absent(plain)
        doubles = find_doubles(source, rules, sizes, absent)
        places, ignored, others = account(
            source.tensors,
            rules,
            found,
            sizes,
            absent=absent,
            doubles=doubles,
            where=str(path),
        )
        yield Checkpoint(
            source=source,
            family=found,
            dialect=dialect + wrappers,
            rules=rules,
            config=plain,
            origin=_origin(said),
            sizes=sizes,
            places={place.name: place for place in places},
            ignored=ignored,
            unkept=(*source.notes, *fold(others)),
            chunks=source.chunks if isinstance(source, MaxTextSource) and config is None else {},
        )


def _origin(config: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the dtypes that tensors had before they were stored wider."""
    origin = section(section(config, "xlayout"), "origin")
    for name, dtype in origin.items():
        if not isinstance(dtype, str):
            raise PortError(
                f"config: xlayout.origin of {name!r:.200} is {dtype!r:.80}; wanted a dtype's name"
            )
    return origin
