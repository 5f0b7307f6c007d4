"""Numbers: how many heads a model has, however its config spells that."""

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
    """The heads of a model; None where nobody said anything.

    Args:
        heads: of queries.
        kv_heads: of keys and values, each for the same number of query heads; as many as of
            queries where nobody said.

    Raises:
        SizeError: if the groups are not equal.
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
    """The value that a config has under a name, as an attribute or a key; None if it has none.

    Raises:
        ShardingError: for a config that refuses to say it once for all layers.
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
    """The heads that a config names; that of a text model inside another is asked first."""
    config = text_of(config)
    heads, kv = _first_value(config, _HEADS), _first_value(config, _KV_HEADS)
    if config_value(config, "multi_query") and not config_value(config, "new_decoder_architecture"):
        kv = 1
    if config_value(config, "multi_query_attention") is False:
        kv = heads  # ChatGLM, which names a number all the same
    return Numbers(heads, kv)


def _first_value(config: Any, names: Sequence[str]) -> Any:
    values = (config_value(config, name) for name in names)
    return next((value for value in values if value is not None), None)
