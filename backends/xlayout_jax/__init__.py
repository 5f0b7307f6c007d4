"""The verbs of a backend, in JAX.

Its modules, from the bottom up:

    tracers                    what tracers tell of the arrays that they stand for
    primitive, native          a layout as one operation of JAX; by the copy kernel, where that pays
    exchange, pytree           an array's memory, to and from another framework; containers
    placement, distributed     how arrays lie on devices; those to and from another framework
    collective, gathering      exchanges between devices; parameters cast and gathered
    targets, wire              accelerators that are not there; bytes that a program moves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.backend import backends
from jax.sharding import NamedSharding, SingleDeviceSharding

from xlayout_jax import exchange as exchange
from xlayout_jax import native
from xlayout_jax.tracers import is_batched, is_explicit, is_tracer, primal
from xlayout_native.keys import find_by_place, keep_by_place
from xlayout_native.strided import dense_strides

name = "jax"
immutable = True


def kind(x: Any, /) -> tuple[Any, Any]:
    # JAX moves uncommitted arrays by itself and complains clearly about committed ones.
    return x.dtype, "any"


find = find_by_place  # jax.jit tells shapes and dtypes apart itself


def keep(
    runs: dict[Any, Callable[..., Any]],
    x: Any,
    args: tuple[Any, ...] | None,
    options: dict[str, Any],
    run: Callable[..., Any],
    /,
) -> None:
    # Where no platform has two devices nothing can be spread, and no call needs to look.
    alone = all(client.device_count() == 1 for client in backends().values())
    keep_by_place(runs, x, args, options, run, alone)


def tracing(*xs: Any) -> bool:
    for x in xs:  # noqa: SIM110 -- a generator costs as much as the call it would decide
        if is_tracer(x):
            return True
    return False


def spread(x: Any, /) -> bool | None:
    x = primal(x)
    if not is_tracer(x):
        sharding = getattr(x, "sharding", None)  # a numpy array that is differentiated has none
        return isinstance(sharding, NamedSharding) and sharding.mesh.size > 1
    mesh = jax.typeof(x).sharding.mesh
    if is_batched(x) and not any(jax.typeof(x).sharding.spec):
        return None  # one of a batch, whole: only the batch may be cut, which ops leave alone
    return True if is_explicit(mesh) and mesh.size > 1 else None


def symbolic(n: Any, /) -> bool:
    return type(n) is not int


def concrete(n: Any, /) -> int:
    if type(n) is int:
        return n
    raise TypeError(f"dimension {n} is symbolic")


def reshape(x: Any, shape: Sequence[Any], /) -> Any:
    return jnp.reshape(x, tuple(shape))


def permute(x: Any, axes: Sequence[int], /) -> Any:
    return lax.transpose(x, tuple(axes))


def slice(x: Any, axis: int, start: Any, stop: Any, step: int, /) -> Any:  # noqa: A001 -- the verb's name
    return lax.slice_in_dim(x, start, stop, step, axis)


def concatenate(xs: Sequence[Any], axis: int, /) -> Any:
    return lax.concatenate(tuple(xs), axis)


def stack(axis: int, _rank: int, /) -> Callable[[Sequence[Any]], Any]:
    return lambda xs: jnp.stack(xs, axis)


def pad(x: Any, axis: int, before: int, after: int, value: Any, /) -> Any:
    widths = [(0, 0, 0)] * x.ndim
    widths[axis] = (before, after, 0)
    return lax.pad(x, _filler(value, x.dtype), widths)


def _filler(value: Any, dtype: Any) -> Any:
    with jax.enable_x64(True):  # an array that came from elsewhere may have 64 bits all the same
        return jnp.asarray(value, dtype)


def expand(x: Any, shape: Sequence[Any], /) -> Any:
    return jnp.broadcast_to(x, tuple(shape))


def full(shape: Sequence[Any], value: Any, like: Any, /) -> Any:
    return jnp.broadcast_to(_filler(value, like.dtype), tuple(shape))


def gather(xs: Sequence[Any], table: Any, value: Any, /) -> Any:
    flat = jnp.concatenate([jnp.ravel(x) for x in xs])
    filler = _filler(value, flat.dtype)
    if not flat.size:
        return jnp.broadcast_to(filler, table.shape)
    return jnp.where(table < 0, filler, flat[np.maximum(table, 0)])


def fresh(x: Any, /) -> Any:
    return jnp.copy(x)


def compiled(
    function: Callable[..., Any],
    elsewhere: Callable[..., Any] | None,
    arrays: Sequence[Any],
    /,
) -> Callable[..., Any] | None:
    # Op by op, JAX on CPU writes a full copy for every reshape and transpose.
    jitted = jax.jit(function)
    if elsewhere is None or all(type(x.sharding) is SingleDeviceSharding for x in arrays):
        return jitted
    return lambda *xs: elsewhere(*xs) if any(map(spread, xs)) else jitted(*xs)


def quick(
    recipe: Callable[..., Any], _moves: Any, _inputs: int, _shapes: Sequence[tuple[int, ...]], /
) -> Callable[..., Any]:
    return recipe


def linear(make: Callable[[], Any], arrays: Sequence[Any], /) -> Sequence[Any] | None:
    return native.linear(make, arrays)


def relayout(
    steps: tuple[Any, Any, Any, Any], _copies: bool, _size: int, /
) -> Callable[[Any], Any]:
    window, split, axes, merged = steps

    def run(x: Any) -> Any:
        y = x if window is None else x[window]
        y = y if split is None else jnp.reshape(y, split)
        y = y if axes is None else lax.transpose(y, axes)
        y = y if merged is None else jnp.reshape(y, merged)
        # jit hands an untouched argument back as its result: the same buffer.
        return jnp.copy(y) if axes is None and window is None else y

    return run


def strides(x: Any, /) -> tuple[int, ...] | None:
    return None if is_tracer(x) else dense_strides(x.shape)


def view_strides(x: Any, /) -> tuple[int, ...] | None:
    return None if _staged() else strides(x)


def _staged() -> bool:
    """Whether a compiler records: to it constants have no memory, and are nobody's to give away."""
    return is_tracer(lax.full((), 0, np.int32))


