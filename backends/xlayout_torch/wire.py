"""Wire: bytes that a function makes this rank receive, counted while it runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import (  # type: ignore[attr-defined]
    _resolve_process_group,
)
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode


def wire_bytes(fn: Callable[..., Any], args: Sequence[Any], /) -> dict[str, int]:
    """{collective: bytes received by this rank}; `fn` runs."""
    with _Count() as count:
        fn(*args)
    return {name: n for name, n in count.received.items() if n}


class _Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up collectives as they pass; DTensor's show once it has come down to local tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.received: Counter[str] = Counter()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled functions run as they were compiled; under other modes they would not."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        made = func(*args, **(kwargs or {}))
        namespace, _, name = func._schema.name.partition("::")
        if namespace in ("_c10d_functional", "_dtensor", "c10d") and name not in _SILENT:
            if namespace != "c10d":
                name = name.removesuffix("_").removesuffix("_out").removesuffix("_coalesced")
            if name not in _KNOWN:
                raise TypeError(f"fn: calls {func}, of which it is not known what it moves")
            given = {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)}
            kind, count = _KNOWN[name]
            self.received[kind] += count(given | {"made": made})
        return made


_SILENT = frozenset(
    {"wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier_", "check_for_nan",
     "send", "isend"}
)  # fmt: skip
"""Operations that receive no elements."""

Given = dict[str, Any]
Count = Callable[[Given], int]


def _size(x: Any) -> int:
    return x.numel() * x.element_size() if isinstance(x, torch.Tensor) else sum(map(_size, x))


def _group(given: Given) -> Any:
    if "process_group" in given:
        return dist.ProcessGroup.unbox(given["process_group"])
    return _resolve_process_group(given["group_name"])


def _all(name: str) -> Count:
    return lambda given: _size(given[name])


def _beyond(whole: str, part: str) -> Count:
    """What is in one argument and not in another."""
    return lambda given: _size(given[whole]) - _size(given[part])


def _shared(name: str, splits: str | None = None) -> Count:
    """The other ranks' parts in a whole that is made of all ranks' parts."""

    def count(given: Given) -> int:
        group = _group(given)
        parts = (splits and given[splits]) or [1] * group.size()
        return int(_size(given[name]) * (sum(parts) - parts[group.rank()]) // max(1, sum(parts)))

    return count


def _reduced(name: str) -> Count:
    """What a ring of ranks passes on twice."""

    def count(given: Given) -> int:
        size = _group(given).size()
        return int(2 * _size(given[name]) * (size - 1) // size)

    return count


def _sent(name: str, root: str) -> Count:
    """What comes from one rank to all others."""
    return lambda given: _size(given[name]) * (_group(given).rank() != given[root])


_KNOWN: dict[str, tuple[str, Count]] = {
    "all_gather_into_tensor": ("all_gather", _shared("made")),
    "all_reduce": ("all_reduce", _reduced("made")),
    "all_to_all_single": ("all_to_all", _shared("made", "output_split_sizes")),
    "broadcast": ("broadcast", _sent("made", "src")),
    "irecv": ("recv", _all("made")),
    "reduce_scatter_tensor": (
        "reduce_scatter", lambda given: _size(given["made"]) * (_group(given).size() - 1)),
    "shard_dim_alltoall": ("all_to_all", _shared("made")),
    # The collectives of torch.distributed itself write into their arguments.
    "_allgather_base_": ("all_gather", _beyond("output_tensor", "input_tensor")),
    "allgather_": ("all_gather", _beyond("output_tensors", "input_tensors")),
    "allgather_coalesced_": ("all_gather", _beyond("output_lists", "input_list")),
    "allgather_into_tensor_coalesced_": ("all_gather", _beyond("outputs", "inputs")),
    "allreduce_": ("all_reduce", _reduced("tensors")),
    "allreduce_coalesced_": ("all_reduce", _reduced("tensors")),
    "alltoall_": (
        "all_to_all",
        lambda a: _size(a["output_tensors"]) - _size(a["output_tensors"][_group(a).rank()])),
    "alltoall_base_": ("all_to_all", _shared("output", "output_split_sizes")),
    "broadcast_": ("broadcast", _sent("tensors", "root_rank")),
    "recv_": ("recv", _all("tensors")),
    "recv_any_source_": ("recv", _all("tensors")),
    "_reduce_scatter_base_": ("reduce_scatter", _beyond("input_tensor", "output_tensor")),
    "reduce_scatter_": ("reduce_scatter", _beyond("input_tensors", "output_tensors")),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", _beyond("inputs", "outputs")),
    "scatter_": ("scatter", _sent("output_tensors", "root_rank")),
}  # fmt: skip
"""Collective -> its name in the answer, and the bytes received, by its arguments and `made`."""
