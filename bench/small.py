"""Small: calls on 1 KB of float32, where the call is what costs; forms as in overhead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.contenders import INTO, OPS, WRITTEN, contenders, flattened, given
from bench.plan import SIZE
from xlayout.bench.contest import Contest, memcpys
from xlayout.bench.rows import Row, Settings, raced
from xlayout.bench.words import Words, into

__all__ = ["compiled", "finish", "measure_small", "small_contest"]

_NAMES = {"xlayout": "xlayout fresh", "hand": "eager fresh", "einops": "einops fresh"}


def measure_small(op: str, framework: str, settings: Settings) -> Row:
    """The row of an op of `bench.contenders` on a framework's arrays."""
    wanted = np.concatenate([part.reshape(-1).view(np.uint8) for part in flattened(OPS[op][1])])
    held = small_contest(op, framework, settings)
    return raced(held, wanted, (op, framework, "float32", SIZE), "small calls", settings)


def small_contest(op: str, framework: str, settings: Settings) -> Contest:
    """The calls, including compiled ones, which have an overhead too."""
    args = given(framework, OPS[op][0])
    forms = contenders(framework, op)
    calls: dict[str, Callable[[], Any]] = {
        _NAMES[name]: _on(form, args) for name, form in forms.items()
    }
    for name, form in (("compiled fresh", "hand"), ("xlayout compiled", "xlayout")):
        if framework != "numpy" and (settings.compiled or framework == "jax"):
            calls[name] = _on(compiled(framework, forms[form], len(args)), args)
    ys: list[Any] = []
    if op in INTO and framework != "jax":
        ys = given(framework, [np.zeros_like(y) for y in flattened(OPS[op][1])])
        calls |= _reused(op, framework, args, ys)
    source, target = np.ones((2, SIZE), np.uint8)
    units = memcpys(source, target, settings.threads)

    def clear() -> None:
        for y in ys:
            y[...] = 0

    return Contest(calls, units, finish(framework), clear)


def _on(form: Callable[..., Any], args: Any) -> Callable[[], Any]:
    return lambda: form(*args)


def _reused(op: str, framework: str, args: Any, ys: list[Any]) -> dict[str, Callable[[], Any]]:
    xs = args[0] if isinstance(args[0], list) else args
    by_hand = into(INTO[op], _words(framework))
    out = tuple(ys) if len(ys) > 1 else ys[0]
    written = WRITTEN[op]
    return {
        "xlayout reused": lambda: written(*args, out),
        "eager reused": lambda: by_hand(xs, ys),
    }


def _words(framework: str) -> Words:
    if framework == "torch":
        from xlayout.bench.by_torch import WORDS as TORCH

        return TORCH
    from xlayout.bench.by_numpy import WORDS as NUMPY

    return NUMPY


def compiled(framework: str, form: Callable[..., Any], arity: int) -> Callable[..., Any]:
    """A form compiled by the framework, called as every contender is."""
    if framework == "jax":
        import jax

        jitted = jax.jit(form)
        return (lambda x: jitted(x)) if arity == 1 else (lambda q, k, v: jitted(q, k, v))
    import torch

    torch._dynamo.reset()
    made: Callable[..., Any] = torch.compile(lambda *xs: form(*xs), dynamic=False)
    return made


def finish(framework: str) -> Callable[[Any], object]:
    """What waits for a result: only JAX returns before it is there."""
    if framework != "jax":
        return lambda _made: None
    import jax

    return jax.block_until_ready
