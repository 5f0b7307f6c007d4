"""Features: what the cut axis of a weight is made of, as a `Split`.

Queries stay with the key-value head that they use. If there are more ranks than key-value heads,
neighbouring ranks hold copies of a head instead of staying idle.
"""

from __future__ import annotations

from collections.abc import Sequence

from xlayout.algebra.partition import partition
from xlayout.algebra.shapes import divisors
from xlayout.errors import ShardingError, SizeError
from xlayout.shard import Split
from xlayout.tp.numbers import Numbers

__all__ = ["heads_on", "split_of"]


def split_of(
    terms: Sequence[str], n: int, parts: int, numbers: Numbers, *, grain: int = 1
) -> Split:
    """How an axis of `n` features is cut into `parts`.

    Args:
        terms: what the segments of the axis are made of; see `Rule`.
        n: size of the axis.
        parts: number of ranks.
        numbers: the heads of the model.
        grain: plain features are cut at multiples of it, and the rest goes to the last rank; axes
            shorter than it are cut anywhere.

    Raises:
        ShardingError: if the number of heads is not known.
        SizeError: for an axis that does not consist of such features, or heads that this number of
            ranks cannot share.

    >>> split_of(("heads",), 384, 4, Numbers(12, 6)).runs(384, (4,), (2,))
    (range(256, 320),)
    """
    if "plain" in terms:
        size = _each(n, len(terms), " + ".join(terms))
        segments = (size,) * len(terms) if len(terms) > 1 else None
        return Split(rule="balanced", unit=grain if size >= grain else 1, segments=segments)
    heads, kv_heads = _known(numbers)
    counts = [kv_heads if term in ("kv_heads", "groups") else heads for term in terms]
    size = _each(n, sum(counts), _listed(terms, counts))
    group = heads // kv_heads
    unit = max(size, 1)
    units = [unit * (group if term == "heads" else 1) for term in terms]
    copies = [1] * len(terms)
    if parts > kv_heads:
        _refuse_unshared(terms, parts, heads, kv_heads)
        units = [unit] * len(terms)
        copies = [parts // kv_heads if term == "kv_heads" else 1 for term in terms]
    if len(terms) == 1:
        return Split(rule="balanced", unit=units[0], copies=copies[0])
    sizes = tuple(count * size for count in counts)
    return Split(rule="balanced", unit=tuple(units), segments=sizes, copies=tuple(copies))


def heads_on(rank: int, parts: int, numbers: Numbers) -> Numbers:
    """The heads that one of `parts` ranks has.

    Raises:
        ShardingError: if the number of heads is not known.
        SizeError: for heads that this number of ranks cannot share.

    >>> heads_on(2, 4, Numbers(12, 6)), heads_on(2, 12, Numbers(24, 6))
    (Numbers(heads=2, kv_heads=1), Numbers(heads=2, kv_heads=1))
    """
    heads, kv_heads = _known(numbers)
    if parts > kv_heads:
        _refuse_unshared(("heads",), parts, heads, kv_heads)
        return Numbers(heads // parts, 1)
    own = partition(kv_heads, parts)[rank]
    return Numbers(own * (heads // kv_heads), own)


def _known(numbers: Numbers) -> tuple[int, int]:
    if numbers.heads is None or numbers.kv_heads is None:
        raise ShardingError(
            "config: names no heads, and the rule cuts between them; give a config with "
            "num_attention_heads, and num_key_value_heads if these are fewer"
        )
    return numbers.heads, numbers.kv_heads


def _each(n: int, count: int, what: str) -> int:
    if n % count:
        raise SizeError(f"{n} features do not divide into {what}: {count} equal parts")
    return n // count


def _listed(terms: Sequence[str], counts: Sequence[int]) -> str:
    return " + ".join(f"{n} {term}" for term, n in zip(terms, counts, strict=True))


def _refuse_unshared(terms: Sequence[str], parts: int, heads: int, kv_heads: int) -> None:
    """Refuse more ranks than key-value heads, unless they share the heads evenly."""
    shared = "groups" not in terms
    if shared and parts % kv_heads == 0 and heads % parts == 0:
        return
    most = heads if shared else kv_heads
    more = [f", {d}" for d in divisors(most) if d > kv_heads and d % kv_heads == 0]
    how = f"{heads} heads with {kv_heads} for keys and values"
    if not shared:
        how += ", in groups that cannot be copied without their queries"
    few = f"1 to {kv_heads}" if kv_heads > 1 else "1"
    raise SizeError(
        f"{how} cannot be shared by {parts} ranks. Numbers of ranks that can: {few}{''.join(more)}"
    )
