"""The ops: each written once, as a function from a shape to a Layout."""

from xlayout.ops.axes import matrix_transpose as matrix_transpose
from xlayout.ops.axes import permute_dims as permute_dims
from xlayout.ops.interleave import deinterleave as deinterleave
from xlayout.ops.interleave import interleave as interleave
from xlayout.ops.linear import tiled_linear as tiled_linear
from xlayout.ops.padding import pad as pad
from xlayout.ops.padding import trim as trim
from xlayout.ops.pattern import rearrange as rearrange
from xlayout.ops.qkv import fuse_qkv as fuse_qkv
from xlayout.ops.qkv import split_qkv as split_qkv
from xlayout.ops.rope import rope_halves as rope_halves
from xlayout.ops.rope import rope_pairs as rope_pairs
from xlayout.ops.segments import regroup as regroup
from xlayout.ops.segments import ungroup as ungroup
from xlayout.ops.stack import stack as stack
from xlayout.ops.stack import unstack as unstack
from xlayout.ops.tiles import from_tiles as from_tiles
from xlayout.ops.tiles import to_tiles as to_tiles

__all__ = [
    "deinterleave",
    "from_tiles",
    "fuse_qkv",
    "interleave",
    "matrix_transpose",
    "pad",
    "permute_dims",
    "rearrange",
    "regroup",
    "rope_halves",
    "rope_pairs",
    "split_qkv",
    "stack",
    "tiled_linear",
    "to_tiles",
    "trim",
    "ungroup",
    "unstack",
]
