"""Operation: a layout that only moves elements, as one operation of torch, `xlayout::relayout`.

It is linear and moves no element twice: its forward derivative is itself, its backward its inverse.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import torch

from xlayout_native.strided import MOST_WAYS, ZEROS, Moves, keeps_order, run_of
from xlayout_torch.join import joined
from xlayout_torch.writer import copy_by_torch, writer

__all__ = ["Form", "parse", "relayout"]

Shapes = tuple[tuple[int, ...], ...]


class Form(NamedTuple):
    """A map between row-major tensors, in numbers.

    Attributes:
        moves: the copies; one more source than there are is a row of `ZEROS` of them.
        sources, targets: the shapes.
        dropped: the copies of such a row to what the sources have and no target gets.
    """

    moves: Moves
    sources: Shapes
    targets: Shapes
    dropped: Moves = ()

    @property
    def moved(self) -> Moves:
        """The copies of elements."""
        return tuple(move for move in self.moves if move[0] < len(self.sources))

    @property
    def holes(self) -> Moves:
        """The copies of zeros."""
        return self.moves[len(self.moved) :]

    @property
    def size(self) -> int:
        """How many elements it moves."""
        return sum(map(math.prod, self.targets))

    @property
    def keeps_order(self) -> bool:
        """Whether it only drops elements, or puts zeros between them."""
        partial = self.holes or self.dropped
        return bool(partial) and all(keeps_order(loops) for _, _, (_, _, loops) in self.moved)

    @property
    def run(self) -> int:
        """How many elements stay side by side wherever they go."""
        return min((run_of(loops) for _, _, (_, _, loops) in self.moved), default=0)

    @property
    def kind(self) -> Literal["weave", "deal", "apart", "turn"]:
        """Whether runs that are neighbours on one side stay near, in the results or the inputs.

        If they do, and lie in several arrays on the other side, they are set apart, or were.

        >>> Form(((0, 0, (0, 0, ((2, 9, 1), (9, 1, 2)))),), ((18,),), ((18,),)).kind
        'weave'
        >>> Form(((0, 0, (0, 0, ((2, 1, 9), (9, 2, 1)))),), ((18,),), ((18,),)).kind
        'deal'
        >>> Form(tuple((0, k, (k, 0, ((9, 2, 1),))) for k in (0, 1)), ((18,),), ((9,), (9,))).kind
        'apart'
        """
        run = self.run
        steps = {
            (x // run, z // run) for _, _, (_, _, loops) in self.moved for n, x, z in loops if n > 1
        }
        weaves = any(x == 1 and 1 < z <= MOST_WAYS for x, z in steps)
        deals = any(z == 1 and 1 < x <= MOST_WAYS for x, z in steps)
        if not (weaves or deals):
            return "turn"
        if len(self.sources) + len(self.targets) > 2:
            return "apart"
        return "weave" if weaves else "deal"

    def inverse(self) -> Form:
        """The way back."""
        back = tuple(
            (target, source, (to, start, tuple((n, z, x) for n, x, z in loops)))
            for source, target, (start, to, loops) in self.moved
        )
        return Form((*back, *self.dropped), self.targets, self.sources, self.holes)


@lru_cache(1024)
def parse(text: str) -> Form:
    """A form from its `repr` as a tuple."""
    return Form(*ast.literal_eval(text))


def relayout(arrays: Sequence[Any], form: str) -> list[Any]:
    """The operation's results."""
    if torch._C._are_functorch_transforms_active():  # of a graph that was recorded outside
        return _by_views(arrays, form)
    if len(parse(form).targets) == 1:
        return [torch.ops.xlayout.relayout.one(arrays, form)]
    made: list[Any] = torch.ops.xlayout.relayout(arrays, form)
    return made


@lru_cache(1024)
def _writer(form: str) -> Callable[..., Any]:
    found = parse(form)
    return writer(found.moves, found.sources, found.targets)


def _all(arrays: Sequence[torch.Tensor], form: str) -> Sequence[torch.Tensor]:
    """The arrays that torch's own copies read, with the row of zeros."""
    return (*arrays, arrays[0].new_zeros(ZEROS)) if parse(form).holes else arrays


def _run(arrays: Sequence[torch.Tensor], form: str) -> list[torch.Tensor]:
    given = [x.contiguous() for x in arrays]
    made = _writer(form)(given, None)
    if made is not None:
        return list(made)
    outputs = _empty(given[0], form)
    copy_by_torch(parse(form).moves, _all(given, form), outputs)
    return outputs


def _by_views(arrays: Sequence[torch.Tensor], form: str) -> list[torch.Tensor]:
    """The same by ops that every transform has rules for, and the `vmap` of batched gradients."""
    arrays = _all(arrays, form)
    # Wrapped by all that wraps any of them.
    whole = joined(torch.cat, [x.reshape(-1) for x in arrays])
    ends = list(accumulate([x.numel() for x in arrays], initial=0))
    moves = tuple(
        (0, target, (ends[source] + first, to, loops))
        for source, target, (first, to, loops) in parse(form).moves
    )
    made = _empty(whole, form)
    copy_by_torch(moves, [whole], made)
    return made


def _empty(like: torch.Tensor, form: str) -> list[torch.Tensor]:
    return [like.new_empty(shape) for shape in parse(form).targets]


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(form: str, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():
            return tuple(relayout(arrays, form))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Any) -> None:
        ctx.form = inputs[0]

    @staticmethod
    def jvp(ctx: Any, _form: None, *tangents: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(relayout(tangents, ctx.form))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, *relayout(cotangents, repr(tuple(parse(ctx.form).inverse())))


def _differentiable(arrays: Sequence[torch.Tensor], form: str) -> Sequence[torch.Tensor]:
    if _is_recorded(arrays):
        made: Sequence[torch.Tensor] = _Linear.apply(form, *arrays)  # type: ignore[no-untyped-call]
        return made
    # Nothing records it, so it need not pass through the dispatcher again.
    return _writer(form)(arrays, None) or _Linear.forward(form, *arrays)


def _is_recorded(arrays: Sequence[torch.Tensor]) -> bool:
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*arrays):
        return True
    for x in arrays:  # noqa: SIM110 -- a generator takes as long as all of this
        # Not `forward_ad.unpack_dual`: what a compiled program enters is no level to that module.
        if torch._VF._unpack_dual(x, level=0).tangent is not None:
            return True
    return False


def _define(name: str, result: str, of: Callable[[Any], Any]) -> None:
    """Define an operation on tensors, which are made row-major first, as its results are.

    A program has the layout as text: it may be saved, and run by a process that never saw the
    layout. `custom_op` would do the same, and take 15 us longer for each call; `register_autograd`
    has no forward mode, and silently loses tangents.

    Args:
        name: of the operation.
        result: its type.
        of: list of tensors -> result.
    """
    schema, tag = f"(Tensor[] arrays, str form) -> {result}", torch.Tag.pt2_compliant_tag
    torch.library.define(name, schema, tags=[tag])
    torch.library.impl(name, "cpu", lambda arrays, form: of(_run(arrays, form)))
    torch.library.impl(name, "Autograd", lambda arrays, form: of(_differentiable(arrays, form)))
    torch.library.impl(name, "Batched", lambda arrays, form: of(_by_views(arrays, form)))
    torch.library.register_fake(name, lambda arrays, form: of(_empty(arrays[0], form)))


_define("xlayout::relayout", "Tensor[]", list)
# Inductor's C++ wrapper crashes on a list of one.
_define("xlayout::relayout.one", "Tensor", lambda made: made[0])
