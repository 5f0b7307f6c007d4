"""Tied embeddings that are stored twice, as in torch's state dicts.

A model with tied embeddings uses one tensor for both ends, but files may still hold it under both
names. If the bytes are equal, nothing is lost by dropping one. So they are compared, which is all
that opening a checkpoint reads beyond its headers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from xlayout.port.fit import fit
from xlayout.port.formats.base import require
from xlayout.port.move import Buffers, homeward
from xlayout.port.places import Place
from xlayout.port.regions import read_tile

if TYPE_CHECKING:
    from xlayout.port.family import Dialect
    from xlayout.port.formats import Source
    from xlayout.port.rules import Sizes

__all__ = ["find_doubles"]

_ROOM = 32 << 20  # bytes, for the parts of both tensors that are compared at a time


def find_doubles(
    source: Source, dialect: Dialect, sizes: Sizes, absent: Mapping[str, str], /
) -> tuple[str, ...]:
    """Return the tensors that repeat another one, bit for bit.

    Args:
        source: The checkpoint.
        dialect: The rules its names follow.
        sizes: The model's sizes.
        absent: Canonical tensors that the model does not have, with those used in their place.
    """
    places = {rule.name: Place(rule) for rule in dialect.rules if not rule.counted}
    return tuple(
        places[name].tensor
        for name, other in absent.items()
        if _are_equal(source, places[name], places[other], sizes)
    )


def _are_equal(source: Source, a: Place, b: Place, sizes: Sizes) -> bool:
    np = require("numpy")
    for place in (a, b):
        spec = source.tensors.get(place.tensor)
        if spec is None or spec.shape != place.rule.target_shape(sizes):
            return False
    dtype = source.tensors[a.tensor].dtype
    if source.tensors[b.tensor].dtype != dtype:
        return False
    ((one, other),) = fit([[homeward(place, dtype, sizes) for place in (a, b)]], _ROOM)
    buffers = [Buffers(move.need) for move in (one, other)]
    for first, second in zip(one.tiles(), other.tiles(), strict=True):
        x = read_tile(source, one, first, buffers[0])
        y = read_tile(source, other, second, buffers[1])
        if not np.array_equal(x.reshape(-1).view(np.uint8), y.reshape(-1).view(np.uint8)):
            return False
    return True
