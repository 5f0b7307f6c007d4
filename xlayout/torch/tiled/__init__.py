"""Tiled: linear layers as grids of small ones.

Its modules, from the bottom up:

    parameters  read and written whole, though ranks may hold them in parts
    checks      arguments, before any tile is made
    input       what each column of tiles is given
    state       state dicts of a dense layer or of another grid, cut anew
    linear      the layers
"""

from xlayout.torch.tiled.linear import TiledLinear as TiledLinear
from xlayout.torch.tiled.linear import TiledLinearReturnBias as TiledLinearReturnBias

__all__ = ["TiledLinear", "TiledLinearReturnBias"]
