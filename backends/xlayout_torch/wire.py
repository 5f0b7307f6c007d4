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

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        made = func(*args, **(kwargs or {}))
        namespace, _, name = func._schema.name.partition("::")
        if namespace in ("_c10d_functional", "_dtensor") and name in _FUNCTIONAL:
            group = _resolve_process_group(_group(func, args))
            self.received[_NAMES.get(name, name)] += _FUNCTIONAL[name](args, _size(made), group)
        elif namespace == "c10d" and name in _IN_PLACE:
            kind, count = _IN_PLACE[name]
            self.received[kind] += count(args)
        return made


def _group(func: Any, args: tuple[Any, ...]) -> Any:
    names = [a.name for a in func._schema.arguments]
    return args[names.index("group_name")]


def _size(x: Any) -> int:
    tensors = [x] if isinstance(x, torch.Tensor) else list(x)
    return sum(t.numel() * t.element_size() for t in tensors)


def _all_to_all(args: tuple[Any, ...], made: int, group: Any) -> int:
    splits = list(args[1])
    if not splits:
        return _others(args, made, group)
    mine = splits[dist.get_rank(group)]
    return int(made * (sum(splits) - mine) // max(1, sum(splits)))


def _others(_args: tuple[Any, ...], made: int, group: Any) -> int:
    return int(made * (group.size() - 1) // group.size())


def _scattered(_args: tuple[Any, ...], made: int, group: Any) -> int:
    return int(made * (group.size() - 1))


def _reduced(_args: tuple[Any, ...], made: int, group: Any) -> int:
    return int(2 * made * (group.size() - 1) // group.size())


def _sent(args: tuple[Any, ...], made: int, group: Any) -> int:
    return int(made * (dist.get_rank(group) != args[1]))


_FUNCTIONAL: dict[str, Callable[[tuple[Any, ...], int, Any], int]] = {
    "all_gather_into_tensor": _others,
    "all_gather_into_tensor_coalesced": _others,
    "all_reduce": _reduced,
    "all_reduce_coalesced": _reduced,
    "all_to_all_single": _all_to_all,
    "broadcast": _sent,
    "reduce_scatter_tensor": _scattered,
    "reduce_scatter_tensor_coalesced": _scattered,
    "shard_dim_alltoall": _others,
}
_NAMES = {
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "all_reduce_coalesced": "all_reduce",
    "all_to_all_single": "all_to_all",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "shard_dim_alltoall": "all_to_all",
}
# The collectives of torch.distributed itself write into their first argument.
_IN_PLACE: dict[str, tuple[str, Callable[[tuple[Any, ...]], int]]] = {
    "_allgather_base_": ("all_gather", lambda a: _size(a[0]) - _size(a[1])),
    "allgather_": ("all_gather", lambda a: sum(map(_size, a[0])) - _size(a[1])),
    "alltoall_base_": ("all_to_all", lambda a: _base(a)),
    "_reduce_scatter_base_": ("reduce_scatter", lambda a: _size(a[1]) - _size(a[0])),
    "allreduce_": ("all_reduce", lambda a: 2 * _size(a[0]) * (_n(a[1]) - 1) // _n(a[1])),
    "recv_": ("recv", lambda a: _size(a[0])),
}


def _n(group: Any) -> int:
    return int(dist.ProcessGroup.unbox(group).size())


def _base(args: tuple[Any, ...]) -> int:
    group = dist.ProcessGroup.unbox(args[2])
    splits = list(args[3]) or [1] * group.size()
    return int(_size(args[0]) * (sum(splits) - splits[group.rank()]) // max(1, sum(splits)))
