"""to_torch, to_jax, to_numpy: an array, or every array of a container, in another framework."""

from __future__ import annotations

from typing import Any

from xlayout.algebra.shapes import a_type, boolean, one_of
from xlayout.bridge.offer import Exchange, Offer, exchange_named, exchange_of
from xlayout.bridge.tree import mapped
from xlayout.errors import LayoutError
from xlayout.lower.run import check_copy

__all__ = ["to_jax", "to_numpy", "to_torch"]


def to_torch(x: Any, /, *, copy: bool | None = None, donate: bool = False) -> Any:
    """The same values, in the same memory where that is possible, as torch.Tensor.

    Args:
        x: A jax.Array, numpy.ndarray or torch.Tensor, or a container of them: dict, list, tuple,
            namedtuple or a pytree that is registered with JAX, nested; None stays None. Containers
            keep their types, but any other mapping comes back as a dict. An array that occurs
            twice is converted once.
        copy: None shares where it can and copies where it cannot; False shares or raises; True
            makes fresh memory. Writing into a shared tensor changes the array it came from.
        donate: Give up the source: JAX's computations are waited for, and the jax.Array is deleted,
            so that torch's writes are safe.

    Raises:
        TypeError: a tracer, a random key, a dtype that torch does not have, a leaf that is not an
            array.
        ValueError: an array that was deleted, or that is sharded; a container inside itself.
        LayoutError: copy=True together with donate=True.
        BufferError: copy=False and the memory cannot be shared.

    >>> import numpy as np
    >>> to_torch({"w": np.ones(2, np.float32)})
    {'w': tensor([1., 1.])}
    """
    return _exchanged(x, exchange_named("torch"), copy=copy, donate=donate)


def to_jax(
    x: Any,
    /,
    *,
    copy: bool | None = None,
    detach: bool = False,
    x64: str = "error",
    layout: str = "row_major",
    donate: bool = False,
) -> Any:
    """The same values, in the same memory where that is possible, as jax.Array.

    Args:
        x: A torch.Tensor, numpy.ndarray or jax.Array, or a container of them (see `to_torch`).
        copy: None shares where it can and copies where it cannot; False shares or raises; True
            makes fresh memory. Writing into a shared source changes the array, even one in use.
        detach: Let a tensor that requires grad cross without its graph.
        x64: What to do with 64-bit dtypes while jax_enable_x64 is off. "error" raises; "narrow"
            casts to 32 bits and checks the range of every value; "keep" leaves them as they are,
            and the first op on them narrows.
        layout: "row_major" copies an array that is stored in another order; "any" shares a
            transposed array as it is, which may cost extra in every jit call on it.
        donate: Give up the source: the tensor is emptied, so that nothing writes into JAX's memory.

    Raises:
        TypeError: a tensor that requires grad, has no plain memory, or has a dtype that JAX does
            not have; a leaf that is not an array.
        ValueError: a jax.Array that was deleted; a container inside itself.
        LayoutError: copy=True together with donate=True; another word for `x64` or `layout`.
        BufferError: copy=False and the memory cannot be shared.
        OverflowError: x64="narrow" and a value that does not fit.

    >>> import numpy as np
    >>> to_jax([np.ones(2, np.float32)])
    [Array([1., 1.], dtype=float32)]
    """
    one_of("x64", x64, ("error", "narrow", "keep"))
    one_of("layout", layout, ("row_major", "any"))
    jax = exchange_named("jax")
    return _exchanged(x, jax, copy=copy, detach=detach, donate=donate, x64=x64, layout=layout)


def to_numpy(x: Any, /, *, copy: bool | None = None) -> Any:
    """The same values, in the same memory where that is possible, as numpy.ndarray.

    Args:
        x: A torch.Tensor, jax.Array or numpy.ndarray, or a container of them (see `to_torch`).
        copy: None shares where it can and copies where it cannot (from an accelerator, say); False
            shares or raises; True makes fresh memory. A view of a jax.Array is read-only; before
            numpy 2.3, that of a tensor is too.

    Raises:
        TypeError: a tensor that requires grad, a tracer, a dtype that numpy does not have.
        ValueError: an array that was deleted, or that is sharded; a container inside itself.
        BufferError: copy=False and the memory cannot be shared.

    >>> import numpy as np
    >>> to_numpy((np.ones(2), None))
    (array([1., 1.]), None)
    """
    return _exchanged(x, exchange_named("numpy"), copy=copy)


def _exchanged(
    tree: Any,
    target: Exchange,
    *,
    copy: bool | None,
    detach: bool = False,
    donate: bool = False,
    **options: Any,
) -> Any:
    """Offer and adopt every array, then release all: an error leaves every source intact."""
    check_copy(copy)
    boolean(detach, "detach")
    boolean(donate, "donate")
    if copy and donate:
        raise LayoutError(
            "copy: True with donate=True; memory is handed over or copied, choose one"
        )
    given: list[Offer] = []
    givers: set[Exchange] = set()

    def cross(x: Any) -> Any:
        source = exchange_of(x)
        if source is target:
            return target.keep(x, copy=copy, **options)
        offered = source.offer(x, detach=detach)
        if donate:
            if not offered.donatable:
                raise TypeError(f"nothing can empty {a_type(x)}; do not donate it")
            given.append(offered)
            givers.add(source)
        return target.adopt(offered, copy=copy, **options)

    result = mapped(cross, tree)
    for source in givers:
        source.settle()
    for offered in given:
        offered.release()
    return result
