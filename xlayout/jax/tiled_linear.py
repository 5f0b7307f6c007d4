"""TiledLinear: a linear layer of flax.nnx whose kernel is a grid of parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate, chain, pairwise
from operator import add
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.dtypes import canonicalize_dtype, promote_dtype

from xlayout.algebra import partition
from xlayout.algebra.shapes import a_type, boolean, integer
from xlayout.errors import AxisError, LayoutError, SizeError
from xlayout.ops import from_tiles, to_tiles
from xlayout.ops.grid import splits
from xlayout.registry import backend_of

__all__ = ["TiledLinear"]

Initializer = Callable[..., Any]

_KERNEL_INIT = nnx.initializers.lecun_normal()  # as in nnx.Linear
_BIAS_INIT = nnx.initializers.zeros_init()


class TiledLinear(nnx.Module):
    """A linear layer that is computed tile by tile, without its dense kernel.

    `kernels[i][o]` maps the features from `in_parts[i]` on to those from `out_parts[o]` on, with
    flax's axes (in, out). Rows of tiles are summed from the first to the last. The initial kernel
    is drawn as a whole, then cut: from the same seed it equals that of `nnx.Linear`.

    Args:
        in_features: size of the last axis of the input.
        out_features: size of the last axis of the output.
        use_bias: whether there is a bias, one for all tiles.
        in_splits: number of parts of the input, at most `in_features`.
        out_splits: number of parts of the output, at most `out_features`.
        dtype: dtype of the computation; by default what inputs and parameters promote to.
        param_dtype: dtype of the parameters.
        precision: precision of the products, as in `jax.lax.dot_general`.
        kernel_init: makes the dense kernel; metadata that it adds (`nnx.with_partitioning`) goes to
            each tile.
        bias_init: makes the bias.
        kernel_metadata: metadata of each tile, as of the kernel of an `nnx.Linear`.
        bias_metadata: metadata of the bias.
        rngs: random keys.

    Raises:
        TypeError: for a size that is not an int.
        SizeError: for sizes below 1, or more tiles than features.

    >>> import jax.numpy as jnp
    >>> from flax import nnx
    >>> tiled = TiledLinear(10, 7, in_splits=4, out_splits=2, rngs=nnx.Rngs(0))
    >>> tiled.kernels[3][0].shape
    (2, 4)
    >>> dense, x = nnx.Linear(10, 7, rngs=nnx.Rngs(0)), jnp.ones((3, 10))
    >>> jnp.allclose(tiled(x), dense(x), atol=1e-5).item()
    True
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        in_splits: int = 1,
        out_splits: int = 1,
        dtype: Any = None,
        param_dtype: Any = jnp.float32,
        precision: Any = None,
        kernel_init: Initializer = _KERNEL_INIT,
        bias_init: Initializer = _BIAS_INIT,
        kernel_metadata: Mapping[str, Any] = MappingProxyType({}),
        bias_metadata: Mapping[str, Any] = MappingProxyType({}),
        rngs: nnx.Rngs,
    ) -> None:
        self.in_features = integer(in_features, "in_features", 1)
        self.out_features = integer(out_features, "out_features", 1)
        self.in_splits = splits(in_splits, "in_splits", self.in_features)
        self.out_splits = splits(out_splits, "out_splits", self.out_features)
        self.use_bias = boolean(use_bias, "use_bias")
        self.in_parts = _edges(self.in_features, self.in_splits)
        self.out_parts = _edges(self.out_features, self.out_splits)
        self.dtype, self.param_dtype, self.precision = dtype, param_dtype, precision
        shape = (self.in_features, self.out_features)
        kernel = kernel_init(rngs.params(), shape, param_dtype)
        tiles = _cut(kernel, (self.in_splits, self.out_splits))
        self.kernels = nnx.List(
            [nnx.List([nnx.Param(tile, **kernel_metadata) for tile in row]) for row in tiles]
        )
        bias = bias_init(rngs.params(), shape[1:], param_dtype) if use_bias else None
        self.bias = nnx.data(None) if bias is None else nnx.Param(bias, **bias_metadata)

    def __call__(self, x: jax.Array | Sequence[jax.Array], /) -> jax.Array:
        """The dense layer's output, tile by tile.

        Args:
            x: an array (..., in_features), or a sequence of its parts as `in_parts` cuts it.

        Raises:
            TypeError: for something that is not an array.
            AxisError: for a scalar.
            SizeError: for a wrong number of parts or features.
        """
        kernels = [[kernel[...] for kernel in row] for row in self.kernels]
        bias = None if self.bias is None else self.bias[...]
        parts = self._parts(x)
        dtype = canonicalize_dtype(*parts, *chain(*kernels), bias, dtype=self.dtype)
        parts = [part.astype(dtype) for part in parts]
        made = []
        for column in zip(*kernels, strict=True):
            products = (
                jnp.matmul(part, kernel.astype(dtype), precision=self.precision)
                for part, kernel in zip(parts, column, strict=True)
            )
            made.append(reduce(add, products))
        y = made[0] if len(made) == 1 else jnp.concatenate(made, axis=-1)
        if bias is None:
            return y
        # With all axes, as in nnx.Linear: jax_numpy_rank_promotion may forbid adding them.
        return y + bias.astype(dtype).reshape((1,) * (y.ndim - 1) + (-1,))

    def _parts(self, x: Any) -> Sequence[Any]:
        """The input of each row of kernels."""
        widths = [b - a for a, b in pairwise(self.in_parts)]
        if isinstance(x, (list, tuple)):
            if len(x) != self.in_splits:
                raise SizeError(f"x: {len(x)} parts; wanted in_splits = {self.in_splits}")
            for i, (part, width) in enumerate(zip(x, widths, strict=True)):
                _check_width(part, f"x[{i}]", f"kernels[{i}] takes {width}", width)
            return x
        wanted = f"wanted in_features = {self.in_features}"
        _check_width(x, "x", wanted, self.in_features)
        return [x[..., a:b] for a, b in pairwise(self.in_parts)] if self.in_splits > 1 else [x]

    @classmethod
    def from_linear(
        cls, linear: nnx.Linear, /, *, in_splits: int = 1, out_splits: int = 1
    ) -> TiledLinear:
        """A tiled layer with the parameters of a dense one, in fresh memory.

        Raises:
            TypeError: for something other than an `nnx.Linear`.
            LayoutError: for one with a custom function, such as `dot_general`.

        >>> from flax import nnx
        >>> dense = nnx.Linear(6, 4, rngs=nnx.Rngs(0))
        >>> TiledLinear.from_linear(dense, in_splits=2).to_linear().kernel.shape
        (6, 4)
        """
        if type(linear) is not nnx.Linear:
            raise TypeError(f"linear: {a_type(linear)}; wanted a flax.nnx.Linear")
        usual = {
            "dot_general": jax.lax.dot_general,
            "promote_dtype": promote_dtype,
            "preferred_element_type": None,
        }
        for name, value in usual.items():
            if getattr(linear, name) is not value:
                raise LayoutError(f"linear: it has a {name} of its own, which tiles do not call")
        alike = _alike(linear, lambda *_: linear.kernel[...], linear.kernel)
        return cls(in_splits=in_splits, out_splits=out_splits, **alike)

    def to_linear(self) -> nnx.Linear:
        """The dense layer of the same parameters: undoes `from_linear`."""
        kernels = [[kernel[...] for kernel in row] for row in self.kernels]
        return nnx.Linear(**_alike(self, lambda *_: from_tiles(kernels), self.kernels[0][0]))


