"""Checkpoints ported by rules that are data: planned from headers, streamed, and proven.

    from xlayout import port

    print(port.plan("SmolLM2-135M-Instruct", "out", to="maxtext"))    # nothing is written
    print(port.run("SmolLM2-135M-Instruct", "out", to="maxtext"))
    print(port.verify("SmolLM2-135M-Instruct", "out"))

The functions here are the verbs of the command line; what they return prints itself.

Its modules, from the bottom up:

    rules, places, family                 the layout of each tensor in a format, as data
    change, units                         changes of values; bytes as text
    formats                               files: tensors read and written a region at a time
    families                              the rules of Llama, Mistral, Qwen and related models
    configs, rope_factors, gguf_metadata  what config and metadata say about a model
    fold, foreign, account                names as ranges; every name accounted for
    move, regions, losses                 how one tensor is moved, and which of its values are lost
    lanes, fit, stream                    tensors moved tile by tile in bounded memory
    spoken, unwrapped, twice, checkpoint  a checkpoint opened as a member of a family
    ranks                                 the parts that the ranks of a mesh hold
    companions, refusals                  files that are copied along; arguments that are refused
    show_plan, value, plan                everything that a port will do, also as a table
    stamps, verify, resume, run           the plan carried out, resumed and compared
    inspect, show_family, bar             what else the command line shows
    demo                                  a real model, there and back
"""

from __future__ import annotations

from xlayout.port.families import families as families
from xlayout.port.family import Dialect as Dialect
from xlayout.port.family import Family as Family
from xlayout.port.inspect import Difference as Difference
from xlayout.port.inspect import Inspection as Inspection
from xlayout.port.inspect import diff as diff
from xlayout.port.inspect import inspect as inspect
from xlayout.port.plan import plan as plan
from xlayout.port.rules import Part as Part
from xlayout.port.rules import Power as Power
from xlayout.port.rules import Rule as Rule
from xlayout.port.run import Report as Report
from xlayout.port.run import run as run
from xlayout.port.value import PortPlan as PortPlan
from xlayout.port.verify import Comparison as Comparison
from xlayout.port.verify import verify as verify

__all__ = [
    "Comparison",
    "Dialect",
    "Difference",
    "Family",
    "Inspection",
    "Part",
    "PortPlan",
    "Power",
    "Report",
    "Rule",
    "diff",
    "families",
    "inspect",
    "plan",
    "run",
    "verify",
]
