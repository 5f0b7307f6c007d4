"""Numbers: how many heads a model has, whatever its config calls them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xlayout.algebra.shapes import integer
from xlayout.errors import ShardingError, SizeError

__all__ = ["Numbers", "config_value", "numbers_of", "text_of"]

_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
_KV_HEADS = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "n_kv_heads",
    "multi_query_group_num",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Numbers:
    """The head counts of a model; None if unknown.

    Args:
        heads: query heads.
        kv_heads: key-value heads, each for the same number of query heads; defaults to `heads`.

    Raises:
        SizeError: if `kv_heads` does not divide `heads`.
    """

    heads: int | None = None
    kv_heads: int | None = None

    def __post_init__(self) -> None:
        for name in ("heads", "kv_heads"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, integer(getattr(self, name), name, 1))
        if self.kv_heads is None:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.heads and self.kv_heads and self.heads % self.kv_heads:
            raise SizeError(
                f"kv_heads: {self.kv_heads} does not divide {self.heads} heads into equal groups"
            )


def config_value(config: Any, name: str) -> Any:
    """A config's value, by attribute or key; None if it has none.

    Raises:
        ShardingError: for a config that has no single value for all layers, and raises.
    """
    if isinstance(config, Mapping):
        return config.get(name)
    try:
        return getattr(config, name, None)
    except Exception as error:
        raise ShardingError(
            f"config: has no one {name} for all layers, and all are cut alike; give "
            f"config={{{name!r}: …}} if one is right for those that rules name"
        ) from error


def text_of(config: Any) -> Any:
    """The config of the text model inside another, or the config itself."""
    return config_value(config, "text_config") or config


def numbers_of(config: Any) -> Numbers:
    """The head counts in a config, or in that of the text model inside it."""
    config = text_of(config)
    heads, kv = _first_number(config, _HEADS), _first_number(config, _KV_HEADS)
    if config_value(config, "multi_query") and not config_value(config, "new_decoder_architecture"):
        kv = 1
    if config_value(config, "multi_query_attention") is False:
        kv = heads  # ChatGLM, which sets `multi_query_group_num` all the same
    return Numbers(heads, kv)


def _first_number(config: Any, names: Sequence[str]) -> int | None:
    values = ((name, config_value(config, name)) for name in names)
    found = (integer(n, f"config: {name}", 1) for name, n in values if n is not None)
    return next(found, None)
