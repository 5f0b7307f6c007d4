"""Traced: the program of a layout inside a compiler, where dimensions may be dynamic.

A dynamic dimension is replaced by a large prime. No real size has such a factor, so the prime comes
out of the layout intact, as a whole axis or as a factor of a merged one, and is replaced by the
dimension again in each step. A layout that depends on the size would break up the prime, which is
an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xlayout.algebra import Layout
from xlayout.backend import Backend
from xlayout.dynamo import constant
from xlayout.errors import SizeError
from xlayout.lower.answers import Answer, answered, answering
from xlayout.lower.bound import bound, tables_of
from xlayout.lower.linear import as_linear, form_of, linear_of
from xlayout.lower.named import function_named
from xlayout.lower.relayout import program_of
from xlayout.lower.tuned import owned

__all__ = ["fixed", "plan_layout", "plan_of", "plan_op", "stand_ins", "trace"]

_PRIMES = (
    1099511627791, 1099511627803, 1099511627831, 1099511627873, 1099511627891, 1099511627917,
    1099511627933, 1099511627953, 1099511628029, 1099511628053, 1099511628079, 1099511628119,
)  # fmt: skip
_LIMIT = 1 << 40

_Size = int | tuple[int, tuple[int, ...]]
"""A number, or (factor, axes): the factor times the dynamic dimensions of those axes."""


Plan = tuple[
    tuple[tuple[str, tuple[int, ...], tuple[_Size, ...]], ...],
    tuple[int, ...],
    dict[int, Any],
    Layout | str | None,
]
"""(steps, outputs, index tables, whole): a program whose numbers may refer to dynamic dimensions;
and the layout that it runs, or its form, if none does."""


def trace(backend: Backend, plan: Answer, arrays: Sequence[Any], fill: Any) -> Any:
    """Run a plan as one operation of the backend, if it prefers that, else as plain ops.

    `plan` comes from `plan_layout` or `plan_op`.
    """
    steps, outputs, tables, whole = answered(plan)
    if whole is not None:
        made = as_linear(
            lambda: whole if isinstance(whole, str) else linear_of(whole, backend, fill),
            backend,
            arrays,
        )
        if made is not None:
            return made
    dims = arrays[0].shape
    opened = [
        (verb, sources, tuple([_open(n, dims) for n in argument]))
        for verb, sources, argument in steps
    ]
    return bound(backend, opened, outputs, tables, fill)(*arrays)


@constant
@answering
def plan_op(
    named: str,
    args: tuple[Any, ...],
    options: tuple[tuple[str, Any], ...],
    mutable: bool,
    views: bool,
    zero: bool,
) -> Plan:
    """The plan of an op on shapes that may hold stand-ins; its layout's function by name."""
    return plan_of(function_named(named)(*args, **dict(options)), mutable, views, zero)


@answering
def plan_layout(layout: Layout, mutable: bool, views: bool, zero: bool) -> Plan:
    """The plan of a layout whose shapes may hold stand-ins."""
    return plan_of(layout, mutable, views, zero)


def plan_of(layout: Layout, mutable: bool, views: bool, zero: bool) -> Plan:
    """A layout's program, for `trace`.

    `mutable`: results may be written into, so they are copies unless `views` are allowed; and the
    compiler takes text as a constant, but not objects. `zero`: that is what holes are filled with.
    """
    program = program_of(layout)
    if mutable and not views:
        program = owned(program, layout)
    steps = tuple(
        (verb, sources, tuple(map(_size, argument))) for verb, sources, argument in program.steps
    )
    opened = any(n >= _LIMIT for shape in layout.in_shapes for n in shape)
    if program.gathers and opened:
        raise _depends_error()
    whole = None if opened else form_of(layout, views, zero) if mutable else layout
    return steps, program.outputs, tables_of(layout, program), whole


def stand_ins(
    backend: Backend,
    shapes: Sequence[Sequence[Any]],
    touched: Sequence[frozenset[int]],
    name: str,
) -> list[tuple[int, ...]]:
    """Shapes in plain ints: primes for dynamic dimensions of axes that the layout does not touch.

    A prime stands for one size. So with several arrays an axis may stay dynamic only if it is
    dynamic and equally long in all of them; comparing makes the compiler guard on that.
    """
    first, opened = shapes[0], []
    for axis in range(min(len(first), len(_PRIMES))):
        alike = True
        for number, (shape, closed) in enumerate(zip(shapes, touched, strict=True)):
            if axis in closed or len(shape) != len(first) or not backend.symbolic(shape[axis]):
                alike = False
            elif alike and number:
                alike = bool(shape[axis] == first[axis])
        if alike:
            opened.append(axis)
    return [_numbers(backend, shape, opened, name) for shape in shapes]


def fixed(backend: Backend, value: Any) -> Any:
    """An option with its numbers as constants, which a compiler may have made dynamic."""
    if type(value) is tuple or type(value) is list:
        return tuple([fixed(backend, v) for v in value])
    # A number that was specialised elsewhere is still not a constant to Dynamo here.
    return backend.concrete(value) if type(value) is int else value


def _numbers(
    backend: Backend, shape: Sequence[Any], opened: Sequence[int], name: str
) -> tuple[int, ...]:
    sizes = []
    for axis, n in enumerate(shape):
        if axis in opened:
            sizes.append(_PRIMES[axis])
            continue
        try:
            sizes.append(backend.concrete(n))
        except TypeError as error:
            raise SizeError(
                f"{name}: axis {axis} is dynamic ({error}) and the layout depends on its size; "
                "only axes that the op leaves alone may be dynamic, so export with a fixed size "
                "there"
            ) from None
    return tuple(sizes)


def _size(n: int) -> _Size:
    """A number of the program, with primes replaced by the axes that they stand for."""
    axes = []
    for axis, prime in enumerate(_PRIMES):
        if n and n % prime == 0:
            axes.append(axis)
            n //= prime
    if n >= _LIMIT:
        raise _depends_error()
    return (n, tuple(axes)) if axes else n


def _depends_error() -> SizeError:
    return SizeError(
        "a dynamic axis: this layout depends on its size; fix the size, or leave that axis alone"
    )


def _open(size: Any, dims: Sequence[Any]) -> Any:
    if isinstance(size, int):
        return size
    n, axes = size
    for axis in axes:
        n = n * dims[axis]
    return n
