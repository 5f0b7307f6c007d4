"""Integers in, integers out: layouts as values, and what combines them."""

from xlayout.algebra.cost import Cost as Cost
from xlayout.algebra.layout import Layout as Layout
from xlayout.algebra.partition import partition as partition
from xlayout.algebra.piece import Piece as Piece

__all__ = ["Cost", "Layout", "Piece", "partition"]
