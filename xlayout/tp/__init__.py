"""Tensor parallelism: one model on several ranks, in torch and in JAX.

    plan = tp.plan(model, 8)              # which part of every weight each rank holds
    part = tp.shard(weights, plan, rank)  # the weights of one rank; `tp.merge` undoes it
    model = tp.parallelize(model, mesh)   # a model that runs on all ranks

Its modules, from the bottom up:

    numbers, features   head counts, and how an axis made of heads is cut
    rules, presets      how layers are cut, as data
    tree                nested weights by dotted names
    value, agreement    the plan; checks for weights that contradict it
    planning            the sharding of every weight, from names and shapes
    state               the weights of one rank; the weights of all ranks merged
    run                 a model made to run on several ranks
"""

from xlayout.tp.planning import plan as plan
from xlayout.tp.presets import PRESETS as PRESETS
from xlayout.tp.rules import Rule as Rule
from xlayout.tp.run import parallelize as parallelize
from xlayout.tp.state import merge as merge
from xlayout.tp.state import shard as shard
from xlayout.tp.value import TensorPlan as TensorPlan

__all__ = ["PRESETS", "Rule", "TensorPlan", "merge", "parallelize", "plan", "shard"]
