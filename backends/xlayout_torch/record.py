"""Record: a function that Dynamo puts into its graph as one call, without looking inside.

AOTAutograd does look inside, by running it: what the function does to its tensors becomes plain
ops of the compiled graph, forward and backward, whatever Python it takes to work that out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_CALLS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def recording() -> bool:
    """Whether Dynamo is reading this very line."""
    return torch.compiler.is_dynamo_compiling()


def recorded(function: Callable[..., Any], arrays: Sequence[Any], *static: Any) -> Any:
    """`function(arrays, *static)` as one call of the graph; of what is static, any object goes."""
    return _call(_number(function, *static), *arrays)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _number(function: Callable[..., Any], *static: Any) -> int:
    """A graph holds tensors and numbers; so the call is known by a number."""
    _CALLS.append((function, static))
    return len(_CALLS) - 1


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def _call(number: int, *arrays: Any) -> Any:
    function, static = _CALLS[number]
    return function(arrays, *static)
