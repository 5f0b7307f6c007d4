"""Compilers that keep the graphs they are given: AOTAutograd alone, and inductor's passes.

Neither generates code, so that compiling takes a second; the graphs run as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule

__all__ = ["Aot", "Inductor"]


class Aot:
    """A custom backend with a pass over the joint graph; `graphs`: forward, backward."""

    def __init__(self, joint: Callable[[GraphModule], Any] | None = None) -> None:
        self.graphs: list[GraphModule] = []
        self._joint = joint
        self._compile = aot_autograd(
            fw_compiler=self._keep, bw_compiler=self._keep, partition_fn=self._split
        )

    def __call__(self, graph: GraphModule, inputs: Any) -> Any:
        return self._compile(graph, inputs)

    def _keep(self, graph: GraphModule, _inputs: Any) -> Any:
        self.graphs.append(graph)
        return _boxed(graph)

    def _split(self, joint: GraphModule, inputs: Any, **options: Any) -> Any:
        if self._joint is not None:
            self._joint(joint)
        return min_cut_rematerialization_partition(joint, inputs, **options)


class Inductor:
    """Inductor up to its last graph pass, under `config` patches; `graphs`: forward, backward."""

    def __init__(self, **config: Any) -> None:
        self.graphs: list[GraphModule] = []
        self._config = config

    def __call__(self, graph: GraphModule, inputs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(graph, inputs, inner_compile=self._keep, config_patches=self._config)

    def _keep(self, graph: GraphModule, inputs: Any, **options: Any) -> Any:
        from torch._guards import detect_fake_mode
        from torch._inductor.compile_fx import _recursive_post_grad_passes
        from torch._inductor.virtualized import V

        with V.set_fake_mode(detect_fake_mode(inputs)):
            _recursive_post_grad_passes(graph, is_inference=bool(options.get("is_inference")))
        self.graphs.append(graph)
        return _boxed(graph)


def _boxed(graph: GraphModule) -> Any:
    def run(args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        return graph(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return torch.compiler.disable(run)
