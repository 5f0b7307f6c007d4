"""Partition: how a size is divided into parts, under the rules that real systems use."""

from __future__ import annotations

from typing import Literal, get_args

from xlayout.algebra.shapes import divisors, in_short, integer, one_of
from xlayout.errors import SizeError

__all__ = ["Rule", "partition"]

Rule = Literal["balanced", "ceil", "back", "last", "even"]


def partition(
    total: int, parts: int, /, *, rule: Rule = "balanced", unit: int = 1
) -> tuple[int, ...]:
    """Sizes of `parts` parts that add up to `total`.

    Each size is a multiple of `unit`; the rest of `total` beyond whole units goes to the last part
    (so a vocabulary of 50257 in units of 64 keeps all its rows). A part may be empty.

    Args:
        total: number of elements to divide.
        parts: number of parts, at least 1.
        rule: "balanced": the first `total % parts` parts are one larger, 10/4 = 3, 3, 2, 2
            (DeepSpeed `partition_uniform`). "ceil": full parts first, 3, 3, 3, 1 (`torch.chunk`,
            DTensor). "back": the last parts are larger, 2, 2, 3, 3. "last": the remainder goes to
            the last part, 2, 2, 2, 4. "even": all equal, or an error (Megatron, JAX).
        unit: granularity of the parts, such as a head size or a kernel's grain.

    Raises:
        SizeError: for a negative total, no parts, a unit below 1, or an uneven "even".
        LayoutError: for an unknown rule.

    >>> partition(10, 4), partition(10, 4, rule="ceil"), partition(100, 4, unit=32)
    ((3, 3, 2, 2), (3, 3, 3, 1), (32, 32, 32, 4))
    """
    total = integer(total, "total")
    parts = integer(parts, "parts", 1)
    unit = integer(unit, "unit", 1)
    one_of("rule", rule, get_args(Rule))
    units, residue = divmod(total, unit)
    each, extra = divmod(units, parts)
    if rule == "even" and (extra or residue):
        fit = f"parts that would: {in_short(divisors(units))}"
        ways = f"the total must be a multiple of {unit}" if residue else fit
        of = f" of whole units of {unit}" if unit > 1 else ""
        raise SizeError(f"total: {total} does not share out evenly into {parts} parts{of}; {ways}")
    if rule == "ceil":
        full = -(-units // parts)
        sizes = [max(0, min(full, units - k * full)) for k in range(parts)]
    elif rule == "back":
        sizes = [each + (k >= parts - extra) for k in range(parts)]
    elif rule == "last":
        sizes = [each] * (parts - 1) + [each + extra]
    else:
        sizes = [each + (k < extra) for k in range(parts)]
    sizes = [n * unit for n in sizes]
    sizes[-1] += residue
    return tuple(sizes)
