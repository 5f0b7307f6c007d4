"""Integers in, integers out: layouts as values, and operations on them.

Its modules, from the bottom up:

    shapes                       checks that all entry points share
    piece                        one affine box: pairs of input and output positions
    fingerprint, merge           one number for a set of boxes; fewer boxes, the same pairs
    join, near, compose          where two boxes meet; sets of boxes composed and compared
    strided                      boxes as copies between addresses, and as views
    index                        a layout as an index table: the oracle of tests
    boxes, program, assemble     a layout as reshape, permute, slice and concatenate
    grammar, solver, pattern     from text to boxes
    naming, notation, jsonable   from boxes to text, and back
    constructors                 the layouts from which all others are made
    relation                     boxes between two lists of arrays
    cost                         the bytes that a run reads, writes and holds
    layout                       `Layout`: a relation with constructors, text and cost
    partition                    sizes of the parts of an axis
"""

from xlayout.algebra.cost import Cost as Cost
from xlayout.algebra.layout import Layout as Layout
from xlayout.algebra.partition import partition as partition
from xlayout.algebra.piece import Piece as Piece

__all__ = ["Cost", "Layout", "Piece", "partition"]
