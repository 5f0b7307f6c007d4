"""Strided copies on a GPU, by one Triton kernel for torch and JAX.

Its modules, from the bottom up:

    side            what lies side by side in a tile's input or output
    shape           which axes a tile spans, and how far
    words           which copies are moved in words that rows share
    tile            a copy cut into tiles
    plan            many of them, as a table of numbers
    uncompiled      what is said where there is no kernel for them
    table, chain    what a program reads there, and what it waits for
    permute         words put together from the bytes of others
    shift, narrow   how it moves a tile in words: of long rows, and of a few columns or rows
    copy            the kernel, which moves all others

The last six need Triton; the others are integers in, integers out.
"""
