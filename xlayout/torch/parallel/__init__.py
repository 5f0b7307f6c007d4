"""Parallel: modules of torch on several ranks, each with its part of the weights.

Its modules, from the bottom up:

    line        the ranks; sums and gathers between them, with their gradients
    roles       what a layer sends before it runs and after
    refusals    which layers cannot have one
    assignment  which role each module has, by a plan
    heads       the numbers of heads that attention believes in
    saving      what would write one rank's parts as the whole
    model       all of it, on a model
    clip        gradients clipped by the norm of the whole
"""

from xlayout.torch.parallel.model import along as along
from xlayout.torch.parallel.model import parallelize as parallelize
from xlayout.torch.parallel.refusals import refuse_twice as refuse_twice

__all__ = ["along", "parallelize", "refuse_twice"]
