"""Heads: the head counts that attention modules keep, set to those of one rank.

Most models reshape by the head size and infer the count; others keep counts in attributes, or read
them from their config.
"""

from __future__ import annotations

import inspect
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from torch import nn

from xlayout.algebra.shapes import with_article
from xlayout.errors import ShardingError
from xlayout.torch.parallel.refusals import left_whole

__all__ = ["forbid_dropout", "refuse_other_heads", "set_local_heads", "slice_alibi"]

# With all names under which `xlayout.tp` finds the numbers in a config.
_HEADS = (
    "num_heads", "num_attention_heads", "n_head", "n_heads", "attention_heads", "num_q_heads",
    "num_attention_heads_per_partition",
)  # fmt: skip
_KV_HEADS = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads", "n_kv_heads",
    "multi_query_group_num", "num_multi_query_groups_per_partition",
)  # fmt: skip
_GROUPS = ("num_key_value_groups", "n_rep")
_SIZES = ("head_dim", "hidden_size_per_attention_head")
_WIDTHS = ("split_size", "embed_dim", "all_head_size", "hidden_size_per_partition")
_KV_WIDTHS = ("kv_dim",)
_CONFIGS = ("config", "cfg", "args", "params", "hparams")

_COUNT = r"heads|head_?(count|num)|(^|_)(n|nb|num|number)(_\w+)?_?head|^head$|^(n_?)?h$"
_NO_COUNT = "dim|size|width|per|channel|feature"


def set_local_heads(module: nn.Module, whole: tuple[int, int], own: tuple[int, int]) -> None:
    """Set an attention module's head counts to those of one rank.

    Args:
        module: the parent of the layers that make queries, keys and values.
        whole: (heads, key-value heads) of the model.
        own: the same of the rank.
    """
    _replace(module, _spelled(module, _HEADS, kv=False), whole[0], own[0])
    _replace(module, _spelled(module, _KV_HEADS, kv=True), whole[1], own[1])
    _replace(module, _GROUPS, whole[0] // whole[1], own[0] // own[1])
    size: Any = next((n for name in _SIZES if (n := getattr(module, name, None))), None)
    if isinstance(size, int):
        _replace(module, _WIDTHS, whole[0] * size, own[0] * size)
        _replace(module, _KV_WIDTHS, whole[1] * size, own[1] * size)
    for name, config in _configs(module):
        numbers = {
            **_replaced(config, _HEADS, whole[0], own[0]),
            **_replaced(config, _KV_HEADS, whole[1], own[1]),
        }
        if numbers:
            is_dict = isinstance(config, Mapping)
            counted: Any = ChainMap(numbers, config) if is_dict else OwnHeads(config, numbers)
            setattr(module, name, counted)


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
    found = _counts(module, _spelled(module, _HEADS, kv=False)) or {
        f"{own}.{attribute}": number
        for own, config in _configs(module)
        for attribute, number in _counts(config, _HEADS).items()
    }
    if found and heads not in found.values():  # one of several may count something else
        attribute, number = next(iter(found.items()))
        raise ShardingError(
            f"model: {name!r} has {attribute}={number}; the config names {heads} heads, between "
            f"which its layers would be cut. Name it in a rule of its own, {left_whole(name)}"
        )


def _counts(owner: Any, names: tuple[str, ...]) -> dict[str, int]:
    """The attributes of these names that are numbers."""
    found = {name: _value(owner, name) for name in names}
    return {name: n for name, n in found.items() if _is_number(n)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _value(owner: Any, name: str) -> Any:
    return owner.get(name) if isinstance(owner, Mapping) else getattr(owner, name, None)


def _configs(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The configs that a module keeps, by the names of their attributes."""
    for name in _CONFIGS:
        if name in vars(module):
            yield name, vars(module)[name]


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
            kind = type(module).__name__
            raise ShardingError(
                f"model: {name}={rate} in training, in {with_article(kind)} of whose heads "
                "some ranks have more: they would draw unlike random numbers ever after. Set it to "
                "0, or take a number of ranks that divides the heads"
            )


def _spelled(module: nn.Module, names: tuple[str, ...], *, kv: bool) -> tuple[str, ...]:
    """`names` and the module's other attributes that look like this head count."""
    found = [
        name
        for name, value in vars(module).items()
        if _is_number(value)
        and re.search(_COUNT, name, re.IGNORECASE)
        and not re.search(_NO_COUNT, name, re.IGNORECASE)
        and bool(re.search("kv|key|value", name, re.IGNORECASE)) == kv
    ]
    return tuple(dict.fromkeys((*names, *found)))


def _replace(owner: Any, names: tuple[str, ...], before: int, now: int) -> None:
    """Change attributes of these names from `before` to `now`."""
    for name, number in _replaced(owner, names, before, now).items():
        setattr(owner, name, number)


def _replaced(owner: Any, names: tuple[str, ...], before: int, now: int) -> dict[str, int]:
    found = {name: _value(owner, name) for name in names}
    return {name: now for name, n in found.items() if n == before}


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

    hook: Any = partial(_with_own, (heads, first, own))  # can be pickled with the module
    module.register_forward_pre_hook(hook, with_kwargs=True)


def _with_own(
    share: tuple[int, int, int], _module: nn.Module, given: Any, named: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    for name in ("alibi", "attention_mask"):
        if named.get(name) is not None:
            named = {**named, name: _sliced(named[name], *share)}
    return given, named


def _sliced(biases: Any, heads: int, first: int, own: int) -> Any:
    """The rank's heads of (batch, heads, …) or (batch x heads, 1, …); other shapes unchanged."""
    if biases.ndim == 4 and biases.shape[1] == heads:
        return biases[:, first : first + own]
    if biases.ndim == 3 and biases.shape[0] % heads == 0:
        return biases.unflatten(0, (-1, heads))[:, first : first + own].flatten(0, 1)
    return biases
