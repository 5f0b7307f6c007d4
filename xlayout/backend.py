"""Backend: the verbs a framework must have for layouts to run on its arrays.

A backend is a *module* that satisfies this protocol. It imports its framework and nothing of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["Asked", "Backend", "Moves", "Relayout", "Run", "Runs", "Seen", "Told"]

Run = Callable[..., Any]
"""Arrays in, one array or a tuple of them out."""

Runs = dict[Any, Run]
"""What ran before, by keys that a backend makes."""

Moves = tuple[tuple[int, int, tuple[int, int, tuple[tuple[int, int, int], ...]]], ...]
"""(input, output, (from, to, ((n, in stride, out stride), ...))), addresses in elements."""

Relayout = tuple[
    tuple[slice | int, ...] | None,
    tuple[int, ...] | None,
    tuple[int, ...] | None,
    tuple[int, ...] | None,
]
"""(window, split shape, axes, merged shape), each None where that step does nothing."""


Asked = tuple[Any, tuple[Any, ...] | None, dict[str, Any]]
"""What a call is found by: an array and arguments, or a tuple of arrays and None; and options."""


Seen = tuple[tuple[int, ...], Any, Any, bool]
"""(shape, dtype, device, row-major) of an array, as a compiler knows them."""

Told = tuple[str, tuple[Seen, ...], tuple[Any, ...], tuple[tuple[str, Any], ...]]
"""(the backend's name, arrays, arguments, options) of a call, in constants."""


class Backend(Protocol):
    """What `xlayout_numpy`, `xlayout_torch` and `xlayout_jax` have in common."""

    name: str
    immutable: bool
    """Whether arrays can never be written into, so that sharing memory between values is safe."""

    # -- what an array is -------------------------------------------------------------------------

    def kind(self, x: Any, /) -> tuple[Any, Any]:
        """(dtype, device): arrays of one call must agree on both."""

    def find(
        self, runs: Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], /
    ) -> Run | None:
        """What was kept for a call on an array like `x` with these arguments, or None.

        `x` is a tuple of arrays where `args` is None; they are of one type and dtype, or nothing is
        found. None while a tracer follows the code: what is kept changes from call to call, and a
        tracer that saw it would record anew after each change.
        """

    def keep(
        self, runs: Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], run: Run, /
    ) -> None:
        """Keep what runs for such calls, if they can be told from others."""

    def told(
        self, arrays: Sequence[Any], args: Sequence[Any], options: dict[str, Any], /
    ) -> Told | None:
        """A call in constants, to a compiler that reads this very line.

        None where none does, and where something else than the elements is open, or the arrays are
        of classes that have rules of their own.
        """

    def tracing(self, *xs: Any) -> bool:
        """Whether a compiler is recording one of them: values and memory mean nothing yet."""

    def spread(self, x: Any, /) -> bool | None:
        """Whether many devices hold it, and how is known; None where a tracer does not know."""

    def symbolic(self, n: Any, /) -> bool:
        """Whether a dimension may be left open while tracing."""

    def concrete(self, n: Any, /) -> int:
        """A dimension as an int: the tracer specialises. Raises TypeError when it cannot."""

    # -- steps of a program: values in, values out -------------------------------------------------

    def reshape(self, x: Any, shape: Sequence[Any], /) -> Any:
        """The same elements in row-major order with other axes."""

    def permute(self, x: Any, axes: Sequence[int], /) -> Any:
        """The axes in another order."""

    def slice(self, x: Any, axis: int, start: Any, stop: Any, step: int, /) -> Any:
        """`start:stop:step` of one axis."""

    def concatenate(self, xs: Sequence[Any], axis: int, /) -> Any:
        """Arrays one after the other along an axis."""

    def stack(self, axis: int, rank: int, /) -> Callable[..., Any]:
        """Takes arrays of one shape, as its arguments.

        It gives them along a new axis of a result of `rank` axes.
        """

    def pad(self, x: Any, axis: int, before: int, after: int, value: Any, /) -> Any:
        """`value` before and after an axis, in fresh row-major memory."""

    def expand(self, x: Any, shape: Sequence[Any], /) -> Any:
        """Axes of size 1 repeated."""

    def full(self, shape: Sequence[Any], value: Any, like: Any, /) -> Any:
        """An array of `value`, of the dtype and device of `like`."""

    def gather(self, xs: Sequence[Any], table: Any, value: Any, /) -> Any:
        """Elements of the flattened, concatenated inputs by position; -1 takes `value`."""

    def fresh(self, x: Any, /) -> Any:
        """A row-major copy that shares nothing with `x`."""

    # -- whole layouts, eager ----------------------------------------------------------------------

    def compiled(
        self,
        function: Run,
        elsewhere: Run | None,
        arrays: Sequence[Any],
        /,
    ) -> Run | None:
        """The function as the framework compiles and remembers it; or None.

        It will be called with what is found like `arrays`. Arrays that many devices hold go to
        `elsewhere`, if there is one.
        """

    def quick(
        self,
        recipe: Callable[..., Any],
        moves: Moves,
        inputs: int,
        shapes: Sequence[tuple[int, ...]],
        /,
    ) -> Callable[..., Any]:
        """The recipe's results in one call where a shorter way is known, or `recipe`.

        `moves` take so many inputs to results of these shapes; all are row-major.
        """

    def linear(self, make: Callable[[], Any], arrays: Sequence[Any], /) -> Sequence[Any] | None:
        """The results of a bijection by one operation that is faster, or None.

        `make()`, asked only where it is worth it, gives an `xlayout.lower.linear.Linear` where
        arrays are immutable, elsewhere the text of (moves, input shapes, output shapes), row-major:
        a compiler takes that for a constant. It gives None for what is no bijection or moves
        nothing.
        """

    def worth(self, form: str, seen: Sequence[Seen], /) -> bool:
        """Whether `linear` has an operation for arrays that are told so, which is faster."""

    def relayout(self, steps: Relayout, copies: bool, size: int, /) -> Callable[[Any], Any]:
        """One slice-reshape-permute-reshape, its result fresh, as fast as the framework calls it.

        size: elements of the result.
        `copies`: no row-major input can give the result as a view.
        """

    # -- memory: None from `strides` says that there is none to speak of ---------------------------

    def strides(self, x: Any, /) -> tuple[int, ...] | None:
        """Element strides of memory that may be read and written directly, or None."""

    def view_strides(self, x: Any, /) -> tuple[int, ...] | None:
        """Element strides of memory that `view` may show, or None; autograd sees a view."""

    def view(
        self, x: Any, offset: int, strides: Sequence[int], shape: Sequence[int], /
    ) -> Any | None:
        """A strided window into the memory of `x` (in elements), or None where there is none."""

    def empty(self, shape: Sequence[int], like: Any, /) -> Any:
        """Row-major memory of the dtype and device of `like`, not yet written."""

    def assign(self, to: Any, source: Any, /) -> None:
        """Write `source` (an array of the same shape, or a number) into `to`."""

    def move(
        self,
        moves: Moves,
        arrays: Sequence[Any],
        outputs: Sequence[Any],
        /,
    ) -> bool:
        """Carry all of them out at once, and say so; or leave them to `assign`, one by one."""

    def together(self, xs: Sequence[Any], /) -> bool:
        """Whether copies of such arrays are better made many at once, as launches on a GPU are."""

    def move_many(self, items: Sequence[tuple[Moves, Sequence[Any], Sequence[Any]]], /) -> bool:
        """`move` of many (moves, arrays, outputs) at once; asked for what `together` is said of."""

    def writer(
        self,
        moves: Moves,
        sources: Sequence[tuple[int, ...]],
        targets: Sequence[tuple[int, ...]],
        /,
    ) -> Callable[[Sequence[Any], Sequence[Any] | None], Sequence[Any] | None]:
        """Takes row-major inputs and row-major results of these shapes, and writes the results.

        It makes the results, where None are given. It does nothing, and gives None, for anything
        else: what is strided, out of shape, overlaps, or must be seen by a framework.
        """

    def in_place(self, moves: Moves, x: Any, shape: tuple[int, ...], /) -> Any | None:
        """A permutation of a row-major array, made in its own memory, as an array of that shape.

        None, and nothing is written, where the memory is not its alone, or someone looks on, or the
        moves have no such form.
        """

    def release(self, x: Any, /) -> Callable[[], None]:
        """What empties an array. Raises TypeError where nothing can."""

    def refusal(self, out: Any, inputs: Sequence[Any], /) -> str | None:
        """Why `out` cannot be written into, or None."""
