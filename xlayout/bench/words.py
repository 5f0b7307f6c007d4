"""Words: an op as one writes it by hand, in whichever framework speaks the few verbs it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import accumulate
from typing import Any

from xlayout.algebra.shapes import Shape
from xlayout.bench.cases import Case
from xlayout.bench.hands import Cut, Hand, Join, Pad, Permute, Stack
from xlayout.bench.timing import Call

__all__ = ["Words", "by_einops", "eager_calls", "fresh", "into"]


@dataclass(frozen=True, slots=True)
class Words:
    """A framework's own verbs.

    Args:
        permute: a view of an array with its axes in another order.
        own: copies a view into row-major memory; the identity where there are no views.
        concatenate: (arrays, axis), and `out=` if the framework can write into arrays.
        stack: (arrays, axis), and `out=`.
        pad: (array, axis, count) adds so many zeros at the end of an axis.
        write: (target, view) copies the view into the target, if the framework can.
    """

    permute: Callable[[Any, tuple[int, ...]], Any]
    own: Callable[[Any], Any]
    concatenate: Callable[..., Any]
    stack: Callable[..., Any]
    pad: Callable[[Any, int, int], Any]
    write: Callable[[Any, Any], object] = lambda _target, _view: None


def fresh(hand: Hand, shapes: Sequence[Shape], words: Words) -> Callable[..., Any]:
    """The op as a function from arrays to an array, or to a list of arrays of these shapes."""
    # As variables, because torch 2.11 cannot compile a call of an object's attribute.
    permute, own, concatenate, stack = words.permute, words.own, words.concatenate, words.stack
    pad = words.pad
    match hand:
        case Pad(axis, more):
            return lambda x: pad(x, axis, more)
        case Stack(axis):
            return lambda *xs: stack(xs, axis)
        case Join(parts, axis):
            return lambda *xs: concatenate(_seen(xs, parts), axis).reshape(shapes[0])
        case Permute():
            return lambda x: own(_views(hand, x, permute)[0]).reshape(shapes[0])
        case Cut():
            return lambda x: [
                own(view).reshape(shape)
                for view, shape in zip(_views(hand, x, permute), shapes, strict=True)
            ]


def into(hand: Hand, words: Words) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    """The op as a function (inputs, outputs) that writes into the outputs and returns them."""
    permute, write = words.permute, words.write  # as variables for the same reason
    concatenate, stack = words.concatenate, words.stack
    match hand:
        case Join(parts, axis):
            sizes = enumerate(zip(*parts, strict=True))
            joined = tuple(sum(each) if k == axis else each[0] for k, each in sizes)

            def join(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
                concatenate(_seen(xs, parts), axis, out=ys[0].reshape(joined))
                return ys

            return join
        case Stack(axis):

            def stacked(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
                stack(xs, axis, out=ys[0])
                return ys

            return stacked
        case Pad(axis, more):
            before = (slice(None),) * axis

            def padded(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
                ys[0][(*before, slice(-more))] = xs[0]
                ys[0][(*before, slice(-more, None))] = 0
                return ys

            return padded
        case Permute() | Cut():

            def written(xs: Sequence[Any], ys: Sequence[Any]) -> Any:
                for y, view in zip(ys, _views(hand, xs[0], permute), strict=True):
                    write(y.reshape(view.shape), view)
                return ys

            return written


def eager_calls(case: Case, xs: Sequence[Any], ys: Sequence[Any], words: Words) -> dict[str, Call]:
    """The calls, by name, for arrays that can be written: into `ys`, or into new ones."""
    made, written = fresh(case.hand, case.layout.out_shapes, words), into(case.hand, words)
    out = tuple(ys) if len(ys) > 1 else ys[0]
    calls: dict[str, Call] = {
        "xlayout reused": lambda: case.ours(*xs, out=out),
        "eager reused": lambda: written(xs, ys),
        "xlayout fresh": lambda: case.ours(*xs),
        "eager fresh": lambda: made(*xs),
    }
    return calls | by_einops(case, xs, words)


def by_einops(case: Case, xs: Sequence[Any], words: Words) -> dict[str, Call]:
    """The op in einops, made to copy where that returns a view; empty if einops lacks the op."""
    if not case.einops or not find_spec("einops"):
        return {}
    import einops

    pattern, sizes = case.einops
    given = list(xs) if len(xs) > 1 else xs[0]
    return {"einops fresh": lambda: words.own(einops.rearrange(given, pattern, **sizes))}


def _seen(xs: Sequence[Any], shapes: Sequence[Shape]) -> list[Any]:
    return [x.reshape(shape) for x, shape in zip(xs, shapes, strict=True)]


def _views(
    hand: Permute | Cut, x: Any, permute: Callable[[Any, tuple[int, ...]], Any]
) -> list[Any]:
    """The views that the outputs are copies of."""
    x = x.reshape(hand.split)
    if isinstance(hand, Permute):
        return [permute(x, hand.axes)]
    before = (slice(None),) * hand.axis
    stops = accumulate(hand.sizes)
    return [x[(*before, slice(b - n, b))] for b, n in zip(stops, hand.sizes, strict=True)]
