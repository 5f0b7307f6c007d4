"""Tiled: linear layers as grids of small ones.

Its modules, from the bottom up:

    parameters  read and written as a whole, even if ranks hold parts of them
    checks      checks of arguments, before any tile is made
    input       the input of each column of tiles
    state       state dicts of a dense layer or of another grid, cut for this one
    linear      the layers
"""

from xlayout.torch.tiled.linear import TiledLinear as TiledLinear
from xlayout.torch.tiled.linear import TiledLinearReturnBias as TiledLinearReturnBias

__all__ = ["TiledLinear", "TiledLinearReturnBias"]
