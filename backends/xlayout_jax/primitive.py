"""Primitive: a layout that only moves elements, or zeros, as one linear operation of JAX.

The primitive stands for plain ops, and is lowered to them unless a platform knows better. Its rules
are the layout's own: transposed it is the inverse, batched it is the layout lifted by one axis. So
whatever a platform knows also serves gradients, their gradients, and `vmap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any, Protocol

import jax
from jax import interpreters
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import AxisType, NamedSharding, PartitionSpec

__all__ = ["Linear", "alone", "common_kind", "is_alone", "lower_plain", "relayout_p"]


class Linear(Protocol):
    """A map between row-major arrays that moves each element at most once; equal ones are one."""

    def __hash__(self) -> int: ...

    @property
    def out_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the results."""

    def moves(self, strides: Sequence[tuple[int, ...]], /) -> Any:
        """The same as strided copies from operands with these strides, in elements, or None.

        One more operand than there are is a row of `ZEROS` of them.
        """

    def plain(self, arrays: Sequence[Any], /) -> list[Any]:
        """The results by plain ops."""

    def inverse(self) -> Linear:
        """The way back, with zeros for what was dropped."""

    def lifted(self, count: int, /) -> Linear:
        """The same on `count` arrays at once, along a new first axis."""


relayout_p: Any = Primitive("relayout")
relayout_p.multiple_results = True

_alone = ContextVar("xlayout_jax.alone", default=False)

is_alone: Callable[[], bool] = _alone.get
"""Whether what is traced is a program of its own: an op that was called with arrays."""


def alone(function: Callable[..., Any], /) -> Callable[..., Any]:
    """The function, to be traced as a program of its own.

    >>> alone(lambda: is_alone())(), is_alone()
    (True, False)
    """

    def run(*arrays: Any) -> Any:
        token = _alone.set(True)
        try:
            return function(*arrays)
        finally:
            _alone.reset(token)

    return run


ad: Any = interpreters.ad  # they ship no types
batching: Any = interpreters.batching


def common_kind(arrays: Sequence[Any]) -> Any:
    """The type of the operands apart from their shape, which results take on; None if they differ.

    Operands that vary over different axes of a `shard_map` are first to be made alike, and a
    sharding that is part of the type is for the ops to work out: both know rules for it.
    """
    found = {_kind(jax.typeof(x)) for x in arrays}
    return found.pop() if len(found) == 1 else None


def _kind(aval: Any) -> Any:
    mesh = aval.sharding.mesh
    if any(kind is AxisType.Explicit for kind in mesh.axis_types):
        return None
    return aval.update(shape=(), sharding=_whole(mesh, 0))


def _whole(mesh: Any, ndim: int) -> NamedSharding:
    spec: Any = PartitionSpec
    return NamedSharding(mesh, spec(*[None] * ndim))


def _run(*arrays: Any, linear: Linear, alone: bool = False) -> Any:
    # Else it would come here again, for ever: uncompiled, or compiled and then looked into.
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        return _jitted(linear)(*arrays)


@lru_cache(1024)
def _jitted(linear: Any) -> Callable[..., Any]:
    return jax.jit(partial(relayout_p.bind, linear=linear, alone=True))


def _results(*avals: Any, linear: Linear, alone: bool = False) -> list[Any]:
    like = avals[0]
    mesh = like.sharding.mesh
    return [like.update(shape=s, sharding=_whole(mesh, len(s))) for s in linear.out_shapes]


def _transposed(
    cotangents: Sequence[Any], *operands: Any, linear: Linear, alone: bool = False
) -> list[Any]:
    given = [ad.instantiate_zeros(c) for c in cotangents]
    back = relayout_p.bind(*given, linear=linear.inverse())
    return [c if ad.is_undefined_primal(x) else None for c, x in zip(back, operands, strict=True)]


def _mapped(
    arrays: Sequence[Any], axes: Sequence[Any], *, linear: Linear, alone: bool = False
) -> tuple[list[Any], list[int]]:
    pairs = list(zip(arrays, axes, strict=True))
    count = next(x.shape[axis] for x, axis in pairs if axis is not None)
    fronted = [batching.bdim_at_front(x, axis, count) for x, axis in pairs]
    if type(count) is int:
        made = relayout_p.bind(*fronted, linear=linear.lifted(count))
    else:  # symbolic, as in an export: no layout has such a shape
        made = jax.vmap(lambda *xs: linear.plain(xs))(*fronted)
    return made, [0] * len(made)


def _plain(*arrays: Any, linear: Linear, alone: bool = False) -> list[Any]:
    return linear.plain(arrays)


lower_plain = mlir.lower_fun(_plain, multiple_results=True)

relayout_p.def_impl(_run)
relayout_p.def_abstract_eval(_results)
ad.deflinear2(relayout_p, _transposed)
batching.primitive_batchers[relayout_p] = _mapped
try:
    from jax.experimental import jet
except ImportError:  # an experiment may end
    pass
else:
    jet.deflinear(relayout_p)  # type: ignore[no-untyped-call]
