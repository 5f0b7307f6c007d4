"""Fingerprint: one number for a set of pairs, however it is cut into pieces.

It is the sum of r^i * s^o over all pairs (i, o), for two fixed numbers r and s, modulo the prime
2^61 - 1. The sum over a piece is a product of geometric sums, so it takes a few modular powers and
no loop over elements; two ways to cut the same pairs give the same sum.
"""

from __future__ import annotations

from collections.abc import Iterable

from xlayout.algebra.piece import Piece

__all__ = ["fingerprint"]

_PRIME = (1 << 61) - 1
_R, _S = 0x1234567_89ABCDE5, 0x0FEDCBA_98765431  # arbitrary; fixed, so that runs are repeatable


def fingerprint(pieces: Iterable[Piece]) -> int:
    """The sum over all pairs of r^in * s^out, modulo 2^61 - 1."""
    total = 0
    for piece in pieces:
        term = _power(piece.in_offset, piece.out_offset)
        for n, x, z in piece.loops:
            term = term * _geometric(_power(x, z), n) % _PRIME
        total += term
    return total % _PRIME


def _power(x: int, z: int) -> int:
    return pow(_R, x, _PRIME) * pow(_S, z, _PRIME) % _PRIME


def _geometric(q: int, n: int) -> int:
    """1 + q + ... + q^(n-1)."""
    if q == 1:
        return n % _PRIME
    return (pow(q, n, _PRIME) - 1) * pow(q - 1, -1, _PRIME) % _PRIME
