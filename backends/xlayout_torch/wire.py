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
    if isinstance(x, torch.Tensor):
        return x.numel() * x.element_size()
    return sum(map(_size, x))


def _group(given: Given) -> Any:
    if "process_group" in given:
        return dist.ProcessGroup.unbox(given["process_group"])
    return _resolve_process_group(given["group_name"])


def _share(whole: int, splits: Any, group: Any) -> int:
    """The bytes of the other ranks' parts in a whole that is made of all ranks' parts."""
    parts = list(splits) or [1] * group.size()
    return int(whole * (sum(parts) - parts[group.rank()]) // max(1, sum(parts)))


def _gathered(given: Given) -> int:
    return _share(_size(given["made"]), (), _group(given))


def _exchanged(given: Given) -> int:
    return _share(_size(given["made"]), given["output_split_sizes"], _group(given))


def _scattered(given: Given) -> int:
    return int(_size(given["made"]) * (_group(given).size() - 1))


def _reduced(whole: int, given: Given) -> int:
    group = _group(given)
    return int(2 * whole * (group.size() - 1) // group.size())


def _unless_from(root: str, whole: Any, given: Given) -> int:
    return int(_size(whole) * (_group(given).rank() != given[root]))


_KNOWN: dict[str, tuple[str, Count]] = {
    "all_gather_into_tensor": ("all_gather", _gathered),
    "all_reduce": ("all_reduce", lambda a: _reduced(_size(a["made"]), a)),
    "all_to_all_single": ("all_to_all", _exchanged),
    "broadcast": ("broadcast", lambda a: _unless_from("src", a["made"], a)),
    "irecv": ("recv", lambda a: _size(a["made"])),
    "reduce_scatter_tensor": ("reduce_scatter", _scattered),
    "shard_dim_alltoall": ("all_to_all", _gathered),
    # The collectives of torch.distributed itself write into their arguments.
    "_allgather_base_": (
        "all_gather", lambda a: _size(a["output_tensor"]) - _size(a["input_tensor"])),
    "allgather_": ("all_gather", lambda a: _size(a["output_tensors"]) - _size(a["input_tensors"])),
    "allgather_coalesced_": (
        "all_gather", lambda a: _size(a["output_lists"]) - _size(a["input_list"])),
    "allgather_into_tensor_coalesced_": (
        "all_gather", lambda a: _size(a["outputs"]) - _size(a["inputs"])),
    "allreduce_": ("all_reduce", lambda a: _reduced(_size(a["tensors"]), a)),
    "allreduce_coalesced_": ("all_reduce", lambda a: _reduced(_size(a["tensors"]), a)),
    "alltoall_": (
        "all_to_all",
        lambda a: _size(a["output_tensors"]) - _size(a["output_tensors"][_group(a).rank()])),
    "alltoall_base_": (
        "all_to_all", lambda a: _share(_size(a["output"]), a["output_split_sizes"], _group(a))),
    "broadcast_": ("broadcast", lambda a: _unless_from("root_rank", a["tensors"], a)),
    "recv_": ("recv", lambda a: _size(a["tensors"])),
    "recv_any_source_": ("recv", lambda a: _size(a["tensors"])),
    "_reduce_scatter_base_": (
        "reduce_scatter", lambda a: _size(a["input_tensor"]) - _size(a["output_tensor"])),
    "reduce_scatter_": (
        "reduce_scatter", lambda a: _size(a["input_tensors"]) - _size(a["output_tensors"])),
    "reduce_scatter_tensor_coalesced_": (
        "reduce_scatter", lambda a: _size(a["inputs"]) - _size(a["outputs"])),
    "scatter_": ("scatter", lambda a: _unless_from("root_rank", a["output_tensors"], a)),
}  # fmt: skip
