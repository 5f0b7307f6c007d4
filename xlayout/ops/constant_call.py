"""Constant call: a short path under compilers for calls in which all but the elements is constant.

On every call Dynamo checks guards for all the Python that it traced. On the normal path there are
about 140 of them, which take longer than copying a small array. This path has a third of that, and
does the rest inside one constant function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from xlayout.algebra import Layout
from xlayout.algebra.program import Step
from xlayout.backend import Backend, ConstantCall, TracedArray
from xlayout.dynamo import constant
from xlayout.lower.bound import bound
from xlayout.lower.fill import check_fill
from xlayout.lower.linear import as_linear
from xlayout.lower.named import function_named
from xlayout.lower.traced import plan_of
from xlayout.ops.options import RUN
from xlayout.registry import backend_named

__all__ = ["constant_call", "programs"]

_Program = tuple[tuple[Step, ...], tuple[int, ...], str | None, Any]
"""(steps, outputs, form, fill): a program; its moves as text, if the backend has a faster operation
for them; and the fill value."""


def constant_call(
    backend: Backend,
    programs_named: str,
    arrays: tuple[Any, ...],
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> Any | None:
    """The result of the op while a compiler traces it; None if it has to trace the normal path.

    An invalid call is None too: the normal path raises the error.
    """
    call = backend.as_constants(arrays, args, options)
    if call is None:
        return None
    program = _program(programs_named, call)
    if program is None:
        return None
    steps, outputs, form, fill = program
    if form is not None:
        return as_linear(form, backend, arrays)
    return bound(backend, steps, outputs, {}, fill)(*arrays)


@constant
def _program(programs_named: str, call: ConstantCall) -> _Program | None:
    try:
        made: _Program | None = function_named(programs_named)(*call)
    except (TypeError, ValueError):
        return None
    return made


def programs(
    layout_of: Callable[..., Layout],
    named: Callable[[Sequence[Any], dict[str, Any]], dict[str, Any]],
    fill: str | None,
    packed: bool,
) -> Callable[..., _Program | None]:
    """The function that makes an op's program from the constants of a call.

    Args:
        layout_of: shapes and options -> Layout.
        named: arguments and options -> all of them by name.
        fill: the option that holds the value of holes.
        packed: whether `layout_of` takes all shapes as one tuple.
    """

    def program(
        framework: str, seen: Sequence[TracedArray], args: tuple[Any, ...], given: tuple[Any, ...]
    ) -> _Program | None:
        options = named(args, dict(given))
        if any(name in RUN for name in options) or any(x[1:3] != seen[0][1:3] for x in seen):
            return None
        value = 0
        if fill is not None:
            value = options.get(fill, 0)
            check_fill(seen[0][1], value)
        shapes = tuple([shape for shape, *_ in seen])
        layout = layout_of(*((shapes,) if packed else shapes), **options)
        steps, outputs, tables, form = plan_of(layout, mutable=True, views=False)
        if tables:
            return None
        if not (isinstance(form, str) and backend_named(framework).linear_pays(form, seen)):
            form = None
        return cast("tuple[Step, ...]", steps), outputs, form, value

    return program
