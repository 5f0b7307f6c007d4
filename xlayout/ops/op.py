"""Op: a function from shapes to a Layout, made into the array function of the same name.

An op is written once, as `shape -> Layout`. The decorators here make the function that takes
arrays, with `out=`, `copy=` and others besides the op's own options. The function on shapes is its
attribute `.layout`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape, a_type, as_shape, each_shape
from xlayout.ops.dispatch import nary, unary
from xlayout.ops.engine import Engine
from xlayout.ops.options import RUN, Options, plain
from xlayout.ops.touched import Touched, axis_only, nothing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "array_function",
    "many_to_one",
    "on_shapes",
    "one_to_many",
    "one_to_one",
    "refuse_unknown_options",
    "strict",
    "three_to_one",
]

P = ParamSpec("P")
A = TypeVar("A")
D = TypeVar("D", bound="np.generic")


_DEFAULTS = {"copy": True, "donate": False, "comm": "auto"}  # the others default to None


class OneToOne(Protocol[P]):
    """One array in, one out."""

    __name__: str

    def __call__(self, x: A, /, *args: P.args, **options: P.kwargs) -> A:
        """The op on an array."""

    def layout(self, shape: Sequence[int], /, *args: P.args, **options: P.kwargs) -> Layout:
        """The op on a shape."""


class OneToMany(Protocol[P]):
    """One array in, a tuple out. numpy's types include a rank, which the results need not share."""

    __name__: str

    @overload
    def __call__(
        self, x: NDArray[D], /, *args: P.args, **options: P.kwargs
    ) -> tuple[NDArray[D], ...]: ...
    @overload
    def __call__(self, x: A, /, *args: P.args, **options: P.kwargs) -> tuple[A, ...]: ...

    def layout(self, shape: Sequence[int], /, *args: P.args, **options: P.kwargs) -> Layout:
        """The op on a shape."""


class ThreeToOne(Protocol[P]):
    """Three arrays in (a query, a key, a value), one out."""

    __name__: str

    def __call__(self, q: A, k: A, v: A, /, *args: P.args, **options: P.kwargs) -> A:
        """The op on three arrays."""

    def layout(
        self,
        q: Sequence[int],
        k: Sequence[int],
        v: Sequence[int],
        /,
        *args: P.args,
        **options: P.kwargs,
    ) -> Layout:
        """The op on three shapes."""


class ManyToOne(Protocol[P]):
    """A sequence of arrays in, one out; numpy's overload drops the rank, as in `OneToMany`."""

    __name__: str

    @overload
    def __call__(
        self, xs: Sequence[NDArray[D]], /, *args: P.args, **options: P.kwargs
    ) -> NDArray[D]: ...
    @overload
    def __call__(self, xs: Sequence[A], /, *args: P.args, **options: P.kwargs) -> A: ...

    def layout(
        self, shapes: Sequence[Sequence[int]], /, *args: P.args, **options: P.kwargs
    ) -> Layout:
        """The op on a sequence of shapes."""


def one_to_one(
    *, touched: Touched = axis_only, fill: str | None = None
) -> Callable[[Callable[Concatenate[Shape, P], Layout]], OneToOne[P]]:
    """Make the array function of `shape -> Layout`; `fill` names the option with the fill value."""

    def made(function: Callable[Concatenate[Shape, P], Layout]) -> OneToOne[P]:
        call = unary(Engine(strict(function), touched, fill))
        return cast("OneToOne[P]", array_function(call, function, on_shapes(function)))

    return made


def one_to_many(function: Callable[Concatenate[Shape, P], Layout]) -> OneToMany[P]:
    """Make the array function of a layout with several outputs."""
    call = unary(Engine(strict(function), axis_only, nested=_as_tuple))
    return cast("OneToMany[P]", array_function(call, function, on_shapes(function)))


def _as_tuple(outputs: int, _options: dict[str, Any]) -> Callable[[Any], Any] | None:
    return None if outputs > 1 else lambda x: (x,)


def three_to_one(
    function: Callable[Concatenate[Shape, Shape, Shape, P], Layout],
) -> ThreeToOne[P]:
    """Make the array function of `q, k, v -> one`."""
    names = [_array_name(shape) for shape in _positional_only(function)]
    run = nary(Engine(strict(function), axis_only, names=names))

    def call(q: Any, k: Any, v: Any, /, **options: Any) -> Any:
        return run((q, k, v), options)

    return cast("ThreeToOne[P]", array_function(call, function, on_shapes(function)))


def many_to_one(
    function: Callable[Concatenate[tuple[Shape, ...], P], Layout],
) -> ManyToOne[P]:
    """Make the array function of a layout with any number of inputs that moves whole axes."""
    run = nary(Engine(strict(function), nothing, packed=True, names="xs"))

    def call(xs: Any, /, **options: Any) -> Any:
        try:
            arrays = tuple(xs)
        except TypeError:
            raise TypeError(f"xs: {a_type(xs)}; wanted a sequence of arrays") from None
        return run(arrays, options)

    return cast("ManyToOne[P]", array_function(call, function, on_shapes(function, each_shape)))


