"""Lowering: what a program has for the operation of a layout: a kernel's call, or plain ops."""

from __future__ import annotations

from typing import Any

from jax.interpreters import mlir

from xlayout_jax import cuda, native
from xlayout_jax.primitive import Linear, lower_plain, relayout_p
from xlayout_jax.programs import order_of
from xlayout_native.strided import dense_strides

__all__: list[str] = []


def _lower(context: Any, *operands: Any, linear: Linear, alone: bool = False) -> Any:
    avals = context.avals_in
    orders = [order_of(x, aval.ndim) for x, aval in zip(operands, avals, strict=True)]
    pairs = zip(avals, orders, strict=True)
    moves = linear.moves([dense_strides(aval.shape, order[::-1]) for aval, order in pairs])
    made = None
    if moves is not None:
        made = native.called(context, operands, orders, moves)
        if made is None and alone:
            made = cuda.called(context, operands, orders, moves)
    return lower_plain(context, *operands, linear=linear) if made is None else made


# One rule for every platform: with one for each, JAX 0.10 cannot lower for several at once. It is
# not cached: the next operation of its kind may have operands that are laid out otherwise.
mlir.register_lowering(relayout_p, _lower, cacheable=False)
