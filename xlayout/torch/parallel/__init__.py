"""Parallel: torch modules run tensor-parallel, each rank with its part of the weights.

Its modules, from the bottom up:

    tp_group    the ranks, and the differentiable collectives between them
    roles       what a layer communicates before and after its forward pass
    refusals    which layers cannot have a role
    sizes       what a layer says of its matrix, changed to what is true of a rank's part
    trial       whether a layer with a `forward` of its own does in parts what it does as a whole
    assignment  the role of each module, from a plan
    heads       the head counts that attention modules keep, set to those of one rank
    attention   the modules that do
    saving      `save_pretrained` kept from writing one rank's parts as the whole
    model       all of this applied to a model
    clip        gradients clipped by the norm of the whole model
"""

from xlayout.torch.parallel.model import parallelize as parallelize
from xlayout.torch.parallel.model import tp_mesh as tp_mesh
from xlayout.torch.parallel.refusals import refuse_twice as refuse_twice

__all__ = ["parallelize", "refuse_twice", "tp_mesh"]
