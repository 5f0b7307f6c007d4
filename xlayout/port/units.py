"""Bytes in and out of text: "512MiB" is read, 538 MB is written."""

from __future__ import annotations

import re

from xlayout.errors import PortError

__all__ = ["parse_bytes", "show_bytes", "show_count"]

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", 1)
    for kind, base in (("B", 1000), ("IB", 1024))
}


def parse_bytes(amount: int | str, /, *, name: str = "max_ram") -> int:
    """Return a number of bytes given as one, or as text.

    Raises:
        PortError: The text is no amount of bytes, or the amount is not positive.

    >>> parse_bytes("512MiB"), parse_bytes("1.5GB"), parse_bytes(4096)
    (536870912, 1500000000, 4096)
    """
    number: float | None = amount if isinstance(amount, int) else None
    if isinstance(amount, str):
        found = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)\s*([A-Za-z]*)", amount.strip())
        if found and found[2].upper() in _UNITS:
            number = float(found[1]) * _UNITS[found[2].upper()]
    if number is None or number < 1:
        raise PortError(f"{name}: {amount!r:.80}; wanted bytes, or text such as '512MiB' or '2GB'")
    return int(number)


def show_bytes(amount: float, /) -> str:
    """Return an amount of bytes with three digits or so.

    >>> show_bytes(576), show_bytes(538_090_408)
    ('576 B', '538 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.95 else f"{amount:.3g} {unit}"


def show_count(amount: int, what: str, /) -> str:
    """Return a number with its noun.

    >>> show_count(1, "tensor"), show_count(1200, "tensor")
    ('1 tensor', '1,200 tensors')
    """
    return f"{amount:,} {what}{'' if amount == 1 else 's'}"
