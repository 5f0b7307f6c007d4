"""Saving: a model that several ranks share does not write one rank's parts as the whole."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from torch import nn

from xlayout.errors import ShardingError
from xlayout.torch.parallel.roles import WithRole

__all__ = ["saves_what_is_given"]


def saves_what_is_given(model: nn.Module) -> None:
    """Let transformers' `save_pretrained` refuse to take the weights from the model itself.

    Args:
        model: one whose layers have their roles; it, and models in it, may have such a method.
    """
    for module in model.modules():
        method: Any = getattr(module, "save_pretrained", None)
        if method is None or "state_dict" not in inspect.signature(method).parameters:
            continue
        if any(isinstance(layer, WithRole) for layer in module.modules()):
            shadow: Any = partial(_save_pretrained, module)  # which is copied and pickled with it
            module.save_pretrained = shadow


def _save_pretrained(model: Any, *given: Any, **named: Any) -> Any:
    method = partial(type(model).save_pretrained, model)
    if inspect.signature(method).bind(*given, **named).arguments.get("state_dict") is None:
        raise ShardingError(
            "save_pretrained: without state_dict=, of a model on several ranks; under the names of "
            "the whole it would write the parts of one. Give what xlayout.tp.merge makes of the "
            "state dicts of all ranks"
        )
    return method(*given, **named)
