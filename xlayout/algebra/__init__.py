"""Integers in, integers out: layouts as values, and what combines them.

Its modules, from the bottom up:

    shapes                       checks that all entry points share
    piece                        one affine box: pairs of input and output positions
    fingerprint, merge           one number for a set of boxes; fewer boxes, the same pairs
    join, near, compose          where two boxes meet; sets of boxes composed and compared
    strided                      boxes as copies between addresses, and as views
    index                        the table that boxes stand for: the oracle
    boxes, program, assemble     a layout as reshape, permute, slice and concatenate
    grammar, solver, pattern     from text to boxes
    naming, notation, jsonable   from boxes to text, and back
    constructors                 the layouts from which all others are made
    relation                     boxes between two lists of arrays
    cost                         what a run will read, write and hold
    layout                       all of that, as one value
    partition                    a size shared out among parts
"""

from xlayout.algebra.cost import Cost as Cost
from xlayout.algebra.layout import Layout as Layout
from xlayout.algebra.partition import partition as partition
from xlayout.algebra.piece import Piece as Piece

__all__ = ["Cost", "Layout", "Piece", "partition"]
