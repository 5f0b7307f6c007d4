"""Heads: the head counts that attention modules keep, set to those of one rank.

Most models reshape by the head size and infer the count; others keep counts in attributes, or read
them from their config.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from torch import nn

from xlayout.errors import ShardingError

__all__ = [
    "counts_heads",
    "forbid_dropout",
    "refuse_modules_of_heads",
    "refuse_other_heads",
    "set_local_heads",
    "slice_alibi",
]

_HEADS = ("num_heads", "num_attention_heads", "n_head", "n_heads", "num_q_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads")
_GROUPS = ("num_key_value_groups", "n_rep")
_WIDTHS = ("split_size", "embed_dim", "all_head_size")
_KV_WIDTHS = ("kv_dim",)


def set_local_heads(module: nn.Module, whole: tuple[int, int], own: tuple[int, int]) -> None:
    """Set an attention module's head counts to those of one rank.

    Args:
        module: the parent of the layers that make queries, keys and values.
        whole: (heads, key-value heads) of the model.
        own: the same of the rank.
    """
    _replace(module, _spelled(module, _HEADS, kv=False), whole[0], own[0])
    _replace(module, _spelled(module, _KV_HEADS, kv=True), whole[1], own[1])
    _replace(module, _GROUPS, whole[0] // whole[1], own[0] // max(own[1], 1))
    size: Any = getattr(module, "head_dim", None)
    if isinstance(size, int):
        _replace(module, _WIDTHS, whole[0] * size, own[0] * size)
        _replace(module, _KV_WIDTHS, whole[1] * size, own[1] * size)
    config: Any = getattr(module, "config", None)
    if config is not None:
        numbers = {
            **_replaced(config, _HEADS, whole[0], own[0]),
            **_replaced(config, _KV_HEADS, whole[1], own[1]),
        }
        if numbers:
            counted: Any = OwnHeads(config, numbers)
            module.config = counted


def counts_heads(module: nn.Module) -> bool:
    """Whether a module, or its config, has a number of heads."""
    return any(
        isinstance(getattr(owner, name, None), int)
        for owner in (module, getattr(module, "config", None))
        for name in (*_spelled(module, _HEADS, kv=False), *_spelled(module, _KV_HEADS, kv=True))
    )


class OwnHeads:
    """A config with the head counts of one rank; all else is read from the model's config."""

    def __init__(self, config: Any, numbers: dict[str, int]) -> None:
        self.__dict__.update(numbers, xlayout_config=config)

    def __getattr__(self, name: str) -> Any:
        if "xlayout_config" not in self.__dict__:  # during a copy
            raise AttributeError(name)
        return getattr(self.__dict__["xlayout_config"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__dict__["xlayout_config"], name, value)


def refuse_other_heads(name: str, module: nn.Module, heads: int) -> None:
    """Refuse an attention module with another head count than the config.

    Raises:
        ShardingError: for such a module, whose heads would be cut in two.
    """
    for attribute in _HEADS:
        number = getattr(module, attribute, None)
        if isinstance(number, int) and number != heads:
            raise ShardingError(
                f"model: {name!r} has {attribute}={number}; the config names {heads} heads, "
                f"between which its layers would be cut. Name it in a rule of its own, "
                f"{_left(name)}"
            )


def refuse_modules_of_heads(name: str, module: nn.Module, whole: tuple[int, int]) -> None:
    """Refuse an attention module with a list of modules, one for each head.

    Raises:
        ShardingError: for such a one: every rank would use the first of them.
    """
    for inner, child in module.named_modules():
        if isinstance(child, nn.ModuleList) and len(child) > 1 and len(child) in whole:
            raise ShardingError(
                f"model: {name!r} has {len(child)} modules {inner!r}, one for each head, of which "
                f"every rank would use the first. Leave it whole by {_left(name)}"
            )


def _left(name: str) -> str:
    """The rule that leaves the layers of a module whole, and those of its likes."""
    return f"Rule('{re.sub(r'[0-9]+', '*', name)}.*', 'whole')"


def forbid_dropout(module: nn.Module) -> None:
    """Make an attention module refuse dropout in training, for ranks with unequal head counts.

    They would draw different numbers of random values, and from then on drop different elements of
    activations that must be equal on all ranks.
    """
    module.register_forward_pre_hook(_refuse_dropout)


def _refuse_dropout(module: nn.Module, _given: Any) -> None:
    if not module.training:
        return
    rates = {
        name: getattr(x, "p", x)
        for name, x in (*vars(module).items(), *module.named_children())
        if "drop" in name and not re.search("resid|hidden|out_|output", name)
    }
    for name, rate in rates.items():
        if isinstance(rate, float) and rate > 0:
            raise ShardingError(
                f"model: {name}={rate} in training, in a {type(module).__name__} of whose heads "
                "some ranks have more: they would draw unlike random numbers ever after. Set it to "
                "0, or take a number of ranks that divides the heads"
            )


def _spelled(module: nn.Module, names: tuple[str, ...], *, kv: bool) -> tuple[str, ...]:
    """`names` and the module's other attributes that look like this head count."""
    found = [
        name
        for name, value in vars(module).items()
        if isinstance(value, int)
        and re.search("head", name, re.IGNORECASE)
        and not re.search("dim|size|width|per", name, re.IGNORECASE)
        and bool(re.search("kv|key|value", name, re.IGNORECASE)) == kv
    ]
    return tuple(dict.fromkeys((*names, *found)))


def _replace(owner: Any, names: tuple[str, ...], before: int, now: int) -> None:
    """Change attributes of these names from `before` to `now`."""
    for name, number in _replaced(owner, names, before, now).items():
        setattr(owner, name, number)


def _replaced(owner: Any, names: tuple[str, ...], before: int, now: int) -> dict[str, int]:
    found = {name: getattr(owner, name, None) for name in names}
    return {name: now for name, n in found.items() if n == before and not isinstance(n, bool)}


def slice_alibi(module: nn.Module, heads: int, first: int, own: int) -> None:
    """Make an attention module that is given ALiBi biases of all heads use those of one rank.

    Args:
        module: one whose forward pass takes `alibi` by name, or gets it added to `attention_mask`;
            other modules are left alone.
        heads: of the model.
        first: the rank's first head.
        own: how many it has.
    """
    if "alibi" not in inspect.signature(module.forward).parameters:
        return

    def sliced(_module: nn.Module, given: Any, named: dict[str, Any]) -> Any:
        for name in ("alibi", "attention_mask"):
            if named.get(name) is not None:
                named = {**named, name: _sliced(named[name], heads, first, own)}
        return given, named

    module.register_forward_pre_hook(sliced, with_kwargs=True)


def _sliced(biases: Any, heads: int, first: int, own: int) -> Any:
    """The rank's heads of (batch, heads, …) or (batch x heads, 1, …); other shapes unchanged."""
    if biases.ndim == 4 and biases.shape[1] == heads:
        return biases[:, first : first + own]
    if biases.ndim == 3 and biases.shape[0] % heads == 0:
        return biases.unflatten(0, (-1, heads))[:, first : first + own].flatten(0, 1)
    return biases
