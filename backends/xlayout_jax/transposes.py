"""Transposes: a function whose transpose is given, as one operation of JAX.

An exchange between devices has a better transpose than JAX would find: the way back. The operation
has derivatives in either mode and of any order, and batches; to a checkpoint policy it is one
equation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import interpreters
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import mlir

from xlayout_jax.tracers import is_tracer

__all__ = ["Step", "exchange_p", "linear", "transposed"]

Step = Callable[..., tuple[Any, ...]]

exchange_p: Any = Primitive("exchange")
exchange_p.multiple_results = True

ad: Any = interpreters.ad  # they ship no types
batching: Any = interpreters.batching


def linear(
    forward: Step, backward: Step, arrays: Sequence[Any], /, primal: Step | None = None
) -> tuple[Any, ...]:
    """`forward(*arrays)`, with `backward` as its transpose; `backward` has `forward` as its own.

    `primal` makes the results if they are those of `forward` plus a constant, such as fill.
    """
    run = primal or forward
    if not any(is_tracer(x) for x in arrays):
        return run(*arrays)  # no gradient will be asked for, and the operation is slower to call
    recorded = jax.make_jaxpr(run)(*arrays)
    ways = {"forward": forward, "backward": backward, "primal": primal}
    return tuple(exchange_p.bind(*arrays, recorded=recorded, **ways))


def transposed(run: Step, shapes: Sequence[tuple[int, ...]], /) -> Step:
    """The transpose of a linear function of arrays of these shapes, as JAX finds it."""

    def back(*cotangents: Any) -> tuple[Any, ...]:
        dtype = cotangents[0].dtype
        like = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]  # type: ignore[no-untyped-call]
        made: tuple[Any, ...] = jax.linear_transpose(run, *like)(cotangents)
        return made

    return back


def _run(*arrays: Any, recorded: Any, forward: Step, backward: Step, primal: Step | None) -> Any:
    return (primal or forward)(*arrays)


def _replayed(*arrays: Any, recorded: Any, **_ways: Any) -> Any:
    # Not recorded anew: a lowering does not know which mesh the caller had set.
    return jaxpr_as_fun(recorded)(*arrays)


def _results(*_avals: Any, recorded: Any, **_ways: Any) -> Any:
    return recorded.out_avals


def _pushed(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    given = [ad.instantiate_zeros(t) for t in tangents]
    made = exchange_p.bind(*primals, **params)
    return made, linear(params["forward"], params["backward"], given)


def _transposed(
    cotangents: Sequence[Any], *operands: Any, forward: Step, backward: Step, **_: Any
) -> list[Any]:
    back = linear(backward, forward, [ad.instantiate_zeros(c) for c in cotangents])
    return [c if ad.is_undefined_primal(x) else None for c, x in zip(back, operands, strict=True)]


def _mapped(
    arrays: Sequence[Any],
    axes: Sequence[Any],
    *,
    recorded: Any,
    forward: Step,
    backward: Step,
    primal: Step | None,
) -> tuple[Sequence[Any], list[int]]:
    pairs = list(zip(arrays, axes, strict=True))
    count = next(x.shape[axis] for x, axis in pairs if axis is not None)
    fronted = [batching.bdim_at_front(x, axis, count) for x, axis in pairs]
    made = linear(jax.vmap(forward), jax.vmap(backward), fronted, primal and jax.vmap(primal))
    return made, [0] * len(made)


exchange_p.def_impl(_run)
exchange_p.def_abstract_eval(_results)
ad.primitive_jvps[exchange_p] = _pushed
ad.primitive_transposes[exchange_p] = _transposed
batching.primitive_batchers[exchange_p] = _mapped
mlir.register_lowering(exchange_p, mlir.lower_fun(_replayed, multiple_results=True))
