"""What would corrupt memory or crash if xlayout did not take care."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.bridge.memory import at_offset, pointer
from tests.house.tree import printed
from xlayout.bridge import to_jax, to_numpy, to_torch
from xlayout_jax import exchange


@pytest.mark.parametrize("numpy", [False, True])
def test_jit_never_writes_into_the_source_of_a_copy(numpy: bool) -> None:
    source: Any = torch.zeros(1024)
    source = at_offset(source.numpy(), 0) if numpy else source
    a = to_jax(source, copy=True)
    out = jax.jit(lambda x: x + 1, donate_argnums=0)(a)
    assert float(out.sum()) == 1024
    assert float(source.sum()) == 0


def test_read_only_pages_are_never_written() -> None:
    printed(
        """
        import jax, numpy as np, tempfile
        from xlayout.bridge import to_jax, to_torch

        with tempfile.NamedTemporaryFile() as file:
            np.zeros(4096, np.float32).tofile(file.name)
            pages = np.memmap(file.name, np.float32, "r")
            for copy in (None, True):
                a = to_jax(pages, copy=copy)
                out = jax.jit(lambda x: x + 1, donate_argnums=0)(a)
                assert float(out.sum()) == 4096
                to_torch(pages, copy=copy).fill_(1)
            assert not pages.any()
        """
    )


def test_what_is_shared_outlives_every_change_of_the_source() -> None:
    printed(
        """
        import torch
        from xlayout.bridge import to_jax, to_numpy

        N = 1 << 24  # large enough for freed pages to leave the process

        def data(t):
            t.data = torch.empty(0)

        def set_(t):
            t.set_(torch.empty(0))

        for change in (data, set_):
            for convert in (to_jax, to_numpy):
                t = torch.ones(N)
                x = convert(t, copy=False)
                change(t)
                assert float(x.sum()) == N

        module = torch.nn.Linear(4096, 4096, bias=False).requires_grad_(False)
        module.weight.fill_(1)
        x = to_jax(module.weight)
        module.half()
        assert float(x.sum()) == 4096**2
        """
    )


@pytest.mark.parametrize("x64", ["error", "narrow"])
def test_a_write_right_after_a_copy_comes_too_late(x64: str) -> None:
    unaligned = torch.from_numpy(at_offset(np.ones(1 << 23, np.float32), 4))
    source = unaligned if x64 == "error" else unaligned.double()
    a = to_jax(source, x64=x64)
    source.fill_(-1)
    assert float(jnp.min(a)) == 1


def test_either_side_may_free_last_from_any_thread() -> None:
    def there_and_back(i: int) -> bool:
        t = torch.full((1000,), float(i))
        address = pointer(t)
        a = to_jax(t)
        del t
        back = to_torch(a)
        del a
        return bool(back[0] == i) and pointer(back) == address

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(there_and_back, range(500)))


def test_where_arrays_lay_is_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_MOST", 2)
    monkeypatch.setattr(exchange, "_PLACES", {})
    for device in jax.devices()[:5]:
        to_numpy(jax.device_put(jnp.ones(2), device))
    assert len(exchange._PLACES) <= 2
