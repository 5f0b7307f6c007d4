"""Two checkpoints compared in their canonical form, whatever formats they are in.

Each tensor is read on both sides, converted back by its own rules, and compared: the second must be
what the first becomes, or the first what the second becomes, bit for bit (but if values change, any
NaN equals any other). The digest is that of the first's canonical bytes, so equal weights have
equal digests in every format.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from os import PathLike

from xlayout.algebra.shapes import boolean
from xlayout.errors import PortError
from xlayout.port.change import Change
from xlayout.port.checkpoint import Checkpoint, open_checkpoint
from xlayout.port.family import Family
from xlayout.port.fit import fit
from xlayout.port.fold import fold
from xlayout.port.formats.file_names import given_path
from xlayout.port.lanes import lanes_for, side_by_side
from xlayout.port.move import Buffers, Move
from xlayout.port.regions import read_tile
from xlayout.port.units import parse_bytes, show_count, show_share
from xlayout.table import Table, Tabled

__all__ = ["Comparison", "TensorComparison", "compare", "verify"]


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """One canonical tensor in two checkpoints.

    Args:
        name: Its canonical name.
        change: What happens to its values from the first to the second.
        size: The number of its elements.
        not_forward: Elements of the second that are not what the first becomes.
        not_back: Elements of the first that are not what the second becomes.
        overflowed: Elements that are finite on one side, but beyond the dtype's range on the other.
        digest: BLAKE2b of the first's canonical bytes; empty if it was not asked for.
    """

    name: str
    change: Change
    size: int
    not_forward: int
    not_back: int
    overflowed: int
    digest: str

    @property
    def verdict(self) -> str:
        """How the two relate to each other."""
        if self.identical:
            return "identical"
        if not self.not_back:
            return f"first rounded from second{self._beyond}"
        if not self.not_forward:
            share = show_share(self.not_back, self.size)
            return f"second rounded: {share} do not come back{self._beyond}"
        return f"{min(self.not_back, self.not_forward):,} of {self.size:,} elements differ"

    @property
    def _beyond(self) -> str:
        return f", {self.overflowed:,} overflowed" if self.overflowed else ""

    @property
    def identical(self) -> bool:
        """Whether each side is exactly what the rules make of the other."""
        return not (self.not_back or self.not_forward)

    @property
    def faithful(self) -> bool:
        """Whether one side is exactly what the rules make of the other."""
        return not (self.not_back and self.not_forward)


@dataclass(frozen=True, slots=True)
class Comparison(Tabled):
    """All of two checkpoints' tensors, compared.

    Args:
        first: The path of the first.
        second: The path of the second.
        tensors: Every canonical tensor that both have.
        only_first: Canonical tensors that only the first has.
        only_second: Canonical tensors that only the second has.
    """

    first: str
    second: str
    tensors: tuple[TensorComparison, ...]
    only_first: tuple[str, ...] = ()
    only_second: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether every tensor of each side is what the rules make of the other's."""
        return not self._alone and all(tensor.identical for tensor in self.tensors)

    @property
    def faithful(self) -> bool:
        """Whether every tensor of one side is what the rules make of the other's."""
        return not self._alone and all(tensor.faithful for tensor in self.tensors)

    @property
    def ported(self) -> bool:
        """Whether every tensor of the second is what the rules make of the first's."""
        return not self._alone and not any(tensor.not_forward for tensor in self.tensors)

    @property
    def _alone(self) -> int:
        """How many tensors are in only one of the two."""
        return len(self.only_first) + len(self.only_second)

    @property
    def summary(self) -> str:
        """What was found, in one line."""
        count = show_count(len(self.tensors) + self._alone, "canonical tensor")
        if self.identical:
            return f"{count}, every element identical"
        if bad := self._alone + sum(not tensor.faithful for tensor in self.tensors):
            return f"{count}, {bad} differ"
        if overflowed := sum(tensor.overflowed for tensor in self.tensors):
            return f"{count}, each rounded; {show_count(overflowed, 'element')} overflowed"
        where = "in the second" if self.ported else "on one side or the other"
        rounded = sum(not tensor.identical for tensor in self.tensors)
        some = "each" if rounded == len(self.tensors) else f"{rounded:,} of them"
        return f"{count}, {some} rounded {where}"

    def _table(self) -> Table:
        groups: dict[tuple[str, str], list[TensorComparison]] = {}
        for tensor in self.tensors:
            groups.setdefault((tensor.verdict, str(tensor.change)), []).append(tensor)
        rows = [
            (name, dtype, verdict)
            for (verdict, dtype), tensors in groups.items()
            for name in fold(tensor.name for tensor in tensors)
        ]
        rows += [(name, "", "only in the first") for name in fold(self.only_first)]
        rows += [(name, "", "only in the second") for name in fold(self.only_second)]
        title = f"{self.first} ~ {self.second}"
        warn = "" if self.identical else "!"
        return Table(title, ("tensor", "dtype", "verdict"), tuple(rows), (warn + self.summary,))


