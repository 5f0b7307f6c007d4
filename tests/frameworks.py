"""One small interface to every framework, so that a test is written once and runs on all."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

# By width, for dtypes that numpy has from ml_dtypes only: torch takes integers and views them.
_AS_INTEGER = {1: np.uint8, 2: np.uint16}


class Framework(Protocol):
    """What a test may use of the framework it runs on."""

    name: str

    def array(self, values: np.ndarray, /) -> Any:
        """`values` as an array of this framework, with the same dtype, in fresh memory."""

    def numpy(self, x: Any, /) -> np.ndarray:
        """The values of `x`, with the same dtype."""

    def call(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        """`fn(*args, **options)`, the way this framework runs it."""


@dataclass(frozen=True, slots=True)
class Numpy:
    """numpy; with read-only arrays to expose hidden writes."""

    name: str = "numpy"
    writeable: bool = True

    def array(self, values: np.ndarray, /) -> np.ndarray:
        x = np.array(values, order="C")
        x.setflags(write=self.writeable)
        return x

    def numpy(self, x: np.ndarray, /) -> np.ndarray:
        assert type(x) is np.ndarray
        return x

    def call(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        return fn(*args, **options)


@dataclass(frozen=True, slots=True)
class Torch:
    """torch, eager, on the CPU."""

    name: str = "torch"

    def array(self, values: np.ndarray, /) -> Any:
        import torch

        if values.dtype.isbuiltin == 2:  # registered by ml_dtypes
            integers = np.array(values, order="C").view(_AS_INTEGER[values.dtype.itemsize])
            return torch.from_numpy(integers).view(getattr(torch, values.dtype.name))
        return torch.from_numpy(np.array(values, order="C"))

    def numpy(self, x: Any, /) -> np.ndarray:
        import ml_dtypes
        import torch

        assert isinstance(x, torch.Tensor)
        name = str(x.dtype).removeprefix("torch.")
        x = x.detach()
        if name.startswith(("bfloat", "float8")):
            integers = x.contiguous().view(getattr(torch, f"uint{8 * x.itemsize}"))
            return integers.numpy().view(getattr(ml_dtypes, name))
        return x.numpy()

    def call(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        return fn(*args, **options)


@dataclass(frozen=True, slots=True)
class Jax:
    """JAX, eager or with every array of the call traced by `jax.jit`."""

    name: str = "jax"
    jit: bool = False

    def array(self, values: np.ndarray, /) -> Any:
        import jax.numpy as jnp

        x = jnp.array(values)
        if x.dtype != values.dtype:
            raise TypeError(
                f"values: {values.dtype}; JAX without x64 made it {x.dtype}; use 32 bits"
            )
        return x

    def numpy(self, x: Any, /) -> np.ndarray:
        import jax

        assert isinstance(x, jax.Array)
        return np.asarray(x)

    def call(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        if not self.jit:
            return fn(*args, **options)
        import jax

        leaves, tree = jax.tree.flatten((args, options))
        traced = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)}

        def run(arrays: dict[int, Any]) -> Any:
            given = [arrays.get(i, leaf) for i, leaf in enumerate(leaves)]
            args, options = jax.tree.unflatten(tree, given)
            return fn(*args, **options)

        return jax.jit(run)(traced)


FRAMEWORKS: tuple[Framework, ...] = (
    Numpy(),
    Numpy("numpy:readonly", writeable=False),
    Torch(),
    Jax(),
    Jax("jax:jit", jit=True),
)


def missing(framework: Framework) -> str | None:
    """The module that `framework` needs and that is not installed, if there is one."""
    module = framework.name.partition(":")[0]
    try:
        importlib.import_module(module)
    except ModuleNotFoundError:
        return module
    return None
