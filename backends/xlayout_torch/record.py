"""Record: a function that Dynamo puts into its graph as one call, without looking inside.

AOTAutograd does look inside, by running it: what the function does to its tensors becomes plain
ops of the compiled graph, forward and backward, whatever Python it takes to work that out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def recording() -> bool:
    """Whether Dynamo is tracing this call."""
    return torch.compiler.is_dynamo_compiling()


def compiling() -> bool:
    """Whether this runs on behalf of a compiler, traced or called by it."""
    return torch.compiler.is_compiling()


def recorded(function: Callable[..., Any], arrays: Sequence[Any], *static: Any) -> Any:
    """`function(arrays, *static)` as one call of the graph; `static` may hold any objects."""
    from xlayout_torch import opaque  # which brings Dynamo

    leaves: list[Any] = []
    form = _taken_apart(static, leaves)
    return opaque.call(opaque.number(function, form, *leaves), *arrays)


def _taken_apart(values: Sequence[Any], leaves: list[Any]) -> tuple[Any, ...]:
    """The form of nested tuples and lists; Dynamo takes objects as constants one by one only.

    `opaque` puts them together again.
    """
    form: list[Any] = []
    for value in values:
        if type(value) is tuple or type(value) is list:
            form.append((type(value) is list, _taken_apart(value, leaves)))
        else:
            form.append(None)
            number = type(value) is int or type(value) is float
            leaves.append(_fixed(value) if number else value)
    return tuple(form)


def _fixed(number: Any) -> Any:
    """A number as a constant; Dynamo makes those dynamic that change from call to call."""
    from torch.fx.experimental.symbolic_shapes import guard_scalar

    return guard_scalar(number)
