"""Shard: which part of an array each rank holds, and what must move when that changes.

Its modules, from the bottom up:

    mesh, split, sharding       which part of an array each rank holds
    spread, owners              a sharding as one relation; regions that the same ranks hold
    blocks, pairs, message      what each rank sends to each other rank
    rounds, collective          messages as permutations, or as one collective
    pullback, explain, part     a source that needs no messages; a plan as text; one rank's part
    plan                        all messages of a reshard, exact before anything runs
    placement, sharded_array    shardings as each framework expresses them; an array with its own
    targets, arrays             the shardings of results; those of the arrays of a call
    ranks, devices, spmd        a plan run by processes; by devices; as one SPMD program
    record                      a call as one node of the graph of torch.compile
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
