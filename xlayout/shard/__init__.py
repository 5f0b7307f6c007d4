"""Shard: which part of an array each rank holds, and what must move when that changes.

Its modules, from the bottom up:

    mesh, split, sharding       which part of an array each rank holds
    spread, owners              the same as one relation; regions that the same ranks hold
    blocks, pairs, message      what each rank has for each other
    rounds, collective          messages as permutations, or as one collective
    pullback, explain, part     what would spare them; all of it in words; the share of one rank
    plan                        all of it, exact before anything runs
    placement, laid             shardings in the words of each framework; an array with its own
    targets, arrays             how results are to lie; how the arrays of a call do
    ranks, devices, spmd        a plan run by processes; by devices; as one program for all
    record                      as one call, for torch.compile
    execute, gather             `reshard` and `all_gather`
    sharded                     layouts and ops on sharded arrays
    wire                        the bytes that a function moves
"""

from xlayout.shard.execute import all_gather as all_gather
from xlayout.shard.execute import reshard as reshard
from xlayout.shard.mesh import Mesh as Mesh
from xlayout.shard.plan import Plan as Plan
from xlayout.shard.plan import plan_reshard as plan_reshard
from xlayout.shard.sharding import Sharding as Sharding
from xlayout.shard.split import Split as Split
from xlayout.shard.wire import wire_bytes as wire_bytes

__all__ = [
    "Mesh",
    "Plan",
    "Sharding",
    "Split",
    "all_gather",
    "plan_reshard",
    "reshard",
    "wire_bytes",
]
