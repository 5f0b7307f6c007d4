"""Roles: what a layer communicates before and after its forward pass.

A layer with a role gets a class derived from its own, as in FSDP: parameter names, hooks and
`isinstance` keep working.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from xlayout.algebra.shapes import a_type, with_article
from xlayout.errors import ShardingError
from xlayout.torch.parallel.tp_group import Copies, Features, TPGroup

__all__ = ["Alone", "Column", "Experts", "Role", "Row", "Tail", "Vocab", "WithRole", "assign_role"]

_Forward = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Role:
    """What a layer communicates.

    Attributes:
        group: the ranks that share the model.
    """

    group: TPGroup

    def run(self, _module: nn.Module, forward: _Forward, /, *given: Any, **named: Any) -> Any:
        """The layer's outputs, and the communication around its own forward pass."""
        return forward(*given, **named)


class Alone(Role):
    """A layer that communicates only the gradients of copied parameters."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Column(Role):
    """A column-parallel layer: its outputs are sharded.

    Attributes:
        gather: how its outputs are cut, if they are to be gathered; else None.
    """

    gather: Features | None

    def run(self, module: nn.Module, forward: _Forward, /, *given: Any, **named: Any) -> Any:
        """The layer's outputs; the gradient of its input is summed."""
        given, named = _with_input(self.group.shared, given, named)
        made = forward(*given, **named)
        if self.gather is None:
            return made
        return self.group.gathered(_tensor(made, module), self.gather)


@dataclass(frozen=True, slots=True)
class Row(Role):
    """A row-parallel layer: its inputs are sharded.

    Attributes:
        scatter: how its inputs are to be cut, if they come whole; else None.
        transposed: whether the weight is (in, out).
    """

    scatter: Features | None
    transposed: bool

    def run(self, module: nn.Module, forward: _Forward, /, *given: Any, **named: Any) -> Any:
        """The layer's outputs, summed over the ranks; then its bias, once."""
        if self.scatter is not None:
            own = partial(self.group.scattered, features=self.scatter)
            given, named = _with_input(own, given, named)
        first = next(iter((*given, *named.values())), None)
        _refuse_whole_input(module, first, transposed=self.transposed)
        bias: Any = getattr(module, "bias", None)
        if bias is None:
            return self.group.summed(_tensor(forward(*given, **named), module))
        weight: Any = module.weight
        (x,) = (*given, *named.values())
        made = nn.functional.linear(x, weight.mT if self.transposed else weight)
        return self.group.summed(made) + bias.to(made.dtype)


@dataclass(frozen=True, slots=True)
class Vocab(Role):
    """A vocab-parallel embedding: its rows are sharded.

    Attributes:
        rows: the rows of this rank.
        words: how many rows all ranks have.
    """

    rows: range
    words: int

    def run(self, _module: nn.Module, forward: _Forward, /, *given: Any, **named: Any) -> Any:
        """The rows, summed over the ranks: only the one that holds a row contributes to it."""
        (ids,) = (*given, *named.values())
        own = (ids >= self.rows.start) & (ids < self.rows.stop)
        # A row of another rank is read as the first here, one that no rank has as -1: an error.
        elsewhere = ((ids >= 0) & (ids < self.words)).to(ids.dtype) - 1
        made = forward(torch.where(own, ids - self.rows.start, elsewhere))
        return self.group.summed(made.masked_fill(~own[..., None], 0))


class Experts(Role):
    """A module with sharded weights of its own, whose outputs are summed."""

    __slots__ = ()

    def run(self, module: nn.Module, forward: _Forward, /, *given: Any, **named: Any) -> Any:
        """The module's outputs, summed, like the gradients of all its inputs."""
        given, named = tree_map_only(torch.Tensor, self._shared, (given, named), is_leaf=_is_leaf)
        made = forward(*given, **named)
        return self.group.summed(_tensor(made, module))

    def _shared(self, x: torch.Tensor) -> torch.Tensor:
        return self.group.shared(x) if x.is_floating_point() or x.is_complex() else x


def _is_leaf(x: Any) -> bool:
    return not isinstance(x, tuple | list | dict)  # others, such as caches, are written into


@dataclass(frozen=True, slots=True)
class Tail(Role):
    """A replicated layer whose last outputs every rank uses for its own heads.

    Attributes:
        size: how many of the last outputs.
    """

    size: int

    def run(self, module: nn.Module, forward: _Forward, /, *given: Any, **named: Any) -> Any:
        """The layer's outputs; the gradients of the last ones are summed."""
        made = _tensor(forward(*given, **named), module)
        head, tail = made.tensor_split([-self.size], dim=-1)
        return torch.cat([head, self.group.shared(tail)], dim=-1)


