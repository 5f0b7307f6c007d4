"""Bound: a program as one function of a backend, with verbs and arguments bound."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xlayout.algebra import Layout
from xlayout.algebra.program import Program, Step
from xlayout.algebra.shapes import bounds
from xlayout.backend import Backend

__all__ = ["bound", "spent_by", "tables_of"]

_Values = Sequence[Any]


def bound(
    backend: Backend,
    steps: Sequence[Step],
    outputs: Sequence[int],
    tables: Mapping[int, Any],
    fill: Any,
    spent: Sequence[Sequence[int]] = (),
) -> Callable[..., Any]:
    """A program as a function: arrays in, one array or a tuple of several out.

    `spent` has the results that each step frees (see `spent_by`); compilers find them themselves.
    """
    # Step sources 0 to k - 1 are the inputs; the results of steps are numbered after them.
    if steps and not steps[1:]:
        ((verb, sources, argument),) = steps
        if verb == "stack" and sources == tuple(range(outputs[0])):
            return backend.stack(*argument)  # of all inputs in order: one call suffices

    # Not a function of the module, whose code Dynamo would compare on every call.
    def call_of(step: Step) -> Callable[[_Values], Any]:
        verb, sources, argument = step
        first = sources[0] if sources else 0
        if verb == "reshape":
            reshape = backend.reshape
            return lambda values: reshape(values[first], argument)
        if verb == "own":
            return lambda values: backend.fresh(values[first])
        if verb == "permute":
            return lambda values: backend.permute(values[first], argument)
        if verb == "slice":
            cut = backend.slice
            axis, start, stop, by = argument
            return lambda values: cut(values[first], axis, start, stop, by)
        if verb == "expand":
            return lambda values: backend.expand(values[first], argument)
        if verb == "concatenate":
            (along,) = argument
            return lambda values: backend.concatenate([values[s] for s in sources], along)
        if verb == "stack":
            stacked = backend.stack(*argument)
            return lambda values: stacked(*[values[s] for s in sources])
        if verb == "pad":
            where, before, after = argument
            return lambda values: backend.pad(values[first], where, before, after, fill)
        if verb == "full":
            return lambda values: backend.full(argument, fill, values[0])
        table = tables[argument[0]]
        return lambda values: backend.gather([values[s] for s in sources], table, fill)

    def freeing(call: Callable[[_Values], Any], spent: Sequence[int]) -> Callable[[Any], Any]:
        def call_and_free(values: Any) -> Any:
            made = call(values)
            for value in spent:
                values[value] = None
            return made

        return call_and_free if spent else call

    calls = [call_of(step) for step in steps]
    if spent:
        calls = list(map(freeing, calls, spent))
    only = outputs[0] if outputs and not outputs[1:] else None

    def run(*arrays: Any) -> Any:
        values = [*arrays]
        for call in calls:
            values.append(call(values))
        return (*[values[k] for k in outputs],) if only is None else values[only]

    return run


_VIEWS = ("reshape", "permute", "slice", "expand")


def spent_by(steps: Sequence[Step], outputs: Sequence[int]) -> list[list[int]]:
    """For each step the results that it is the last to read, if these hold memory of their own."""
    arity = max(outputs, default=0) + 1 - len(steps)  # the last step makes an output
    last = {source: k for k, (_, sources, _) in enumerate(steps) for source in sources}
    spent: list[list[int]] = [[] for _ in steps]
    holding: set[int] = set()
    for value, (verb, sources, _) in enumerate(steps, arity):
        if verb not in _VIEWS or not holding.isdisjoint(sources):
            holding.add(value)
            if value not in outputs:
                spent[last[value]].append(value)
    return spent


def tables_of(layout: Layout, program: Program) -> dict[int, Any]:
    """The index tables of the outputs that gather."""
    numbers = [argument[0] for verb, _, argument in program.steps if verb == "gather"]
    if not numbers:
        return {}
    index, places = layout.index(), bounds(layout.out_shapes)
    return {k: index[slice(*places[k])].reshape(layout.out_shapes[k]) for k in numbers}
