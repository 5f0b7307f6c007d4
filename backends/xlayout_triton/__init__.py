"""Strided copies on a GPU, by one Triton kernel for torch and JAX.

Its modules, from the bottom up:

    side, tile      a copy cut into tiles
    plan            many of them, as a table of numbers
    table           what a program reads there
    shift           how it moves a tile of rows that begin within words
    copy            the kernel, which moves all others

The last three need Triton; the others are integers in, integers out.
"""
