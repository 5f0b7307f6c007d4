"""Strided copies on a GPU, by one Triton kernel for torch and JAX.

Its modules, from the bottom up:

    side, tile      a copy cut into tiles
    plan            many of them, as a table of numbers
    copy            the kernel that runs a tile

Only `copy` needs Triton; the others are integers in, integers out.
"""
