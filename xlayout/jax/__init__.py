"""JAX only: gathers for train steps, a checkpoint policy, and a tiled layer for flax.nnx."""

from typing import TYPE_CHECKING, Any

from xlayout.jax.gather import all_gather as all_gather
from xlayout.jax.gather import regather as regather

if TYPE_CHECKING:
    from xlayout.jax.tiled_linear import TiledLinear as TiledLinear

__all__ = ["TiledLinear", "all_gather", "regather"]

if not TYPE_CHECKING:  # else a type checker would accept any name

    def __getattr__(name: str) -> Any:
        # Importing flax takes seconds, and most programs with JAX do not use it.
        if name != "TiledLinear":
            raise AttributeError(f"module 'xlayout.jax' has no attribute {name!r}")
        try:
            from xlayout.jax.tiled_linear import TiledLinear
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "flax":
                raise
            raise ImportError(
                f"xlayout.jax.TiledLinear needs flax ({error}); pip install 'xlayout-arrays[flax]'"
            ) from error
        globals()[name] = TiledLinear
        return TiledLinear

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
