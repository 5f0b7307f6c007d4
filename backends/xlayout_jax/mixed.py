"""Mixed: meshes with axes of both kinds, automatic and explicit.

In a program on such a mesh, the type of an array tells by which explicit axes it is cut, and JAX
has these cut first: it moves, or gathers, what lies by an automatic axis before an explicit one.
Arrays outside programs can lie so. They are therefore taken to their mesh's twin, the same devices
along automatic axes alone, and what is made there is taken back; no byte moves for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from xlayout_jax.tracers import is_staged, is_tracer, primal
from xlayout_jax.transposes import Step

__all__ = ["Shardings", "by_twin", "swapped"]

Shardings = Sequence[NamedSharding]


def _is_mixed(mesh: Any) -> bool:
    return bool(mesh.explicit_axes and mesh.auto_axes)


def swapped(x: Any, mesh: Any, spec: Sequence[Sequence[str]], /) -> tuple[str, str] | None:
    """An automatic axis and an explicit one after it, which a program that has `x` would swap."""
    if not _is_mixed(mesh) or not (is_staged() or is_tracer(primal(x))):
        return None
    for entry in spec:
        names = [name for name in entry if mesh.shape[name] > 1]
        for major, minor in pairwise(names):
            if major in mesh.auto_axes and minor in mesh.explicit_axes:
                return major, minor
    return None


def by_twin(
    make: Callable[[Shardings, Shardings], Step],
    sources: Shardings | None,
    targets: Shardings,
    /,
) -> Step:
    """`make(sources, targets)`, whose results lie as `targets` say wherever they can.

    `sources` say how the arrays are to lie first; None: as they do.
    """
    run = make(sources or (), targets)
    mesh = targets[0].mesh
    if not isinstance(mesh, Mesh) or not _is_mixed(mesh):
        return run
    twin = Mesh(mesh.devices, mesh.axis_names)
    ins, outs = (tuple(_on(twin, s) for s in side) for side in (sources or (), targets))
    plain = make(ins, outs)

    @wraps(run)
    def call(*xs: Any) -> tuple[Any, ...]:
        if is_staged() or any(map(is_tracer, xs)):
            return run(*xs)
        with jax.set_mesh(twin):  # JAX refuses arrays of another mesh than the one that is set
            lie = ins or tuple(_on(twin, x.sharding) for x in xs)
            made = plain(*map(jax.device_put, xs, lie))
        return tuple(map(jax.device_put, made, targets))

    return call


def _on(mesh: Mesh, sharding: NamedSharding) -> NamedSharding:
    return NamedSharding(mesh, sharding.spec)
