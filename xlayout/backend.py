"""Backend: the functions a framework must provide for layouts to run on its arrays.

A backend is a *module* that satisfies this protocol. It imports its framework, and nothing from
xlayout. Strides, offsets and sizes count elements, not bytes. A backend without a compiler, kernels
or several devices returns None, False or its argument where a docstring allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["Backend", "CallKey", "ConstantCall", "Moves", "Relayout", "Run", "Runs", "TracedArray"]

Run = Callable[..., Any]
"""A function from arrays to one array or a tuple of them."""

Runs = dict[Any, Run]
"""A cache of functions; `find` and `keep` of the backend choose its keys."""

Moves = tuple[tuple[int, int, tuple[int, int, tuple[tuple[int, int, int], ...]]], ...]
"""Strided copies: (input number, output number, (in offset, out offset, loops)) of each, where
`loops` are (n, in stride, out stride)."""

Relayout = tuple[
    tuple[slice | int, ...] | None,
    tuple[int, ...] | None,
    tuple[int, ...] | None,
    tuple[int, ...] | None,
]
"""(index of a slice, shape to split into, axes to permute, shape to merge into), in this order; a
step that does nothing is None. Without axes to permute nothing is merged."""


CallKey = tuple[Any, tuple[Any, ...] | None, dict[str, Any]]
"""The key of a cached call: an array, positional options and keyword options; or a tuple of arrays,
None and keyword options."""


TracedArray = tuple[tuple[int, ...], Any, Any, bool]
"""(shape, dtype, device, whether it is row-major) of an array under a compiler's trace."""

ConstantCall = tuple[str, tuple[TracedArray, ...], tuple[Any, ...], tuple[tuple[str, Any], ...]]
"""(backend name, arrays, positional options, keyword options) of a call, as constants."""


