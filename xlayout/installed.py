"""Installed: the versions of what xlayout works with, and which copy kernels are in use."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from platform import platform, python_version

import xlayout
import xlayout_native
from xlayout.registry import backend_module
from xlayout.table import Table

__all__ = ["installed"]

_LIBRARIES = (
    "numpy", "torch", "jax", "ml_dtypes", "safetensors", "gguf", "orbax-checkpoint", "tensorstore",
    "transformers",
)  # fmt: skip


def installed() -> Table:
    """Return a row for each library and each copy kernel.

    >>> [name for name, _ in installed().rows][:3]
    ['xlayout', 'python', 'on']
    """
    rows = [("xlayout", xlayout.__version__), ("python", python_version()), ("on", platform())]
    for library in _LIBRARIES:
        try:
            rows.append((library, version(library)))
        except PackageNotFoundError:
            rows.append((library, "not installed"))
    rows.append(("copy kernel", xlayout_native.status()))
    for framework in ("torch", "jax"):
        try:
            status = backend_module(framework, "cuda").status()
        except Exception as error:  # noqa: BLE001 -- as JAX's, if jaxlib is of another version
            status = f"not in use: {error}"
        rows.append((f"on CUDA, {framework}", status))
    return Table("", ("", ""), tuple(rows))