def _with_input(change: Callable[[Any], Any], given: Any, named: dict[str, Any]) -> Any:
    """A layer's arguments with its input, the first of them, changed."""
    if given:
        return (change(given[0]), *given[1:]), named
    name = next(iter(named), None)
    return given, named if name is None else {**named, name: change(named[name])}


def _tensor(made: Any, module: nn.Module) -> torch.Tensor:
    """What a layer returned, which must be a tensor: nothing else is put together from ranks."""
    if not isinstance(made, torch.Tensor):
        raise TypeError(
            f"model: {_kind(module)} returned {a_type(made)}, and what it returns is "
            "put together from all ranks; wanted a tensor, or leave the layer 'whole'"
        )
    return made


def _refuse_whole_input(module: nn.Module, x: Any, *, transposed: bool) -> None:
    """Refuse an input with the features of all ranks.

    Raises:
        ShardingError: for another number of features than the layer has rows.
    """
    weight: Any = module.weight
    rows = weight.shape[-2 if transposed else -1]
    if isinstance(x, torch.Tensor) and x.ndim and x.shape[-1] != rows:
        raise ShardingError(
            f"model: {_kind(module)} that is cut by rows has {rows} on this rank, and its input "
            f"{x.shape[-1]} features; give its rule scatter=True if it comes whole, or cut the "
            "layer before it by 'column' and between the same features"
        )


def _kind(module: nn.Module) -> str:
    """The name of a layer's own class."""
    return with_article(type(module).__name__.removeprefix("Parallel"))


class WithRole(nn.Module):
    """A layer with a role: a base class placed before the layer's own."""

    xlayout_role: Role
    xlayout_copies: Mapping[str, Copies]
    xlayout_counted: Mapping[str, Counted]
    xlayout_runs: bool = False

    def forward(self, *given: Any, **named: Any) -> Any:
        """The forward pass of the layer's own class, and the communication around it."""
        if not self.xlayout_copies:
            return self.xlayout_role.run(self, super().forward, *given, **named)
        self.xlayout_runs = True
        try:
            return self.xlayout_role.run(self, super().forward, *given, **named)
        finally:
            self.xlayout_runs = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As in the layer's own class; the derived class is made again when the copy is loaded."""
        reduced: Any = super().__reduce_ex__(protocol)
        _, _, state, *rest = reduced
        return _rebuild, (type(self).__mro__[2], tuple(self.xlayout_copies)), state, *rest


Counted = tuple[int, tuple[tuple[int, int], ...]]
"""(axis, ((start, length), ...)): the slices of a sharded parameter that no lower rank holds."""

_DERIVED: dict[Any, Any] = {}


def assign_role(
    module: Any, role: Role, copies: Mapping[str, Copies], counted: Mapping[str, Counted]
) -> None:
    """Give a module a role, by changing its class.

    Args:
        module: the module.
        role: what it communicates.
        copies: its parameters of which other ranks hold copies.
        counted: its sharded parameters; see `Counted`.
    """
    module.__class__ = _derived(type(module), tuple(copies))
    module.xlayout_role, module.xlayout_copies, module.xlayout_counted = role, copies, counted


def _derived(kind: type[nn.Module], leaves: tuple[str, ...]) -> Any:
    """The class with a role that derives from a layer's own, with these parameters copied."""
    if (kind, leaves) not in _DERIVED:
        members = {leaf: property(_getter(leaf), *_setter(leaf)) for leaf in leaves}
        _DERIVED[kind, leaves] = type(f"Parallel{kind.__name__}", (WithRole, kind), members)
    return _DERIVED[kind, leaves]


def _rebuild(kind: type[nn.Module], leaves: tuple[str, ...]) -> Any:
    derived = _derived(kind, leaves)
    return derived.__new__(derived)


def _getter(leaf: str) -> Callable[[WithRole], Any]:
    """The getter of a copied parameter: while the layer runs, its gradient will be summed.

    A hook on the parameter would be lost in a copied or loaded module.
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
        return self.xlayout_role.group.held(parameter, self.xlayout_copies[leaf])

    return read


def _setter(leaf: str) -> tuple[Callable[[WithRole, Any], None], Callable[[WithRole], None]]:
    """Setter and deleter of a tensor in a parameter's place: FSDP sets views of flat parameters."""

    def put(self: WithRole, value: Any) -> None:
        vars(self)[leaf] = value

    def take(self: WithRole) -> None:
        if vars(self).pop(leaf, None) is None:
            raise AttributeError(leaf)

    return put, take
