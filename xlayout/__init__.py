"""Array layouts as values: one algebra for ops in torch, JAX and numpy, and for checkpoints.

Layouts    Layout, Piece, Cost, partition
Ops        interleave, deinterleave, matrix_transpose, permute_dims, rope_halves, rope_pairs,
           fuse_qkv, split_qkv, regroup, ungroup, to_tiles, from_tiles, stack, unstack, pad, trim,
           rearrange, tiled_linear; apply and apply_many run any layout; `interleave.layout(shape)`
           is the layout of an op
Exchange   to_torch, to_jax, to_numpy; for sharded arrays shards_to_jax, jax_to_shards,
           dtensor_to_jax, jax_to_dtensor
Sharding   Mesh, Sharding, Split, plan_reshard, Plan, reshard, all_gather, wire_bytes
Models     tp: tensor parallelism; xlayout.torch and xlayout.jax: what is specific to one framework
Ports      xlayout.port: checkpoints from one format to another (imported on its own)
Switch     native: where the copy kernel may be used
Errors     LayoutError, and a subclass for each kind
"""

from importlib import import_module as _import
from typing import TYPE_CHECKING, Any

from xlayout.algebra import Cost as Cost
from xlayout.algebra import Layout as Layout
from xlayout.algebra import Piece as Piece
from xlayout.algebra import partition as partition
from xlayout.bridge import dtensor_to_jax as dtensor_to_jax
from xlayout.bridge import jax_to_dtensor as jax_to_dtensor
from xlayout.bridge import jax_to_shards as jax_to_shards
from xlayout.bridge import shards_to_jax as shards_to_jax
from xlayout.bridge import to_jax as to_jax
from xlayout.bridge import to_numpy as to_numpy
from xlayout.bridge import to_torch as to_torch
from xlayout.errors import AxisError as AxisError
from xlayout.errors import CompositionError as CompositionError
from xlayout.errors import FormatError as FormatError
from xlayout.errors import InverseError as InverseError
from xlayout.errors import LayoutError as LayoutError
from xlayout.errors import PatternError as PatternError
from xlayout.errors import PortError as PortError
from xlayout.errors import ShapeError as ShapeError
from xlayout.errors import ShardingError as ShardingError
from xlayout.errors import SizeError as SizeError
from xlayout.lower import call as _call
from xlayout.lower.native import native as native
from xlayout.ops import deinterleave as deinterleave
from xlayout.ops import from_tiles as from_tiles
from xlayout.ops import fuse_qkv as fuse_qkv
from xlayout.ops import interleave as interleave
from xlayout.ops import matrix_transpose as matrix_transpose
from xlayout.ops import pad as pad
from xlayout.ops import permute_dims as permute_dims
from xlayout.ops import rearrange as rearrange
from xlayout.ops import regroup as regroup
from xlayout.ops import rope_halves as rope_halves
from xlayout.ops import rope_pairs as rope_pairs
from xlayout.ops import split_qkv as split_qkv
from xlayout.ops import stack as stack
from xlayout.ops import tiled_linear as tiled_linear
from xlayout.ops import to_tiles as to_tiles
from xlayout.ops import trim as trim
from xlayout.ops import ungroup as ungroup
from xlayout.ops import unstack as unstack
from xlayout.ops.apply import apply as apply
from xlayout.ops.many import apply_many as apply_many

if TYPE_CHECKING:
    from xlayout import tp as tp
    from xlayout.shard import Mesh as Mesh
    from xlayout.shard import Plan as Plan
    from xlayout.shard import Sharding as Sharding
    from xlayout.shard import Split as Split
    from xlayout.shard import all_gather as all_gather
    from xlayout.shard import plan_reshard as plan_reshard
    from xlayout.shard import reshard as reshard
    from xlayout.shard import wire_bytes as wire_bytes

__version__ = "0.1.0"

__all__ = [
    "AxisError",
    "CompositionError",
    "Cost",
    "FormatError",
    "InverseError",
    "Layout",
    "LayoutError",
    "Mesh",
    "PatternError",
    "Piece",
    "Plan",
    "PortError",
    "ShapeError",
    "Sharding",
    "ShardingError",
    "SizeError",
    "Split",
    "all_gather",
    "apply",
    "apply_many",
    "deinterleave",
    "dtensor_to_jax",
    "from_tiles",
    "fuse_qkv",
    "interleave",
    "jax_to_dtensor",
    "jax_to_shards",
    "matrix_transpose",
    "native",
    "pad",
    "partition",
    "permute_dims",
    "plan_reshard",
    "rearrange",
    "regroup",
    "reshard",
    "rope_halves",
    "rope_pairs",
    "shards_to_jax",
    "split_qkv",
    "stack",
    "tiled_linear",
    "to_jax",
    "to_numpy",
    "to_tiles",
    "to_torch",
    "tp",
    "trim",
    "ungroup",
    "unstack",
    "wire_bytes",
]


if not TYPE_CHECKING:  # else a type checker would accept any name

    def __getattr__(name: str) -> Any:
        # Sharding is a tenth of the import time, and most programs use one device.
        if name not in __all__:
            raise AttributeError(f"module 'xlayout' has no attribute {name!r}")
        from xlayout import shard

        value = globals()[name] = _import("xlayout.tp") if name == "tp" else getattr(shard, name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


def _draw(layout: Layout, /) -> str:
    """The layout as an SVG picture: both index spaces, every element in its colour."""
    from xlayout.draw import draw  # rarely needed, and not free

    return draw(layout)


Layout.__call__ = _call  # type: ignore[method-assign]
Layout.draw = _draw  # type: ignore[method-assign]