def array_function(call: Any, function: Any, layout: Any, like: Any = None) -> Any:
    """`call` with the name of `function`, and its signature and docstring rewritten for arrays.

    If `like` is given, the signatures are those of this protocol's methods.
    """
    call.__name__ = call.__qualname__ = function.__name__
    call.__module__ = function.__module__
    # Dynamo takes functions with the same code object for one, even when it compares them.
    call.__code__ = call.__code__.replace(co_name=call.__name__, co_qualname=call.__name__)
    shapes = _positional_only(function)
    if like:
        call.__signature__ = _on_arrays(_without_self(like.__call__), {})
        layout.__signature__ = _without_self(like.layout)
        arrays = list(call.__signature__.parameters)[: len(shapes)]
    else:
        arrays = [_array_name(shape) for shape in shapes]
        on_shapes = inspect.signature(function)
        call.__signature__ = _on_arrays(on_shapes, dict(zip(shapes, arrays, strict=True)))
        layout.__signature__ = _without_options(on_shapes)
    if function.__doc__:  # python -OO removes docstrings
        call.__doc__ = _doc_for_arrays(function.__doc__, dict(zip(shapes, arrays, strict=True)))
    layout.__name__ = layout.__qualname__ = f"{call.__name__}.layout"
    layout.__module__ = function.__module__  # where pickle looks for `call.layout`
    layout.__doc__ = f"`{call.__name__}` on shapes instead of arrays: the Layout it runs."
    call.layout = layout
    return call


def _doc_for_arrays(doc: str, names: dict[str, str]) -> str:
    """A docstring with arrays for shapes, and the text of `Options` in place of `**_options`."""
    options = inspect.cleandoc(Options.__doc__ or "").partition("\n\n")[2]
    lines = []
    for line in inspect.cleandoc(doc).splitlines():
        name, colon, rest = line.strip().partition(": ")
        if colon and name == "**_options":
            lines += [f"    {option}" for option in options.splitlines()]
        elif colon and name in names and line.startswith("    "):
            lines.append(f"    {names[name]}: {rest}")
        else:
            lines.append(line)
    return "\n".join(lines)


def on_shapes(
    function: Callable[..., Layout], read: Callable[[Any], Any] = as_shape
) -> Callable[..., Layout]:
    """`function` for shapes as callers give them, each converted by `read`."""
    layout_of, count = strict(function, shapes=True), len(_positional_only(function))

    def layout(*shapes: Any, **options: Any) -> Layout:
        # Options may follow the shapes by position.
        given = map(plain, shapes[count:])
        options = {name: plain(value) for name, value in options.items()}
        return layout_of(*map(read, shapes[:count]), *given, **options)

    return layout


def strict(function: Callable[..., Layout], *, shapes: bool = False) -> Callable[..., Layout]:
    """`function` with unknown options refused, which its `**_options` would accept.

    On arrays the options of every op are valid too: errors list them, although the engine takes
    them out before it calls this. On `shapes` they are refused.
    """
    parameters = inspect.signature(function).parameters.values()
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in named]
    name = f"{function.__name__}.layout" if shapes else function.__name__
    takes = names if shapes else [*names, *RUN]

    @functools.wraps(function)
    def layout_of(*shapes: Any, **options: Any) -> Layout:
        refuse_unknown_options(name, options, takes)
        return function(*shapes, **options)

    return layout_of


def refuse_unknown_options(name: str, options: Iterable[str], takes: Sequence[str]) -> None:
    """Refuse options that are not in `takes`."""
    for option in options:
        if option not in takes:
            raise TypeError(f"{name}: no option {option!r}; it takes {', '.join(takes) or 'none'}")


def _positional_only(function: Callable[..., Layout]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]


def _array_name(shape: str) -> str:
    return {"shape": "x", "shapes": "xs"}.get(shape, shape.removesuffix("_shape"))


def _on_arrays(signature: inspect.Signature, names: dict[str, str]) -> inspect.Signature:
    """A signature with arrays for shapes, and the options of every op listed."""
    parameters = []
    for p in signature.parameters.values():
        if p.name == "_options":
            for name in RUN:
                default = _DEFAULTS.get(name)
                parameters.append(inspect.Parameter(name, p.KEYWORD_ONLY, default=default))
        elif p.name in names:
            parameters.append(p.replace(name=names[p.name], annotation=p.empty))
        else:
            parameters.append(p)
    return inspect.Signature(parameters)


def _without_self(method: Any) -> inspect.Signature:
    signature = inspect.signature(method)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _without_options(signature: inspect.Signature) -> inspect.Signature:
    kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    return signature.replace(parameters=kept)