def view(x: Any, offset: int, strides: Sequence[int], shape: Sequence[int], /) -> Any | None:
    # JAX has no strided views, but a pure regrouping of a row-major buffer can share it.
    if tuple(shape) == x.shape:
        return x if tuple(strides) == dense_strides(x.shape) else None
    if offset or x.size != int(np.prod(shape)) or tuple(strides) != dense_strides(shape):
        return None
    if len(x.sharding.device_set) > 1 or next(iter(x.devices())).platform != "cpu":
        return None
    regrouped = jax.device_put(np.asarray(x).reshape(shape), x.sharding)
    return regrouped if _pointer(regrouped) == _pointer(x) else None


def _pointer(x: Any) -> int:
    return int(x.unsafe_buffer_pointer())


def empty(shape: Sequence[int], like: Any, /) -> Any:
    return jnp.empty(shape, like.dtype)


def assign(to: Any, source: Any, /) -> None:
    raise TypeError("jax arrays cannot be written into")


def move(_moves: Any, _arrays: Sequence[Any], _outputs: Sequence[Any], /) -> bool:
    return False


def together(_xs: Sequence[Any], /) -> bool:
    return False


def move_many(_items: Sequence[Any], /) -> bool:
    return False


def writer(
    _moves: Any, _inputs: int, _shapes: Sequence[tuple[int, ...]], /
) -> Callable[[Sequence[Any], Sequence[Any] | None], None]:
    return lambda _arrays, _outputs: None


def in_place(_moves: Any, _x: Any, _shape: tuple[int, ...], /) -> None:
    return None


def release(x: Any, /) -> Callable[[], None]:
    if _staged():
        raise TypeError("donate: cannot be promised while tracing; donate to the compiled function")
    delete: Callable[[], None] = x.delete
    return delete


def refusal(_out: Any, _inputs: Sequence[Any], /) -> str | None:
    return "jax arrays are immutable"
