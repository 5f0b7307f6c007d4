"""What is compiled is compiled once, whatever other arrays the program has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xlayout as xl
from xlayout import registry
from xlayout.lower import calls


@pytest.mark.parametrize("seen_before", [False, True])
def test_it_stays_compiled_whatever_else_is_seen(
    seen_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {torch.Tensor: registry.backend_of(torch.zeros(1))} if seen_before else {}
    for module in (registry, calls):
        monkeypatch.setattr(module, "SERVED", known)
    layout = xl.interleave.layout((8,))
    graphs: list[torch.fx.GraphModule] = []

    def compiler(graph: torch.fx.GraphModule, _inputs: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=compiler, fullgraph=True)
    def together(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return xl.interleave(x), xl.stack([x, x]), layout(x), xl.apply(layout, x)

    x = torch.arange(8.0)
    made = together(x)
    for other in (x, np.zeros(8), torch.nn.Parameter(x), jnp.zeros(8)):
        xl.interleave(other)
    assert all(map(torch.equal, together(x), made))
    assert len(graphs) == 1
