"""Plan: a layout between two shardings as the messages it takes, exact before anything runs.

`S_in⁻¹ >> L >> S_out` is again a layout, from what the ranks store before to what they store after.
Its block from rank r to rank c is the message that r sends c. Of the ranks that hold an element one
sends it, so every rank receives exactly what it needs and does not have: the lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from xlayout.algebra import Layout, Piece
from xlayout.algebra.compose import compose
from xlayout.algebra.layout import check_layout
from xlayout.algebra.piece import Parts
from xlayout.algebra.shapes import Shape, integer
from xlayout.errors import CompositionError, ShapeError, SizeError
from xlayout.lower.run import check_shapes
from xlayout.registry import backend_of
from xlayout.shard.blocks import Block, Blocks
from xlayout.shard.collective import Collective, as_collective, remote
from xlayout.shard.explain import explained
from xlayout.shard.message import Form, Message, bare, form_of
from xlayout.shard.owners import held, local_shapes
from xlayout.shard.pairs import Pairs
from xlayout.shard.part import Part, part_of, simulated
from xlayout.shard.pullback import pull, witnesses
from xlayout.shard.rounds import Round, in_rounds
from xlayout.shard.sharding import Sharding
from xlayout.shard.spread import has_owners

__all__ = ["Plan", "plan_reshard"]

P = ParamSpec("P")
T = TypeVar("T")
Side = tuple[Sharding, ...]  # one for each array


def _once(method: Callable[Concatenate[Plan, P], T]) -> Callable[Concatenate[Plan, P], T]:
    """Cache the results of a method on the plan."""

    @wraps(method)
    def cached(plan: Plan, /, *args: P.args, **named: P.kwargs) -> T:
        key = method, *args, *named.values()
        if key not in plan._memo:
            plan._memo[key] = method(plan, *args, **named)
        return plan._memo[key]  # type: ignore[no-any-return]

    return cached


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How a layout runs from one sharding to another, message by message; see `plan_reshard`.

    >>> import numpy as np
    >>> from xlayout import Layout, Mesh, Sharding
    >>> tp = Mesh(2, "tp")
    >>> halves, whole = Sharding(tp, ("tp",)), Sharding(tp, ())
    >>> plan = plan_reshard(Layout.identity((6,)), halves, whole, itemsize=4)
    >>> [(m.src, m.dst, m.elements) for m in plan.messages]
    [(0, 0, 3), (1, 0, 3), (0, 1, 3), (1, 1, 3)]
    >>> plan.simulate(np.arange(6)).tolist()
    [0, 1, 2, 3, 4, 5]
    >>> print(plan)
    from (6,) (tp) on tp=2
    to   (6,) () on tp=2
    by   a=6 -> a
    24 B in 2 messages, at most 12 B to one rank; 1.00x the 24 B that ranks need and do not have
    in one all_gather among 2 ranks
      0 <- 1: 12 B
      1 <- 0: 12 B
    local if it came from () on tp=2
    """

    layout: Layout
    src: Side
    dst: Side
    itemsize: int
    _memo: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @_once
    def stores(self, rank: int) -> tuple[Shape, ...]:
        """The shapes of a rank's local arrays before."""
        return local_shapes(self.src, self.layout.in_shapes, rank)

    @_once
    def makes(self, rank: int) -> tuple[Shape, ...]:
        """The shapes of a rank's local arrays after."""
        return local_shapes(self.dst, self.layout.out_shapes, rank)

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.src[0].mesh.size

    # -- what moves -------------------------------------------------------------------------------

    @property
    @_once
    def messages(self) -> tuple[Message, ...]:
        """All messages by receiver, including what a rank keeps, as one to itself."""
        return tuple(m for d in range(self.ranks) for m in self.received(d))

    @_once
    def received(self, rank: int) -> tuple[Message, ...]:
        """The messages to one rank, in the order of the senders.

        Raises:
            SizeError: for a rank that the mesh does not have.
        """
        self.makes(rank)  # raises for a rank that does not exist
        return tuple(self._message(b[0], rank, *b[1:]) for b in self.arriving(rank))

    @_once
    def sent(self, rank: int) -> tuple[Message, ...]:
        """The messages from one rank, in the order of the receivers; raises as `received`."""
        self.stores(rank)
        return tuple(self._message(rank, *b) for b in self.blocks.sent(rank))

    @property
    @_once
    def blocks(self) -> Blocks | Pairs:
        """The messages in the compact form from which `Message` objects are made."""
        if all(map(has_owners, self.src, self.layout.in_shapes)):
            with suppress(CompositionError):  # between all ranks at once it may be too many pieces
                return Blocks(self.layout, self.src, self.dst, self.stores, self.makes)
        return Pairs(self.layout, self.src, self.dst)

    @_once
    def arriving(self, rank: int) -> list[Block]:
        """What `received` is made from; thousands of ranks need no objects for every two."""
        return self.blocks.received(rank)

    def _message(self, src: int, dst: int, at: int, there: int, form: Form) -> Message:
        moved = tuple(p.shifted(at, there) for p in form.pieces)
        return Message(src, dst, Layout._of((self.stores(src), self.makes(dst), moved)))

    @_once
    def _to(self, dst: int) -> tuple[Piece, ...]:
        return held(self.dst, self.layout.out_shapes, dst)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled without its cache, which is filled again on demand.
        return _planned, (self.layout._parts, self.src, self.dst, self.itemsize)

    # -- figures ----------------------------------------------------------------------------------

    @property
    @_once
    def is_local(self) -> bool:
        """Whether no rank has to receive anything from another."""
        return next(remote(self), None) is None

    @property
    def recv_bytes(self) -> tuple[int, ...]:
        """Bytes that each rank receives from others."""
        found = [0] * self.ranks
        for _, dst, _, form in remote(self):
            found[dst] += form.size * self.itemsize
        return tuple(found)

    @property
    def lower_bound(self) -> tuple[int, ...]:
        """Bytes that each rank needs and does not hold yet: no exchange can move fewer."""
        bound = []
        for d in range(self.ranks):
            need = compose(self.layout.pieces, self._to(d))
            has = compose((p.inverse() for p in held(self.src, self.layout.in_shapes, d)), need)
            wanted, there = (form_of(bare(pieces))[2].size for pieces in (need, has))
            bound.append((wanted - there) * self.itemsize)
        return tuple(bound)

    @property
    @_once
    def rounds(self) -> tuple[Round, ...]:
        """The remote messages as rounds: permutations of the ranks with messages of one size."""
        return in_rounds(self.messages, self.ranks)

    @property
    @_once
    def collective(self) -> Collective | None:
        """The one collective that is equivalent to all remote messages, or None."""
        return as_collective(self)

    def pullback(self) -> Sharding | tuple[Sharding, ...]:
        """The source sharding that would need no communication; one per input if there are several.

        Raises:
            SizeError: if there is none, with the cut at fault and the cuts that would work.

        >>> from xlayout import Layout, Mesh, Sharding
        >>> glu, rows = Layout.parse("(g n) -> (n g)", (8,), g=2), Sharding(Mesh(2, "tp"), ("tp",))
        >>> print(plan_reshard(glu, rows, rows).pullback())
        (tp, axis 0 by ceil in 2 segments) on tp=2
        """
        found = self._pulled()
        if isinstance(found, str):
            raise SizeError(found)
        return found[0] if len(found) == 1 else found

    @_once
    def _pulled(self) -> tuple[Sharding, ...] | str:
        """The shardings of `pullback`, or why there are none."""
        try:
            for ranks in (witnesses(self.dst[0].mesh), range(self.ranks)):
                needs = {d: compose(self.layout.pieces, self._to(d)) for d in ranks}
                found = pull(self.layout, self.dst, needs)
                if plan_reshard(self.layout, found, self.dst).is_local:
                    break  # a few ranks were enough, as they nearly always are
        except SizeError as error:
            return str(error)
        return found

    def explain(self) -> str:
        """What moves where, what it costs, and which source sharding would need no exchange."""
        return explained(self)

    __str__ = explain

    @_once
    def part(self, rank: int) -> Part:
        """What one rank does: layouts, and sizes of the exchange between; raises as `received`."""
        return part_of(self, rank)

    def simulate(self, x: Any) -> Any:
        """The global result, by running every rank's part one after the other.

        Args:
            x: the whole array, or a tuple of them; of any framework.

        Raises:
            TypeError: for a value that is not an array.
            ShapeError: for arrays of other shapes than the layout takes.
        """
        arrays = tuple(x) if isinstance(x, (tuple, list)) else (x,)
        for array in arrays:
            backend_of(array)  # raises for a value that is not an array
        check_shapes(self.layout, arrays)
        return simulated(self, arrays)


