"""The verbs of a backend, in JAX.

Its modules, from the bottom up:

    tracers, dtypes            what tracers tell of the arrays that they stand for; casts, fillers
    primitive, programs        a layout as one operation of JAX; the programs that it is lowered in
    native                     the operation by the copy kernel, where that pays
    launches, trial, cuda      by Triton's kernel on a GPU: its calls, trials of it, when it pays
    lowering                   one of these, or plain ops
    refusals                   errors about arrays without memory, and about JAX's own errors
    fresh                      copies and checked casts, outside of programs on a CPU
    lent, exchange, pytree     memory lent for reading; to and from another framework; containers
    placement, distributed     how arrays lie on devices; those to and from another framework
    transposes                 a function whose transpose is given, as one operation of JAX
    mixed                      meshes with axes of both kinds, automatic and explicit
    collective, gathering      exchanges between devices; parameters cast and gathered
    targets, wire              compilers for absent accelerators; bytes that a program moves
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.backend import backends
from jax.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

from xlayout_jax import cuda as cuda
from xlayout_jax import exchange as exchange
from xlayout_jax import lowering as lowering
from xlayout_jax.dtypes import filler, is_key, joined
from xlayout_jax.native import linear as linear
from xlayout_jax.placement import is_settled, refuse_unreduced
from xlayout_jax.primitive import alone
from xlayout_jax.refusals import no_array, refuse_deleted, worded
from xlayout_jax.tracers import is_batched, is_explicit, is_staged, is_tracer, primal
from xlayout_native.keys import find_by_place, keep_by_place
from xlayout_native.strided import dense_strides

name = "jax"
immutable = True


def kind(x: Any, /) -> tuple[Any, Any]:
    if not isinstance(x, jax.Array):
        raise no_array(x)
    refuse_deleted(primal(x))
    refuse_unreduced(jax.typeof(x).sharding, "x: ")
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
    # If no platform has two devices, nothing can be sharded, and no call needs to check.
    single = all(client.device_count() == 1 for client in backends().values())
    keep_by_place(runs, x, args, options, run, single)


def as_constants(_arrays: Sequence[Any], _args: Sequence[Any], _options: dict[str, Any], /) -> None:
    return None


def tracing(*xs: Any) -> bool:
    for x in xs:  # noqa: SIM110 -- a generator costs as much as the call it would decide
        if is_tracer(x):
            return True
    return False


def is_sharded(x: Any, /) -> bool | None:
    x = primal(x)
    if not is_tracer(x):
        sharding = getattr(x, "sharding", None)  # a numpy array that is differentiated has none
        if not isinstance(sharding, NamedSharding):
            return None if sharding is not None and len(sharding.device_set) > 1 else False
        if not _needs_plan(sharding):
            return False
        return True if is_settled(sharding) else None
    sharding = jax.typeof(x).sharding
    if is_batched(x) and not any(sharding.spec.partitions):
        return None  # one of a batch, whole: only the batch may be cut, which ops leave alone
    known = is_explicit(sharding.mesh) and is_settled(sharding)
    return _needs_plan(sharding) if known else None


def _needs_plan(sharding: NamedSharding) -> bool:
    # On explicit axes JAX asks about a step that takes a cut axis apart, on one device too.
    mesh, spec = sharding.mesh, cast(Any, sharding.spec)
    return mesh.size > 1 or bool(mesh.explicit_axes and any(spec.partitions))


def symbolic(n: Any, /) -> bool:
    return type(n) is not int


def concrete(n: Any, /) -> int:
    if type(n) is int:
        return n
    raise TypeError(f"dimension {n} is symbolic")


@worded
def reshape(x: Any, shape: Sequence[Any], /) -> Any:
    return jnp.reshape(x, tuple(shape))


def permute(x: Any, axes: Sequence[int], /) -> Any:
    return lax.transpose(x, tuple(axes))


@worded
def slice(x: Any, axis: int, start: Any, stop: Any, step: int, /) -> Any:  # noqa: A001 -- the verb's name
    return lax.slice_in_dim(x, start, stop, step, axis)


@worded
def concatenate(xs: Sequence[Any], axis: int, /) -> Any:
    return joined(xs, axis)


def stack(axis: int, _rank: int, /) -> Callable[..., Any]:
    return worded(lambda *xs: jnp.stack(xs, axis))


@worded
def pad(x: Any, axis: int, before: int, after: int, value: Any, /) -> Any:
    widths = [(0, 0, 0)] * x.ndim
    widths[axis] = (before, after, 0)
    return lax.pad(x, filler(value, x), widths)


@worded
def expand(x: Any, shape: Sequence[Any], /) -> Any:
    return jnp.broadcast_to(x, tuple(shape))


def full(shape: Sequence[Any], value: Any, like: Any, /) -> Any:
    return jnp.broadcast_to(filler(value, like), tuple(shape))


@worded
def gather(xs: Sequence[Any], table: Any, value: Any, /) -> Any:
    flat = joined([jnp.ravel(x) for x in xs], 0)
    return jnp.where(table < 0, filler(value, flat), flat[np.maximum(table, 0)])


def fresh(x: Any, /) -> Any:
    return jnp.copy(x)


def compiled(
    function: Callable[..., Any],
    elsewhere: Callable[..., Any] | None,
    arrays: Sequence[Any],
    /,
) -> Callable[..., Any] | None:
    # Op by op, JAX on CPU writes a full copy for every reshape and transpose.
    whole = alone(function)
    if elsewhere is None:
        return jax.jit(whole)

    def chosen(run: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *xs: elsewhere(*xs) if any(map(is_sharded, xs)) else run(*xs)

    jitted = jax.jit(chosen(whole))  # inside too: the key does not tell explicit axes of one device
    single = all(type(x.sharding) is SingleDeviceSharding for x in arrays)
    return jitted if single else chosen(jitted)


def quick(
    recipe: Callable[..., Any], _moves: Any, _inputs: int, _shapes: Sequence[tuple[int, ...]], /
) -> Callable[..., Any]:
    return recipe


def linear_pays(_form: str, _seen: Sequence[Any], /) -> bool:
    return False


def relayout(
    steps: tuple[Any, Any, Any, Any], _copies: bool, _size: int, /
) -> Callable[[Any], Any]:
    window, split, axes, merged = steps

    @worded
    def run(x: Any) -> Any:
        y = x if window is None else x[window]
        y = y if split is None else jnp.reshape(y, split)
        y = y if axes is None else lax.transpose(y, axes)
        y = y if merged is None else jnp.reshape(y, merged)
        # With jit switched off (jax.disable_jit), this would be the argument itself.
        return jnp.copy(y) if axes is None and window is None else y

    return run


def strides(x: Any, /) -> tuple[int, ...] | None:
    return None if is_tracer(x) else dense_strides(x.shape)


def view_strides(x: Any, /) -> tuple[int, ...] | None:
    return None if is_staged() else strides(x)


def view(x: Any, offset: int, strides: Sequence[int], shape: Sequence[int], /) -> Any | None:
    # JAX has no strided views, but a pure regrouping of a row-major buffer can share it.
    if tuple(shape) == x.shape:
        return x if tuple(strides) == dense_strides(x.shape) else None
    if offset or x.size != int(np.prod(shape)) or tuple(strides) != dense_strides(shape):
        return None
    if len(x.sharding.device_set) > 1 or next(iter(x.devices())).platform != "cpu":
        return None
    if is_key(x.dtype) or x.weak_type:  # numpy has neither such elements nor such a type
        return None
    regrouped = _laid_beside(x, np.asarray(x).reshape(shape))
    return regrouped if _pointer(regrouped) == _pointer(x) else None


def _laid_beside(x: Any, values: np.ndarray) -> Any:
    """`values` on the device of `x`, and committed to it only if `x` is."""
    sharding = x.sharding
    if isinstance(sharding, NamedSharding):  # of one device; its spec was for the axes of `x`
        sharding = NamedSharding(sharding.mesh, PartitionSpec(), memory_kind=sharding.memory_kind)  # type: ignore[no-untyped-call]
    if x.committed:
        return jax.device_put(values, sharding)
    with jax.default_device(x.device):
        return jax.device_put(values)


def _pointer(x: Any) -> int:
    return int(x.unsafe_buffer_pointer())


def empty(shape: Sequence[int], like: Any, /) -> Any:
    return jnp.empty(shape, like.dtype)


def assign(to: Any, source: Any, /) -> None:
    raise TypeError("jax arrays cannot be written into")


def move(_moves: Any, _arrays: Sequence[Any], _outputs: Sequence[Any], /) -> bool:
    return False


def concatenates_well(_xs: Sequence[Any], _axis: int, /) -> bool:
    return False


def batch_strides(_xs: Sequence[Any], /) -> None:
    return None


def move_many(_items: Sequence[Any], /) -> bool:
    return False


def writer(
    _moves: Any, _sources: Sequence[tuple[int, ...]], _targets: Sequence[tuple[int, ...]], /
) -> Callable[[Sequence[Any], Sequence[Any] | None], None]:
    return lambda _arrays, _outputs: None


def in_place(_moves: Any, _x: Any, _shape: tuple[int, ...], /) -> None:
    return None


def release(x: Any, /) -> Callable[[], None]:
    if is_staged():
        raise TypeError("donate: cannot be promised while tracing; donate to the compiled function")
    delete: Callable[[], None] = x.delete
    return delete


def extent(_x: Any, /) -> None:
    return None


def refusal(_out: Any, _inputs: Sequence[Any], /) -> str | None:
    return "results of jax arrays are jax arrays, which are immutable; leave it out"
