"""Array layouts as values: one set of ops for torch, JAX and numpy; checkpoints port by it too."""

from xlayout.algebra import Cost as Cost
from xlayout.algebra import Layout as Layout
from xlayout.algebra import Piece as Piece
from xlayout.algebra import partition as partition
from xlayout.algebra.layout import _hooks
from xlayout.lower import apply as apply
from xlayout.lower import call as _call
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
from xlayout.ops import to_tiles as to_tiles
from xlayout.ops import trim as trim
from xlayout.ops import ungroup as ungroup
from xlayout.ops import unstack as unstack

__version__ = "0.1.0"

__all__ = [
    "Cost",
    "Layout",
    "Piece",
    "apply",
    "deinterleave",
    "from_tiles",
    "fuse_qkv",
    "interleave",
    "matrix_transpose",
    "pad",
    "partition",
    "permute_dims",
    "rearrange",
    "regroup",
    "rope_halves",
    "rope_pairs",
    "split_qkv",
    "stack",
    "to_tiles",
    "trim",
    "ungroup",
    "unstack",
]

_hooks["call"] = _call
