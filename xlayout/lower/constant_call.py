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
from xlayout.lower.bound import bound
from xlayout.lower.fill import check_fill, is_zero
from xlayout.lower.linear import as_linear
from xlayout.lower.traced import plan_of
from xlayout.registry import backend_named

__all__ = ["ConstantProgram", "constant_call", "constant_program", "program_of_call"]

ConstantProgram = tuple[tuple[Step, ...], tuple[int, ...], str | None, Any]
"""(steps, outputs, form, fill): a program; its moves as text, if the backend has a faster operation
for them; and the fill value."""


def constant_call(
    backend: Backend,
    program_for: Callable[[ConstantCall], ConstantProgram | None],
    arrays: tuple[Any, ...],
    args: tuple[Any, ...],
    options: dict[str, Any],
) -> Any | None:
    """The result of a call while a compiler traces it; None if it has to trace the normal path.

    An invalid call is None too: the normal path raises the error. `program_for` calls one function
    that is `constant`.
    """
    call = backend.as_constants(arrays, args, options)
    program = None if call is None else program_for(call)
    if program is None:
        return None
    steps, outputs, form, fill = program
    if form is not None:
        return as_linear(lambda: form, backend, arrays)
    return bound(backend, steps, outputs, {}, fill)(*arrays)


def constant_program(
    layout: Layout, framework: str, seen: Sequence[TracedArray], fill: Any
) -> ConstantProgram | None:
    """The program of a layout on arrays that a compiler sees; None if it takes another path.

    Callers have checked that the arrays' dtype can hold the fill value.
    """
    if any(x[1:3] != seen[0][1:3] for x in seen):
        return None
    steps, outputs, tables, form = plan_of(layout, mutable=True, views=False, zero=is_zero(fill))
    if tables:
        return None
    if not (isinstance(form, str) and backend_named(framework).linear_pays(form, seen)):
        form = None
    return cast("tuple[Step, ...]", steps), outputs, form, fill


def program_of_call(layout: Layout, call: ConstantCall) -> ConstantProgram | None:
    """The program of `layout(*arrays, fill=fill)`, by a call whose one argument is the fill value.

    None if the call is invalid, or is to take the normal path.
    """
    framework, seen, (fill,), _ = call
    if tuple([shape for shape, *_ in seen]) != layout.in_shapes:
        return None
    try:
        check_fill(seen[0][1], fill)
        return constant_program(layout, framework, seen, fill)
    except (TypeError, ValueError):
        return None
