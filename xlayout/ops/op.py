"""Op: a function from shapes to a Layout, made into the array function of the same name.

An op is written once, as `shape -> Layout`. The decorators here add the arrays: which backend,
tracing or not, a recipe remembered per shape, `out=` and `copy=`. The layout function stays on it
as `.layout`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypedDict, TypeVar

from xlayout.algebra import Layout
from xlayout.algebra.shapes import Shape, as_shape, axis_of
from xlayout.backend import Backend
from xlayout.lower.fill import check_fill
from xlayout.lower.recipe import Recipe
from xlayout.lower.run import common_backend, refuse_while_tracing, remembered, run
from xlayout.lower.traced import plan_op, stand_in, trace
from xlayout.registry import backend_of

__all__ = [
    "Op",
    "Run",
    "axis_only",
    "everything",
    "many_to_one",
    "nothing",
    "one_to_many",
    "one_to_one",
    "three_to_one",
]

P = ParamSpec("P")
A = TypeVar("A")


class Run(TypedDict, total=False):
    """Options that every op takes, besides its own.

    out: array(s) to write the result into (torch and numpy, outside tracing).
    copy: True (default) fresh row-major memory; None a view where possible; False a view or an
        error.
    """

    out: Any
    copy: bool | None


Touched = Callable[[int, dict[str, Any]], frozenset[int]]
"""(number of axes, options) -> axes whose size the layout depends on; the others may be dynamic."""


def axis_only(ndim: int, options: dict[str, Any]) -> frozenset[int]:
    """Only `axis=` is touched."""
    return frozenset({axis_of(options.get("axis", 0), ndim)})


def everything(ndim: int, _options: dict[str, Any]) -> frozenset[int]:
    """Every axis is touched."""
    return frozenset(range(ndim))


def nothing(_ndim: int, _options: dict[str, Any]) -> frozenset[int]:
    """No axis is touched: whole axes move."""
    return frozenset()


class Op(Generic[P]):
    """One op: call it with arrays; `.layout` is the same op on shapes."""

    __name__: str

    def __init__(self, function: Callable[..., Layout], touched: Touched, fill: str | None) -> None:
        self.__name__, self.__doc__ = function.__name__.lstrip("_"), function.__doc__
        self.__module__, self.__wrapped__ = function.__module__, function
        self._layout = function
        self._touched = touched
        self._fill = fill
        self._recipes: dict[Any, Recipe] = {}
        self.__signature__ = _array_signature(function)

    def __repr__(self) -> str:
        return f"<op xlayout.{self.__name__}{self.__signature__}>"

    def _args(self, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        """The shapes as the layout function takes them."""
        return shapes

    def _call(self, arrays: Sequence[Any], options: dict[str, Any]) -> Any:
        """Arrays in, one array or a tuple of arrays out."""
        out, copy = options.pop("out", None), options.pop("copy", True)
        backend = common_backend(arrays)
        fill = options.get(self._fill, 0) if self._fill else 0
        check_fill(arrays[0].dtype, fill)
        if backend.tracing(arrays[0]):
            refuse_while_tracing(out, copy)
            return self._trace(backend, arrays, options, fill)
        layout = self._layout(*self._args(tuple(tuple(x.shape) for x in arrays)), **options)
        return run(backend, layout, arrays, out, copy, fill)

    def _call_remembered(self, x: Any, options: dict[str, Any]) -> Any:
        """`_call` on one array, with the recipe looked up by shape and options alone."""
        backend = backend_of(x)
        if backend.tracing(x) or self._fill or "out" in options or "copy" in options:
            return self._call((x,), options)
        key = (backend.name, x.shape, *options.items())
        try:
            recipe = self._recipes.get(key)
        except TypeError:  # an option is a list
            return self._call((x,), options)
        if recipe is None:
            layout = self._layout(*self._args((tuple(x.shape),)), **options)
            if len(self._recipes) >= 4096:
                self._recipes.clear()
            recipe = self._recipes[key] = remembered(layout, backend, 0)
        return recipe(x)

    def _trace(
        self, backend: Backend, arrays: Sequence[Any], options: dict[str, Any], fill: Any
    ) -> Any:
        shapes = []
        for x in arrays:
            touched = self._touched(len(x.shape), options)
            shapes.append(stand_in(backend, x.shape, touched, self.__name__))
        fixed = tuple([(k, tuple(v) if isinstance(v, list) else v) for k, v in options.items()])
        plan = backend.constant(plan_op, self._layout, self._args(tuple(shapes)), fixed)
        outputs = trace(backend, plan, arrays, fill)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


class OneToOne(Op[P]):
    """One array in, one out."""

    def layout(self, shape: Sequence[int], /, *args: P.args, **options: P.kwargs) -> Layout:
        """The op on a shape."""
        return self._layout(as_shape(shape), *args, **options)

    def __call__(self, x: A, /, *args: P.args, **options: P.kwargs) -> A:
        return self._call_remembered(x, _named(self, args, options))  # type: ignore[no-any-return]


class OneToMany(Op[P]):
    """One array in, a tuple out."""

    def layout(self, shape: Sequence[int], /, *args: P.args, **options: P.kwargs) -> Layout:
        """The op on a shape."""
        return self._layout(as_shape(shape), *args, **options)

    def __call__(self, x: A, /, *args: P.args, **options: P.kwargs) -> tuple[A, ...]:
        made = self._call_remembered(x, _named(self, args, options))
        return made if isinstance(made, tuple) else (made,)


class ThreeToOne(Op[P]):
    """Three arrays in (a query, a key, a value), one out."""

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
        return self._layout(as_shape(q), as_shape(k), as_shape(v), *args, **options)

    def __call__(self, q: A, k: A, v: A, /, *args: P.args, **options: P.kwargs) -> A:
        return self._call((q, k, v), _named(self, args, options))  # type: ignore[no-any-return]


class ManyToOne(Op[P]):
    """A sequence of arrays in, one out."""

    def _args(self, shapes: tuple[Shape, ...]) -> tuple[Any, ...]:
        return (shapes,)

    def layout(
        self, shapes: Sequence[Sequence[int]], /, *args: P.args, **options: P.kwargs
    ) -> Layout:
        """The op on a sequence of shapes."""
        return self._layout(tuple(as_shape(s) for s in shapes), *args, **options)

    def __call__(self, xs: Sequence[A], /, *args: P.args, **options: P.kwargs) -> A:
        return self._call(tuple(xs), _named(self, args, options))  # type: ignore[no-any-return]


def one_to_one(
    *, touched: Touched = axis_only, fill: str | None = None
) -> Callable[[Callable[Concatenate[Shape, P], Layout]], OneToOne[P]]:
    """Make the array function of `shape -> Layout`; `fill` names the option that fills holes."""
    return lambda function: OneToOne(function, touched, fill)


def one_to_many(
    *, touched: Touched = axis_only
) -> Callable[[Callable[Concatenate[Shape, P], Layout]], OneToMany[P]]:
    """Make the array function of a layout with several outputs."""
    return lambda function: OneToMany(function, touched, None)


def three_to_one(
    *, touched: Touched = axis_only
) -> Callable[[Callable[Concatenate[Shape, Shape, Shape, P], Layout]], ThreeToOne[P]]:
    """Make the array function of `q, k, v -> one`."""
    return lambda function: ThreeToOne(function, touched, None)


def many_to_one(
    *, touched: Touched = axis_only
) -> Callable[[Callable[Concatenate[tuple[Shape, ...], P], Layout]], ManyToOne[P]]:
    """Make the array function of a layout with any number of inputs."""
    return lambda function: ManyToOne(function, touched, None)


def _named(op: Op[Any], args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """All options by name: `permute_dims(x, (1, 0))` gives one by position."""
    if not args:
        return options
    names = [
        p.name for p in op.__signature__.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    if len(args) > len(names):
        raise TypeError(f"{op.__name__}: too many positional arguments; options are given by name")
    return {**dict(zip(names, args, strict=False)), **options}


def _array_signature(function: Callable[..., Layout]) -> inspect.Signature:
    """The signature of the array function: arrays for shapes, `out` and `copy` spelled out."""
    signature = inspect.signature(function)
    parameters = []
    for p in signature.parameters.values():
        if p.kind is p.VAR_KEYWORD:
            keyword = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter("out", keyword, default=None))
            parameters.append(inspect.Parameter("copy", keyword, default=True))
        elif p.kind is p.POSITIONAL_ONLY:
            name = p.name.removesuffix("_shape").removesuffix("_shapes")
            name = {"shape": "x", "shapes": "xs"}.get(name, name)
            parameters.append(p.replace(name=name, annotation=inspect.Parameter.empty))
        else:
            parameters.append(p)
    return inspect.Signature(parameters)
