"""Trial: whether a layer with a `forward` of its own does in parts what it does as a whole.

Its class does not tell, so it is run on a few numbers: whole, and as two ranks would run it.
"""

from __future__ import annotations

import copy
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from xlayout.algebra.shapes import with_article
from xlayout.errors import ShardingError
from xlayout.torch.parallel.roles import Column, Role, Row, Vocab
from xlayout.torch.parallel.sizes import IN, OUT, resize, shift_padding
from xlayout.torch.parallel.tp_group import TPGroup

__all__ = ["refuse_forward"]

_CUT, _OTHER = 38, 23  # numbers of features that parameters beside a matrix do not fit by chance
_WANTED: dict[type[Role], str] = {
    Row: "Cut by rows, it must be linear: do the rest in a module after it, or leave it whole by "
    "{}, with gather=True in the rule of the layer before it",
    Column: "Cut by columns, no feature may depend on others: do that in a module after it, or "
    "leave it whole by {}",
    Vocab: "Cut by 'vocab', it must look up the ids that it is given: change them before it, or "
    "leave it whole by {}",
}


class _Apart(TPGroup):
    """A rank to which the others send nothing."""

    __slots__ = ()

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return x


_APART = _Apart(0, "", (0,))


@torch.no_grad()
def refuse_forward(name: str, module: nn.Module, kind: type[Role], axis: int) -> None:
    """Refuse a layer whose own `forward` makes something else of parts than of the whole.

    One that fails on a few numbers as a whole, because it has other parameters of the size of its
    features or takes more than one input, is not refused: nothing is known of it.

    Args:
        name: of its matrix, in the model.
        module: the layer, still whole.
        kind: Row, Column or Vocab.
        axis: the axis of its matrix that is cut.

    Raises:
        ShardingError: for such a layer.
    """
    weight: Any = module.weight
    if weight.ndim != 2 or type(module).forward in (nn.Linear.forward, nn.Embedding.forward):
        return
    if kind is Row and module._parameters.get("bias") is not None:
        return  # its forward is not called: `refuse_bias` knows it to be linear
    try:
        layer, x = _small(module, kind, axis)
        whole = type(layer).forward(layer, x)
    except Exception:  # noqa: BLE001 -- it is anyone's code
        return
    if type(whole) is not torch.Tensor or whole.device != x.device:  # others are not put together
        return
    try:
        same = _is_same(_in_parts(layer, x, kind, axis), whole)
    except Exception:  # noqa: BLE001 -- it fails in parts only
        same = False
    if not same:
        whole_by = f"Rule({name.rpartition('.')[0]!r}, 'whole')"
        raise ShardingError(
            f"model: {name!r} belongs to {with_article(type(module).__name__)}, whose own forward "
            "makes something else of the parts of two ranks than of the whole. "
            + _WANTED[kind].format(whole_by)
        )


def _small(module: Any, kind: type[Role], axis: int) -> tuple[Any, torch.Tensor]:
    """A copy of a layer with a small matrix, and its input: integers, exact in any dtype."""
    device = torch.device("cpu") if module.weight.is_meta else module.weight.device
    inputs = axis if kind is Row else 1 - axis
    shape = [_OTHER, _OTHER]
    shape[axis] = _CUT
    if isinstance(module, nn.Embedding):  # all rows: nobody knows which it looks up
        shape[0] = n = module.weight.shape[0]
        x = torch.arange(n // 4, n - n // 4, device=device)[None]
    else:
        x = (torch.arange(6 * shape[inputs], device=device) % 7 - 3.0).reshape(2, 3, -1)
        x[..., 0] = 6
    weight = (torch.arange(shape[0] * shape[1], device=device) % 3 - 1.0).reshape(shape)
    weight.select(axis, 0).mul_(2)  # one part has other means and maxima than the other
    layer = _with(module, weight, torch.arange(shape[1 - inputs], device=device) % 3 - 1.0)
    layer.eval()._apply(lambda t: torch.ones_like(t, device=device) if t.is_meta else t)
    for names, at in ((IN, inputs), (OUT, 1 - inputs)):
        resize(layer, names, module.weight.shape[at], shape[at])
    return layer, x


def _with(module: Any, weight: torch.Tensor, bias: torch.Tensor | None) -> Any:
    """A copy of a layer with another matrix, and another bias if it has one."""
    others = {id(module.weight): nn.Parameter(weight)}
    own = module._parameters.get("bias")
    if own is not None and bias is not None:
        others[id(own)] = nn.Parameter(bias)
    return copy.deepcopy(module, others)


def _in_parts(layer: Any, x: torch.Tensor, kind: type[Role], axis: int) -> torch.Tensor:
    """What two ranks make of a layer, put together."""
    size, bias = layer.weight.shape[axis], layer._parameters.get("bias")
    made = []
    for start, stop in pairwise(sorted({0, size // 2, size})):
        rows = range(start, stop)
        cut = bias[start:stop] if kind is Column and bias is not None else None
        part = _with(layer, layer.weight.narrow(axis, start, len(rows)), cut)
        resize(part, IN if kind is Row else OUT, size, len(rows))
        if kind is Vocab:
            shift_padding(part, rows)
        role: Role = Column(_APART, None)
        if kind is Row:
            role = Row(_APART, None, transposed=axis == 0)
        elif kind is Vocab:
            role = Vocab(_APART, rows, size)
        own = x[..., start:stop] if kind is Row else x
        made.append(role.run(part, partial(type(part).forward, part), own))
    return torch.cat(made, -1) if kind is Column else torch.stack(made).sum(0)


def _is_same(made: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether both are equal, up to how their dtype rounds."""
    bound = 16 * torch.finfo(whole.dtype).eps * float(whole.nan_to_num().abs().max())
    return torch.allclose(made, whole, rtol=0, atol=bound, equal_nan=True)