def verify(
    a: str | PathLike[str],
    b: str | PathLike[str],
    *,
    family: str | Family | None = None,
    max_ram: int | str = "512MiB",
    digests: bool = True,
) -> Comparison:
    """Compare two checkpoints tensor by tensor in canonical form, whatever their formats.

    Args:
        a: A checkpoint.
        b: Another one of the same model.
        family: The rules to follow; None goes by each config's `architectures`.
        max_ram: The most memory that tensor data may take.
        digests: Whether to compute a digest of each tensor of the first, which takes as long as
            everything else.

    Raises:
        FormatError: One of them is broken.
        PortError: One of them does not match its rules.
        TypeError: `digests` is neither True nor False, or another argument has a wrong type.

    >>> from xlayout.port.demo.weights import make_tiny
    >>> from xlayout.port import run
    >>> gguf = make_tiny()  # a Llama of two layers, in a temporary folder
    >>> rounded = gguf.with_name("hf")
    >>> report = run(gguf, rounded, to="hf", dtype="bfloat16", exact=False)
    >>> verify(gguf, rounded).summary
    '20 canonical tensors, each rounded in the second'
    """
    boolean(digests, "digests")
    budget = parse_bytes(max_ram)
    a, b = given_path(a, "a"), given_path(b, "b")
    with open_checkpoint(a, family=family) as first, open_checkpoint(b, family=family) as second:
        return compare(first, second, max_ram=budget, digests=digests)


def compare(first: Checkpoint, second: Checkpoint, /, *, max_ram: int, digests: bool) -> Comparison:
    """Compare two open checkpoints; see `verify`.

    Raises:
        PortError: The two are not models of the same family and sizes.
    """
    names = f"{first.family.name} and {second.family.name}"
    paths = f"{first.source.path} and {second.source.path}"
    if first.family is not second.family:
        raise PortError(
            f"{paths}: {names}; wanted one family: if both follow it, name it with family= "
            "(--family)"
        )
    if odd := sorted(name for name, n in first.sizes.items() if second.sizes[name] != n):
        raise PortError(f"{paths}: {names} differ in {odd}; wanted models of one size")
    both = [name for name in first.places if name in second.places]
    pairs = fit([[first.homeward(name), second.homeward(name)] for name in both], max_ram)
    found: dict[str, TensorComparison] = {}

    def ended(tensor: TensorComparison) -> None:
        found[tensor.name] = tensor

    nbytes = max(sum(move.need for move in pair) for pair in pairs)
    held = max(move.held for pair in pairs for move in pair)
    jobs = (partial(_compare, first, second, pair, digests) for pair in pairs)
    side_by_side(jobs, ended, lanes=lanes_for(nbytes + held, max_ram), nbytes=nbytes)
    return Comparison(
        first=str(first.source.path),
        second=str(second.source.path),
        tensors=tuple(found[name] for name in both),
        only_first=tuple(name for name in first.places if name not in second.places),
        only_second=tuple(name for name in second.places if name not in first.places),
    )


def _compare(
    first: Checkpoint, second: Checkpoint, pair: tuple[Move, ...], digests: bool, buffers: Buffers
) -> TensorComparison:
    a, b = pair
    scales = second.scale(b.source), first.scale(a.source)
    change = Change(a.change.source, b.change.source, *scales)
    digest, behind = hashlib.blake2b(digest_size=16), a.need
    not_forward = not_back = overflowed = 0
    for one, other in zip(a.tiles(), b.tiles(), strict=True):
        x = read_tile(first.source, a, one, buffers)
        y = read_tile(second.source, b, other, buffers, behind)
        if digests:
            digest.update(x.reshape(-1).view("u1").data)
        forward = change.departures(x, y)
        back = forward if change.is_nothing else change.losses(x, y)
        not_forward += forward
        not_back += back
        overflowed += change.overflows(x, y) if forward or back else 0
    return TensorComparison(
        name=a.source.name,
        change=change,
        size=a.layout().size,
        not_forward=not_forward,
        not_back=not_back,
        overflowed=overflowed,
        digest=digest.hexdigest() if digests else "",
    )