def _alike(layer: Any, kernel_init: Initializer, like: Any) -> dict[str, Any]:
    """Arguments for a layer of the same parameters, with the kernel's metadata from `like`."""
    bias = layer.bias
    return {
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "use_bias": bias is not None,
        "dtype": layer.dtype,
        "param_dtype": layer.param_dtype,
        "precision": layer.precision,
        "kernel_init": kernel_init,
        "bias_init": lambda *_: jnp.copy(bias[...]),
        "kernel_metadata": like.get_metadata(),
        "bias_metadata": {} if bias is None else bias.get_metadata(),
        "rngs": nnx.Rngs(0),
    }


def _cut(kernel: Any, grid: tuple[int, int]) -> Sequence[Sequence[Any]]:
    """The tiles of a kernel, each with the metadata of its initializer."""
    if not isinstance(kernel, nnx.VariableMetadata):
        return to_tiles(kernel, grid=grid)
    tiles = to_tiles(kernel.raw_value, grid=grid)
    return [[replace(kernel, raw_value=tile) for tile in row] for row in tiles]


def _edges(features: int, number: int) -> tuple[int, ...]:
    return tuple(accumulate(partition(features, number), initial=0))


def _check_width(x: Any, name: str, wanted: str, width: int) -> None:
    if backend_of(x, name).name not in ("jax", "numpy"):
        raise TypeError(f"{name}: {a_type(x)}; wanted a jax.Array")
    if not x.ndim:
        raise AxisError(f"{name}: no axes; wanted (..., {width})")
    if x.shape[-1] != width:
        raise SizeError(f"{name}: last axis {x.shape[-1]}; {wanted}")
