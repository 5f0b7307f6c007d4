"""Saving: `save_pretrained` must not write one rank's parts as the whole model."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from torch import nn

from xlayout.errors import ShardingError
from xlayout.torch.parallel.roles import WithRole

__all__ = ["guard_save_pretrained"]


def guard_save_pretrained(model: nn.Module) -> None:
    """Make transformers' `save_pretrained` refuse to take the weights from the model itself.

    Args:
        model: one whose layers have their roles; it and its submodules may have the method.
    """
    for module in model.modules():
        method: Any = getattr(module, "save_pretrained", None)
        if method is None or "state_dict" not in inspect.signature(method).parameters:
            continue
        if any(isinstance(layer, WithRole) for layer in module.modules()):
            shadow: Any = partial(_save_pretrained, module)  # can be copied and pickled with it
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
