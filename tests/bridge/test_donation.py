"""donate=True hands the memory over: afterwards one side has it, and only one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.bridge.memory import pointer
from xlayout.bridge import to_jax, to_torch
from xlayout.errors import LayoutError


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(16, dtype=torch.bfloat16),
        lambda: torch.nn.Parameter(torch.arange(16.0)),
        lambda: torch.arange(16.0).requires_grad_() * 1,
    ],
    ids=["tensor", "parameter", "in a graph"],
)
def test_a_donated_tensor_is_empty_and_its_memory_lives_on(make: Any) -> None:
    t = make()
    address, dtype = pointer(t), t.dtype
    a = to_jax(t, donate=True, detach=True)
    assert pointer(a) == address
    assert (t.numel(), t.dtype) == (0, dtype)
    assert a.tolist() == list(range(16))


def test_a_donated_jax_array_is_deleted_and_its_memory_lives_on() -> None:
    a = jnp.arange(16.0)
    address = pointer(a)
    t = to_torch(a, donate=True)
    assert pointer(t) == address
    assert a.is_deleted()
    t += 1
    assert t.tolist() == list(range(1, 17))


@jax.jit
def read_late(a: Any, m: Any) -> Any:
    """The values of `a`, read after some work."""
    m = jax.lax.fori_loop(0, 40, lambda _, m: jnp.tanh(m @ m), m)
    return a + jnp.isnan(m.sum())


@pytest.mark.parametrize("make", [jnp.ones, lambda n: to_jax(torch.ones(n))], ids=["own", "lent"])
@pytest.mark.parametrize("thread", [False, True])
def test_computations_that_still_read_a_donated_array_are_waited_for(
    make: Any, thread: bool
) -> None:
    work = jnp.full((512, 512), 0.01)
    read_late(jnp.ones(1 << 16), work).block_until_ready()
    a = make(1 << 16)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(read_late, a, work).result() if thread else read_late(a, work)
    to_torch({"a": a}, donate=True)["a"].zero_()
    assert bool((late == 1).all())


def test_a_computation_that_failed_is_not_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failed:
        def block_until_ready(self) -> None:
            raise jax.errors.JaxRuntimeError("INTERNAL: out of memory")

    monkeypatch.setattr(jax, "live_arrays", lambda _platform: [Failed()])
    a = jnp.ones(4)
    to_torch(a, donate=True)
    assert a.is_deleted()


def test_a_source_that_had_to_be_copied_is_given_up_as_well() -> None:
    t = torch.arange(16.0).view(4, 4).t()
    assert to_jax(t, donate=True).shape == (4, 4)
    assert t.numel() == 0


def test_a_whole_tree_is_donated_ties_included() -> None:
    t, u = torch.ones(4), torch.zeros(4)
    out = to_jax({"a": t, "b": [u, t]}, donate=True)
    assert t.numel() == u.numel() == 0
    assert out["a"] is out["b"][1]


def test_an_array_of_the_framework_itself_needs_no_handing_over() -> None:
    a = jnp.ones(3)
    assert to_jax(a, donate=True) is a
    assert not a.is_deleted()


def test_numpy_cannot_give_its_memory_up() -> None:
    t = torch.ones(3)
    text = r"x\[1\]: nothing can empty a numpy.ndarray; do not donate it"
    with pytest.raises(TypeError, match=text):
        to_jax([t, np.ones(3, np.float32)], donate=True)
    assert t.numel() == 3


def test_donating_and_copying_contradict_each_other() -> None:
    with pytest.raises(LayoutError, match="copy: True with donate=True; memory is handed over or"):
        to_jax(torch.ones(3), copy=True, donate=True)


def test_jit_never_gives_adopted_memory_away() -> None:
    t = torch.zeros(1024)
    a = to_jax(t)
    out = jax.jit(lambda x: x + 1, donate_argnums=0)(a)
    assert pointer(out) != pointer(t)
    assert t.sum() == 0


def test_jax_keeps_memory_that_torch_looks_at() -> None:
    a = jnp.zeros(1024)
    t = to_torch(a)
    out = jax.jit(lambda x: x + 1, donate_argnums=0)(a)
    assert pointer(out) != pointer(t)
    assert t.sum() == 0
    del t
    out.block_until_ready()


def test_a_deleted_array_leaves_its_view_alone() -> None:
    a = jnp.arange(4.0)
    t = to_torch(a)
    a.delete()
    assert t.tolist() == [0, 1, 2, 3]