class Backend(Protocol):
    """What `xlayout_numpy`, `xlayout_torch`, `xlayout_jax` and any other backend implement."""

    name: str
    immutable: bool
    """Whether arrays are immutable, so that a result may always share memory with an input."""

    # -- properties of arrays, and caches of calls ------------------------------------------------

    def kind(self, x: Any, /) -> tuple[Any, Any]:
        """(dtype, device): arrays of one call must agree on both."""

    def find(
        self, runs: Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], /
    ) -> Run | None:
        """The function that `keep` put into `runs` for such a call, or None.

        If `args` is None, `x` is a tuple of arrays; arrays that differ in type or dtype find
        nothing. No tracer that reads the Python code may get here: the cache changes with every
        new call, and it would have to recompile each time. (Dynamo is kept off by `look_up`.)
        """

    def keep(
        self, runs: Runs, x: Any, args: tuple[Any, ...] | None, options: dict[str, Any], run: Run, /
    ) -> None:
        """Put `run` into `runs` for all calls like this one; or do nothing, if it has no key."""

    def as_constants(
        self, arrays: Sequence[Any], args: Sequence[Any], options: dict[str, Any], /
    ) -> ConstantCall | None:
        """A call as constants, while a compiler traces this Python code.

        None if no compiler does, if a shape or an option is dynamic, or for subclasses of the
        framework's array, which may override its operations.
        """

    def tracing(self, *xs: Any) -> bool:
        """Whether one of these arrays is being traced, so that it has neither values nor memory."""

    def is_sharded(self, x: Any, /) -> bool | None:
        """Whether the array is sharded over several devices; None for a tracer that cannot tell."""

    def symbolic(self, n: Any, /) -> bool:
        """Whether a dimension of a traced array is dynamic and may stay so."""

    def concrete(self, n: Any, /) -> int:
        """A dimension as an int, specialising the trace to it; TypeError if that is impossible."""

    # -- operations on values, eager or traced -----------------------------------------------------

    def reshape(self, x: Any, shape: Sequence[Any], /) -> Any:
        """The same elements in row-major order with other axes."""

    def permute(self, x: Any, axes: Sequence[int], /) -> Any:
        """The axes in another order."""

    def slice(self, x: Any, axis: int, start: Any, stop: Any, step: int, /) -> Any:
        """`start:stop:step` of one axis."""

    def concatenate(self, xs: Sequence[Any], axis: int, /) -> Any:
        """Arrays one after the other along an axis."""

    def stack(self, axis: int, rank: int, /) -> Callable[..., Any]:
        """A function that stacks its arguments, arrays of one shape, along a new axis.

        `rank` is the number of axes of its result.
        """

    def pad(self, x: Any, axis: int, before: int, after: int, value: Any, /) -> Any:
        """`value` before and after an axis, in fresh row-major memory."""

    def expand(self, x: Any, shape: Sequence[Any], /) -> Any:
        """Axes of size 1 broadcast to `shape`."""

    def full(self, shape: Sequence[Any], value: Any, like: Any, /) -> Any:
        """An array of `value`, of the dtype and device of `like`."""

    def gather(self, xs: Sequence[Any], table: Any, value: Any, /) -> Any:
        """Elements of the flattened, concatenated inputs by position; -1 takes `value`.

        The inputs have elements: a program fills what has none to read.
        """

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
        """`function` compiled by the framework, as `jax.jit` does; None where eager is as fast.

        It will be called with all arrays that `find` takes for `arrays`. The sharded ones among
        them must go to `elsewhere`, unless that is None.
        """

    def quick(
        self,
        recipe: Callable[..., Any],
        moves: Moves | None,
        inputs: int,
        shapes: Sequence[tuple[int, ...]],
        /,
    ) -> Callable[..., Any]:
        """A faster function with the same results as `recipe`, or `recipe` itself.

        `moves` are the copies from that number of inputs to results of these shapes, all row-major.
        What they do not write is zero. If they are None, copies alone do not make the results.
        """

    def linear(self, make: Callable[[], Any], arrays: Sequence[Any], /) -> Sequence[Any] | None:
        """The results of a layout by a single operation of the backend, or None.

        None if there is no such operation, or plain operations are faster. `make()` describes the
        layout, and should be called only if the operation may be used. Where arrays are immutable
        it returns an `xlayout.lower.linear.Linear`; elsewhere the text of `form_of` there, which a
        compiler can treat as a constant. None for a layout that is not linear, or moves nothing.
        """

    def linear_pays(self, form: str, seen: Sequence[TracedArray], /) -> bool:
        """Whether `linear` would use its operation, by the text of the layout and the arrays."""

    def relayout(self, steps: Relayout, copies: bool, size: int, /) -> Callable[[Any], Any]:
        """The fastest function that does these steps and returns fresh memory.

        `copies` says that for a row-major input the steps always copy, so that no further copy is
        needed. `size` is the number of elements of the result.
        """

    # -- memory: `strides` returns None for arrays whose memory cannot be accessed -----------------

    def strides(self, x: Any, /) -> tuple[int, ...] | None:
        """Strides of memory that may be read and written without the framework, or None."""

    def view_strides(self, x: Any, /) -> tuple[int, ...] | None:
        """Strides of memory that `view` can show, or None; autograd may track such an array."""

    def view(
        self, x: Any, offset: int, strides: Sequence[int], shape: Sequence[int], /
    ) -> Any | None:
        """A strided view of the memory of `x`, or None if the framework has no such view."""

    def empty(self, shape: Sequence[int], like: Any, /) -> Any:
        """An uninitialised row-major array of the dtype and device of `like`."""

    def assign(self, to: Any, source: Any, /) -> None:
        """Write `source` (an array of the same shape, or a number) into `to`."""

    def move(
        self,
        moves: Moves,
        arrays: Sequence[Any],
        outputs: Sequence[Any],
        /,
    ) -> bool:
        """Do all copies and return True; or return False, and `assign` will do them one by one."""

    def concatenates_well(self, xs: Sequence[Any], axis: int, /) -> bool:
        """Whether `concatenate` along an axis is as fast as `move` would be, as on a GPU."""

    def batch_strides(self, xs: Sequence[Any], /) -> tuple[tuple[int, ...], ...] | None:
        """The strides of arrays whose copies should be batched, as on a GPU; None of all others.

        They agree in dtype and device, and nobody has to see the copies.
        """

    def move_many(self, items: Sequence[tuple[Moves, Sequence[Any], Sequence[Any]]], /) -> bool:
        """`move` of several (moves, arrays that have `batch_strides`, outputs), as a batch."""

    def writer(
        self,
        moves: Moves,
        sources: Sequence[tuple[int, ...]],
        targets: Sequence[tuple[int, ...]],
        /,
    ) -> Callable[[Sequence[Any], Sequence[Any] | None], Sequence[Any] | None]:
        """A function (inputs, outputs) that does the copies and returns the outputs.

        `sources` and `targets` are the shapes of inputs and outputs, all row-major. In `moves`, one
        more input than there are is a row of `xlayout_native.strided.ZEROS`. If `outputs` is None
        it allocates them. It writes nothing and returns None for arrays that are not
        row-major, of other shapes or overlapping, and for those that need the framework, as under
        autograd.
        """

    def in_place(self, moves: Moves, x: Any, shape: tuple[int, ...], /) -> Any | None:
        """Permute the elements of a row-major array within its memory; it, in another shape.

        None, with nothing written, if another array shares the memory, if autograd or a transform
        tracks the array, or if the moves are no permutation that can be done in place.
        """

    def release(self, x: Any, /) -> Callable[[], None]:
        """A function that frees the memory of an array; TypeError if that is impossible."""

    def extent(self, x: Any, /) -> tuple[int, int, tuple[tuple[int, int], ...]] | None:
        """Where an array lies, or None if it is out of sight: `refusal` is asked of what is near.

        (lowest address, bytes of an element, ((stride in bytes, count), ...) of its axes, all
        forward and the shortest first).
        """

    def refusal(self, out: Any, inputs: Sequence[Any], /) -> str | None:
        """Why `out` cannot be written into (say, it overlaps an input), or None if it can."""
