"""Shard: which part of an array each rank holds, and what must move when that changes."""

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
