"""Names as the model itself has them, without the segments that wrappers of its layers add.

A layer that is compiled, or that recomputes its activations, is wrapped in another module, and
torch's state dicts show it inside names: `model.layers.0._orig_mod.mlp.up_proj.weight`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from xlayout.errors import PortError
from xlayout.port.formats import Region, Source, TensorSpec

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["unwrapped"]

_WRAPPERS = ("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module")
_WRAPPER = re.compile(rf"(?<=\.)(?:{'|'.join(_WRAPPERS)})\.")
_OF_TORCH = ("safetensors", "dcp")


class _Unwrapped(Source):
    """The same checkpoint under other names.

    Args:
        source: The checkpoint.
        names: The names that its tensors have, by the names that they get.
    """

    def __init__(self, source: Source, names: Mapping[str, str], /) -> None:
        self._source, self._names = source, names
        self.format, self.path, self.files = source.format, source.path, source.files
        self.config, self.home, self.notes = source.config, source.home, source.notes
        self.tensors: Mapping[str, TensorSpec] = {
            name: source.tensors[there] for name, there in names.items()
        }

    def read(self, name: str, region: Region | None = None, out: Array | None = None) -> Array:
        """Read one region of one tensor; see `Source.read`."""
        return self._source.read(self._names[name], region, out)

    def close(self) -> None:
        """Close the files."""
        self._source.close()


def unwrapped(source: Source, /) -> tuple[Source, str]:
    """Return a checkpoint without wrappers inside its names, and which there were, for a plan.

    A prefix that all names share is not handled here: `spoken` finds it.

    Raises:
        PortError: Two of its tensors would then have the same name.
    """
    if source.format not in _OF_TORCH:
        return source, ""
    names: dict[str, str] = {}
    met: dict[str, None] = {}
    for there in source.tensors:
        name = _WRAPPER.sub("", there)
        if (other := names.setdefault(name, there)) != there:
            raise PortError(
                f"{source.path}: {other!r:.200} and {there!r:.200} are both {name!r:.200} where "
                "nothing is wrapped; wanted one of the two"
            )
        met |= dict.fromkeys(_WRAPPER.findall(there))
    if not met:
        return source, ""
    return _Unwrapped(source, names), f" without {', '.join(map(repr, met))}"
