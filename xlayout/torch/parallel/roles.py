"""Roles: what a layer sends to the other ranks, before it runs and after.

A layer with a role is of a class derived from its own, as FSDP does it: the names of parameters,
hooks and `isinstance` stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from xlayout.torch.parallel.line import Copies, Features, Line

__all__ = ["Alone", "Column", "Experts", "Role", "Row", "Tail", "Vocab", "WithRole", "runs_as"]

_Forward = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A layer whose results are cut.

    Attributes:
        line: the ranks.
        gather: how its results are cut, where they are put together again.
    """

    line: Line
    gather: Features | None

    def run(self, _module: nn.Module, forward: _Forward, *given: Any, **named: Any) -> Any:
        """The layer's results; the gradients of what goes in are summed."""
        given, named = _with_input(self.line.shared, given, named)
        made = forward(*given, **named)
        return made if self.gather is None else self.line.gathered(made, self.gather)


@dataclass(frozen=True, slots=True)
class Row:
    """A layer whose inputs are cut.

    Attributes:
        line: the ranks.
        scatter: how its inputs are cut, where they come whole.
        transposed: whether the weight is (in, out).
    """

    line: Line
    scatter: Features | None
    transposed: bool

    def run(self, module: nn.Module, forward: _Forward, *given: Any, **named: Any) -> Any:
        """The layer's results, summed; then its bias, once."""
        if self.scatter is not None:
            own = partial(self.line.scattered, features=self.scatter)
            given, named = _with_input(own, given, named)
        bias: Any = getattr(module, "bias", None)
        if bias is None:
            return self.line.summed(forward(*given, **named))
        weight: Any = module.weight
        (x,) = (*given, *named.values())
        made = nn.functional.linear(x, weight.mT if self.transposed else weight)
        return self.line.summed(made) + bias.to(made.dtype)


@dataclass(frozen=True, slots=True)
class Vocab:
    """An embedding that is cut by rows.

    Attributes:
        line: the ranks.
        rows: those of this rank.
    """

    line: Line
    rows: range

    def run(self, _module: nn.Module, forward: _Forward, *given: Any, **named: Any) -> Any:
        """What each rank finds of the rows, added up: one of them finds it."""
        (ids,) = (*given, *named.values())
        own = (ids >= self.rows.start) & (ids < self.rows.stop)
        made = forward(torch.where(own, ids - self.rows.start, 0))
        return self.line.summed(made.masked_fill(~own[..., None], 0))


@dataclass(frozen=True, slots=True)
class Experts:
    """A module that holds cut weights itself, and whose results are summed.

    Attributes:
        line: the ranks.
    """

    line: Line

    def run(self, _module: nn.Module, forward: _Forward, *given: Any, **named: Any) -> Any:
        """The module's results, summed; the gradients of all that goes in are too."""
        shared = {name: self._shared(x) for name, x in named.items()}
        return self.line.summed(forward(*map(self._shared, given), **shared))

    def _shared(self, x: Any) -> Any:
        tracked = isinstance(x, torch.Tensor) and x.is_floating_point()
        return self.line.shared(x) if tracked else x


@dataclass(frozen=True, slots=True)
class Tail:
    """A whole layer, some of whose results every rank uses for its own heads.

    Attributes:
        line: the ranks.
        size: how many, the last ones.
    """

    line: Line
    size: int

    def run(self, _module: nn.Module, forward: _Forward, *given: Any, **named: Any) -> Any:
        """The layer's results; the gradients of the last ones are summed."""
        head, tail = forward(*given, **named).tensor_split([-self.size], dim=-1)
        return torch.cat([head, self.line.shared(tail)], dim=-1)


@dataclass(frozen=True, slots=True)
class Alone:
    """A layer that sends nothing, but for gradients of what others hold too.

    Attributes:
        line: the ranks.
    """

    line: Line

    def run(self, _module: nn.Module, forward: _Forward, *given: Any, **named: Any) -> Any:
        """The layer's results."""
        return forward(*given, **named)


def _with_input(change: Callable[[Any], Any], given: Any, named: dict[str, Any]) -> Any:
    """What a layer is given, with its input changed, which comes first or by name."""
    if given:
        return (change(given[0]), *given[1:]), named
    name = next(iter(named))
    return given, {**named, name: change(named[name])}


Role = Alone | Column | Row | Vocab | Experts | Tail


class WithRole(nn.Module):
    """A layer with a role: this class stands before the layer's own."""

    xlayout_role: Role
    xlayout_copies: Mapping[str, Copies]
    xlayout_counted: Mapping[str, Counted]
    xlayout_runs: bool = False

    def forward(self, *given: Any, **named: Any) -> Any:
        """The pass of the layer's own class, and what is sent before and after."""
        if not self.xlayout_copies:
            return self.xlayout_role.run(self, super().forward, *given, **named)
        self.xlayout_runs = True
        try:
            return self.xlayout_role.run(self, super().forward, *given, **named)
        finally:
            self.xlayout_runs = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As that of the layer's own class, which is made again where the copy is."""
        reduced: Any = super().__reduce_ex__(protocol)
        _, _, state, *rest = reduced
        return _remade, (type(self).__mro__[2], tuple(self.xlayout_copies)), state, *rest


Counted = tuple[int, tuple[tuple[int, int], ...]]
"""(axis, ((start, length), ...)): of a cut parameter what no rank before this one holds too."""

_DERIVED: dict[Any, Any] = {}


def runs_as(
    module: Any, role: Role, copies: Mapping[str, Copies], counted: Mapping[str, Counted]
) -> None:
    """From now on a module sends to other ranks what its role says.

    Args:
        module: any; it is of another class afterwards.
        role: what it sends.
        copies: its parameters of which other ranks hold parts too.
        counted: its parameters that are cut.
    """
    module.__class__ = _derived(type(module), tuple(copies))
    module.xlayout_role, module.xlayout_copies, module.xlayout_counted = role, copies, counted


def _derived(kind: type[nn.Module], leaves: tuple[str, ...]) -> Any:
    if (kind, leaves) not in _DERIVED:
        members = {leaf: property(_summed(leaf), *_put(leaf)) for leaf in leaves}
        _DERIVED[kind, leaves] = type(f"Parallel{kind.__name__}", (WithRole, kind), members)
    return _DERIVED[kind, leaves]


def _remade(kind: type[nn.Module], leaves: tuple[str, ...]) -> Any:
    derived = _derived(kind, leaves)
    return derived.__new__(derived)


def _summed(leaf: str) -> Callable[[WithRole], Any]:
    """What a layer reads as a parameter while it runs, where it has but a part of the gradient.

    It is no hook on the parameter, which a copied or loaded module would not have.
    """

    def read(self: WithRole) -> Any:
        held = self._parameters if leaf in self._parameters else vars(self)
        if leaf not in held:
            raise AttributeError(leaf)
        parameter: Any = held[leaf]
        if parameter is None or not self.xlayout_runs or not torch.is_grad_enabled():
            return parameter
        if not parameter.requires_grad:
            return parameter
        return self.xlayout_role.line.held(parameter, self.xlayout_copies[leaf])

    return read


def _put(leaf: str) -> tuple[Callable[[WithRole, Any], None], Callable[[WithRole], None]]:
    """Setter and deleter of a tensor in a parameter's place: FSDP sets views of flat ones."""

    def put(self: WithRole, value: Any) -> None:
        vars(self)[leaf] = value

    def take(self: WithRole) -> None:
        if vars(self).pop(leaf, None) is None:
            raise AttributeError(leaf)

    return put, take
