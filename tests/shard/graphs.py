"""Graphs with gathers in them, made from a function or a text, and run without any other rank."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed._functional_collectives
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.experimental.proxy_tensor import make_fx

__all__ = ["OPS", "Alone", "gathered", "gathers", "recorded", "traced"]

OPS = torch.ops._c10d_functional
RANKS = 4


def gathered(shard: torch.Tensor) -> torch.Tensor:
    """The rows of all ranks."""
    whole: torch.Tensor = OPS.wait_tensor(OPS.all_gather_into_tensor(shard, RANKS, "all"))
    return whole


def traced(fn: Callable[..., Any], *arrays: torch.Tensor, dynamic: bool = False) -> GraphModule:
    """The ATen graph of a function."""
    mode = "symbolic" if dynamic else "fake"
    return make_fx(fn, tracing_mode=mode)(*arrays)


def gathers(graph: GraphModule) -> list[torch.dtype]:
    """The dtype of each gather in a graph."""
    return [
        n.args[0].meta["val"].dtype
        for n in graph.graph.nodes
        if n.target is OPS.all_gather_into_tensor.default
    ]


class Alone(Interpreter):
    """Runs a graph on one rank; gathers return rows that other ranks might have sent."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is OPS.all_gather_into_tensor.default:
            return torch.cat([args[0].roll(k, 0) for k in range(args[1])])
        if target is OPS.all_to_all_single.default:
            return torch.cat([args[0].flip(0)] * 2)[: sum(args[1])]
        if target is OPS.broadcast.default:
            return args[0].clone()
        if target is OPS.wait_tensor.default:
            return args[0]
        return super().call_function(target, args, kwargs)


def recorded(lines: list[str], dtype: torch.dtype) -> GraphModule:
    """A graph from its text; the parameter `p` is a shard, gathered for all uses but the output."""
    graph, nodes, mode = Graph(), {}, FakeTensorMode()
    shapes = {"p": (2, 8), "x": (8, 8)}

    def describe(node: Node) -> Node:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        with mode:
            node.meta["val"] = node.target(*args, **kwargs)
        return node

    for line in lines:
        name, _, call = line.rpartition(" = ")
        if call == "placeholder":
            nodes[name] = graph.placeholder(name)
            kind = dtype if name == "p" else torch.bfloat16
            with mode:
                nodes[name].meta["val"] = torch.empty(shapes[name], dtype=kind)
        elif line.startswith("output("):
            names = re.findall(r"'(\w+)'", line)
            graph.output(tuple(nodes[n] for n in names))
        else:
            if "whole" not in nodes:
                gather = graph.call_function(
                    OPS.all_gather_into_tensor.default, (nodes["p"], RANKS, "all")
                )
                wait = graph.call_function(OPS.wait_tensor.default, (describe(gather),))
                nodes["whole"] = describe(wait)
            target, args, kwargs = _call(call, {**nodes, "p": nodes["whole"]})
            nodes[name] = describe(graph.call_function(target, args, kwargs, name=name))
    return GraphModule(torch.nn.Module(), graph)


def _call(text: str, nodes: dict[str, Node]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """`aten.mm.default(x, p)` as a target and arguments; a dict at the end holds the keywords."""
    found = re.fullmatch(r"([\w.]+)\((.*)\)", text)
    assert found, text
    target = operator.attrgetter(found[1])(torch.ops)
    args = eval(f"({found[2]},)", {"torch": torch}, nodes)
    return (target, args[:-1], args[-1]) if isinstance(args[-1], dict) else (target, args, {})
