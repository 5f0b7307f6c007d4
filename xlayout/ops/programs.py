"""Programs: what an op runs when a compiler knows all of a call but the elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from xlayout.algebra import Layout
from xlayout.backend import ConstantCall, TracedArray
from xlayout.dynamo import constant
from xlayout.lower.constant_call import ConstantProgram, constant_program
from xlayout.lower.fill import check_fill
from xlayout.lower.named import function_named
from xlayout.ops.options import RUN

__all__ = ["program_named", "programs"]


@constant
def program_named(name: str, call: ConstantCall) -> ConstantProgram | None:
    """The program of a call, by the name of a function that `programs` made."""
    try:
        made: ConstantProgram | None = function_named(name)(*call)
    except (TypeError, ValueError):
        return None
    return made


def programs(
    layout_of: Callable[..., Layout],
    named: Callable[[Sequence[Any], dict[str, Any]], dict[str, Any]],
    fill: str | None,
    packed: bool,
) -> Callable[..., ConstantProgram | None]:
    """The function that makes an op's program from the constants of a call.

    Args:
        layout_of: shapes and options -> Layout.
        named: arguments and options -> all of them by name.
        fill: the option that holds the value of holes.
        packed: whether `layout_of` takes all shapes as one tuple.
    """

    def program(
        framework: str, seen: Sequence[TracedArray], args: tuple[Any, ...], given: tuple[Any, ...]
    ) -> ConstantProgram | None:
        options = named(args, dict(given))
        if any(name in RUN for name in options):
            return None
        value = 0
        if fill is not None:
            value = options.get(fill, 0)
            check_fill(seen[0][1], value)
        shapes = tuple([shape for shape, *_ in seen])
        layout = layout_of(*((shapes,) if packed else shapes), **options)
        return constant_program(layout, framework, seen, value)

    return program
