"""Strided copies on a GPU, by one Triton kernel for torch and JAX.

Its modules, from the bottom up:

    side            what lies side by side in a tile's input or output
    shape, tile     a copy cut into tiles
    plan            many of them, as a table of numbers
    uncompiled      what is said where there is no kernel for them
    table, chain    what a program reads there, and what it waits for
    shift           how it moves a tile of rows that begin within words
    copy            the kernel, which moves all others

The last four need Triton; the others are integers in, integers out.
"""
