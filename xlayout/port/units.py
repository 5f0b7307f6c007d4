"""Amounts of bytes from and to text: "512MiB" is read, "538 MB" is written."""

from __future__ import annotations

import re
from typing import Any

from xlayout.algebra.shapes import integer
from xlayout.errors import PortError, SizeError

__all__ = ["parse_bytes", "show_bytes", "show_count", "show_share"]

_UNITS = {"": 1, "B": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("KMGT", 1)
    for kind, base in (("B", 1000), ("IB", 1024))
}


def parse_bytes(amount: float | str, /, *, name: str = "max_ram") -> int:
    """Return a number of bytes given as a whole number, of any type, or as text.

    Raises:
        PortError: It is not an amount of bytes, or not positive.
        TypeError: It is neither a number nor text.

    >>> parse_bytes("512MiB"), parse_bytes("1.5GB"), parse_bytes(4096), parse_bytes(5e8)
    (536870912, 1500000000, 4096, 500000000)
    """
    number: Any = amount
    given: Any = amount  # callers may pass any type
    if isinstance(amount, str):
        found = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)\s*([A-Za-z]*)", amount.strip())
        unit = _UNITS.get(found[2].upper()) if found else None
        number = float(found[1]) * unit // 1 if found and unit else None
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    text = f"{name}: {amount!r:.80}; wanted bytes, or text such as '512MiB' or '2GB'"
    try:
        return integer(number, name, 1)
    except SizeError:
        raise PortError(text) from None
    except TypeError:  # also for text without a number, and for a fraction
        raise (PortError if isinstance(given, (str, float)) else TypeError)(text) from None


def show_bytes(amount: float, /) -> str:
    """Return an amount of bytes to about three digits.

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


def show_share(some: int, of: int, /) -> str:
    """Return a share in percent, which reads as none or all only if it is just that.

    >>> show_share(1, 7), show_share(1, 9000), show_share(8999, 9000), show_share(7, 7)
    ('14.3 %', 'under 0.1 %', 'over 99.9 %', '100.0 %')
    """
    share = 100 * some / of
    if 0 < share < 0.05:
        return "under 0.1 %"
    return "over 99.9 %" if 99.95 <= share < 100 else f"{share:.1f} %"