def plan_reshard(
    layout: Layout,
    src: Sharding | Sequence[Sharding],
    dst: Sharding | Sequence[Sharding],
    *,
    itemsize: int = 1,
) -> Plan:
    """Plan how a layout runs from one sharding to another: every message, exactly; cached.

    Args:
        layout: the layout of whole arrays; `Layout.identity(shape)` to change only the sharding.
        src: sharding of the inputs: one for all, or one each.
        dst: sharding of the outputs, likewise.
        itemsize: bytes of an element, for the byte counts.

    Raises:
        SizeError: for meshes of different sizes, or an axis that a sharding cannot cut.
        ShapeError: for another number of shardings than arrays, no arrays, or too few axes.

    >>> from xlayout import Layout, Mesh, Sharding
    >>> tp = Mesh(4, "tp")
    >>> rows, columns = Sharding(tp, ("tp",)), Sharding(tp, (None, "tp"))
    >>> plan = plan_reshard(Layout.identity((8, 8)), rows, columns, itemsize=4)
    >>> plan.recv_bytes, plan.lower_bound, len(plan.rounds)
    ((48, 48, 48, 48), (48, 48, 48, 48), 3)
    >>> plan_reshard(Layout.permute((8, 8), (1, 0)), rows, columns).is_local
    True
    """
    check_layout(layout, "layout", "plan_reshard(layout, src, dst)")
    sides = []
    for name, given, shapes in (("src", src, layout.in_shapes), ("dst", dst, layout.out_shapes)):
        several = tuple(given) if isinstance(given, Sequence) else (given,) * len(shapes)
        for sharding in several:
            if not isinstance(sharding, Sharding):
                raise TypeError(f"{name}: {sharding!r}; wanted a Sharding")
        if len(several) != len(shapes):
            raise ShapeError(f"{name}: {len(several)} shardings for {len(shapes)} arrays")
        if not several:
            raise ShapeError(f"{name}: the layout has no arrays there; wanted at least one")
        sides.append(several)
    meshes = {sharding.mesh for side in sides for sharding in side}
    if len({mesh.size for mesh in meshes}) != 1:
        found = ", ".join(sorted(f"({mesh}) of {mesh.size}" for mesh in meshes))
        raise SizeError(f"src, dst: meshes {found} ranks; wanted the same ranks on both sides")
    # Cached by pieces, not by value: all ranks must compute the same order on the wire.
    return _planned(layout._parts, *sides, integer(itemsize, "itemsize", 1))


@lru_cache(1024)
def _planned(parts: Parts, src: Side, dst: Side, itemsize: int) -> Plan:
    plan = Plan(Layout._of(parts), src, dst, itemsize)
    _ = plan.stores(0), plan.makes(0)  # raises for shapes that the shardings cannot cut
    return plan
