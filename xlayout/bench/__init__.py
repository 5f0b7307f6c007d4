"""Bench: xlayout beside the frameworks, in units of memcpy.

Its modules, from the bottom up:

    machine                       what figures depend on besides the code
    hands, case, edges, cases     kinds of op; one at one size; the ops that are raced
    answers                       the answer that each must give
    timing, pages, peak           calls timed in turns; free pages at hand; the most a call holds
    words, contest                an op as one writes it by hand; the calls of one race
    by_numpy, by_torch, by_jax    these for each framework
    frameworks                    which are installed, and the contest of each
    rows, tables                  what was measured, as values and as text
    command                       `xlayout bench`
"""
