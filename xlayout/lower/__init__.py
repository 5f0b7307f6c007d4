"""Lower: the one place where layouts meet arrays.

Its modules, from the bottom up:

    named, answers     functions under names, results and errors as values: for compilers
    fill               checks of fill values
    moves              a layout as strided copies
    relayout           a layout as one split, permutation and merge, if it is no more than that
    tuned, bound       its program, rewritten for eager calls; as one function of a backend
    holes              holes filled in place, or as copies
    linear             a layout as one value, for backends that have an operation for it
    writes             functions that write into `out=`, to be cached
    recipe             chooses among these, for one layout and one backend
    calls              a recipe as the framework should call it: compiled, or as it is
    traced             the program inside a compiler
    constant_call      a shorter way there, if all but the elements is constant
    run                the entry point: `layout(x)`
    donated            a layout in the memory of its input
    native             the switch of the copy kernel

A call first asks its backend for the function that served an earlier call like it (`find`). Only
the first call of its kind goes through `run` or an op's engine, `calls` and `recipe`.
"""

from xlayout.lower.run import call as call

__all__ = ["call"]
