"""Offer and Exchange: the protocol between the two halves of an exchange."""

from __future__ import annotations

from typing import Any, Protocol, cast

from xlayout.registry import MOST_TYPES, backend_module, backend_of, submodule
from xlayout.room import make_room

__all__ = ["Exchange", "Offer", "exchange_named", "exchange_of"]


class Offer(Protocol):
    """One array's memory on one device, as the framework that owns it describes it."""

    @property
    def dtype(self) -> str:
        """Its name, the same in every framework: `bfloat16`, `float8_e4m3fn`, `bool`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""

    @property
    def strides(self) -> tuple[int, ...]:
        """The strides, in elements."""

    @property
    def pointer(self) -> int:
        """Address of the first element."""

    @property
    def device(self) -> tuple[int, int]:
        """DLPack's device type and ordinal."""

    @property
    def writable(self) -> bool:
        """Whether the owner lets others write."""

    @property
    def donatable(self) -> bool:
        """Whether `release` can empty the source."""

    @property
    def needs_bits(self) -> bool:
        """Whether DLPack cannot express the dtype or a flag here, so that `bits` is needed."""

    @property
    def obstacle(self) -> str | None:
        """Why this memory cannot be shared as it is, or None."""

    def __dlpack__(self, **options: Any) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def bits(self) -> Any:
        """The same memory as unsigned integers of the same width, itself exportable by DLPack."""

    def copied(self, *, host: bool = False) -> Offer:
        """The same values in fresh memory without an obstacle; in host memory if `host`."""

    def wait(self) -> None:
        """Return once everything written so far is in memory."""

    def release(self) -> None:
        """Empty the source array: the memory now belongs to the adopter."""


class Exchange(Protocol):
    """The exchange verbs of a backend: its module `exchange`."""

    def offer(self, x: Any, /, *, detach: bool = False) -> Offer:
        """The memory of `x`; TypeError or ValueError if it has none that others can read."""

    def adopt(self, offered: Offer, /, *, copy: bool | None = None, **options: Any) -> Any:
        """An array on that memory, or on a copy of it."""

    def keep(self, x: Any, /, *, copy: bool | None = None, **options: Any) -> Any:
        """What `adopt` does, for an array that already belongs to this framework."""

    def settle(self) -> None:
        """Return once nothing that was started before reads what its offers describe."""


_BY_TYPE: dict[type, Exchange] = {}
_BY_NAME: dict[str, Exchange] = {}


def exchange_of(x: Any) -> Exchange:
    """The exchange verbs of the framework that `x` belongs to."""
    cls = type(x)
    exchange = _BY_TYPE.get(cls)
    if exchange is None:
        exchange = cast(Exchange, submodule(backend_of(x, ""), "exchange"))
        make_room(_BY_TYPE, MOST_TYPES)
        _BY_TYPE[cls] = exchange
    return exchange


def exchange_named(name: str) -> Exchange:
    """The exchange verbs of a framework, imported now."""
    exchange = _BY_NAME.get(name)
    if exchange is None:
        exchange = _BY_NAME[name] = cast(Exchange, backend_module(name, "exchange"))
    return exchange
