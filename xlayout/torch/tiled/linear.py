"""Linear: a linear layer as a grid of small ones, with DeepSpeed's names and parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, cast

import torch
from torch import nn

from xlayout.algebra import partition
from xlayout.algebra.shapes import a_type, boolean, integer
from xlayout.ops.grid import splits
from xlayout.torch.tiled.checks import check_dense, check_dtypes, refuse_computed
from xlayout.torch.tiled.input import parts_of, whole_of
from xlayout.torch.tiled.parameters import gathered, read, write
from xlayout.torch.tiled.state import recut

__all__ = ["TiledLinear", "TiledLinearReturnBias"]


class TiledLinear(nn.Module):
    """A linear layer made of `out_splits` x `in_splits` layers, each called separately.

    A replacement for `deepspeed.runtime.zero.tiling.TiledLinear`, with the same arguments, layers
    `linears[o][i]` and names in a state dict. Each tile is a module, so that FSDP, ZeRO-3 and
    offloading, which hook into modules, hold one tile at a time. Sizes are those of `partition`;
    only the last column of tiles has a bias. `load_state_dict` also takes the parameters of a dense
    layer or of another grid, and cuts them for this one.

    Tiles of plain `nn.Linear` are initialised as parts of one layer of `in_features`, also by
    `reset_parameters`. Initialised separately, as in DeepSpeed, they would make the output larger
    by the square root of `in_splits`.

    Args:
        in_features: size of the last axis of the input.
        out_features: size of the last axis of the output.
        bias: whether there is a bias.
        in_splits: number of columns of tiles, at most `in_features`.
        out_splits: number of rows of tiles, at most `out_features`.
        input_is_already_split: whether `forward` takes the parts of its input.
        combine_out_splits: whether `forward` joins its outputs; else it returns a list of them.
        linear_cls: makes a tile, called as `linear_cls(in, out, bias=..., **kwargs)`.
        init_linear: a dense layer to copy; see `copy_params_from`.
        **kwargs: more arguments for `linear_cls`.

    Raises:
        TypeError: for an argument of the wrong type.
        SizeError: for sizes below 1, more tiles than features, or an `init_linear` of another size.

    >>> import torch
    >>> dense = torch.nn.Linear(10, 7)
    >>> tiled = TiledLinear(10, 7, in_splits=4, out_splits=2, init_linear=dense)
    >>> tiled.in_parts, tiled.linears[0][3]
    ([0, 3, 6, 8, 10], Linear(in_features=2, out_features=4, bias=True))
    >>> x = torch.ones(3, 10)
    >>> torch.allclose(tiled(x), dense(x), atol=1e-6)
    True
    """

    linears: nn.ModuleList

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        in_splits: int = 1,
        out_splits: int = 1,
        input_is_already_split: bool = False,
        combine_out_splits: bool = True,
        linear_cls: Callable[..., nn.Module] = nn.Linear,
        init_linear: nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.in_features = integer(in_features, "in_features", 1)
        self.out_features = integer(out_features, "out_features", 1)
        self.in_splits = splits(in_splits, "in_splits", self.in_features)
        self.out_splits = splits(out_splits, "out_splits", self.out_features)
        self.use_bias = boolean(bias, "bias")
        self.input_is_already_split = boolean(input_is_already_split, "input_is_already_split")
        self.combine_out_splits = boolean(combine_out_splits, "combine_out_splits")
        if not callable(linear_cls):
            raise TypeError(f"linear_cls: {a_type(linear_cls)}; wanted a class of layers")
        if init_linear is not None:
            self._check(init_linear, "init_linear")
        widths = partition(self.in_features, self.in_splits)
        heights = partition(self.out_features, self.out_splits)
        self.in_parts = list(accumulate(widths, initial=0))
        self.out_parts = list(accumulate(heights, initial=0))
        biases = [False] * (self.in_splits - 1) + [self.use_bias]
        self.linears = nn.ModuleList(
            nn.ModuleList(
                linear_cls(width, height, bias=has_bias, **kwargs)
                for width, has_bias in zip(widths, biases, strict=True)
            )
            for height in heights
        )
        if init_linear is not None:
            self.copy_params_from(init_linear)
        elif linear_cls is nn.Linear and self.in_splits > 1:
            self._as_drawn_together()

    def forward(self, input_: Any) -> Any:
        """The dense layer's output, tile by tile.

        An input narrower than `in_features`, for tiles that are themselves sharded, is cut evenly
        like one of full width.

        Args:
            input_: a tensor (..., in_features), or a sequence of its parts, one for each column.

        Returns:
            A tensor (..., out_features); the list of its parts if `combine_out_splits` is False.

        Raises:
            TypeError: for an input that is not a tensor.
            AxisError: for a scalar.
            SizeError: for a wrong number of parts or, if the tiles are plain layers, a wrong width.
        """
        grid = _grid(self)
        if isinstance(input_, (list, tuple)) or (self.input_is_already_split and len(grid[0]) > 1):
            parts: Sequence[Any] = parts_of(input_, grid[0])
        else:
            parts = whole_of(input_, grid[0], _sizes(self.in_parts), self._split_global_input)
        made = []
        for o, row in enumerate(grid):
            y = None
            for i, (tile, part) in enumerate(zip(row, parts, strict=True)):
                y = self._reduce_local_output(in_id=i, out_id=o, current_out=y, new_out=tile(part))
            made.append(y)
        return self._combine_output_splits(made) if self.combine_out_splits else made

    @torch.no_grad()
    def copy_params_from(self, other: nn.Module) -> None:
        """Copy the weight and the bias of a dense layer; each tile keeps its dtype and device.

        If ranks hold parts of a tile, as under ZeRO-3 and FSDP, this is collective: all ranks get
        the values of rank 0.

        Raises:
            TypeError: for something without a weight, or a tile that computes its own from others.
            SizeError: for a layer of another size, or with a bias where this one has none.
        """
        self._check(other, "other")
        refuse_computed(_grid(self))
        weight: Any = other.weight
        bias: Any = getattr(other, "bias", None)
        for held, window, name in self._held():
            write(held, (weight if len(window) == 2 else bias)[window], name)

    @torch.no_grad()
    def to_linear(self) -> nn.Linear:
        """The dense layer of the same parameters, dtype and device: undoes `copy_params_from`.

        Its weight requires gradients if that of any tile does, and so does its bias. If ranks hold
        parts of a tile this is collective, and every rank gets the dense layer.

        Raises:
            TypeError: for tiles of several dtypes.
            SizeError: for tiles that hold only a part of their weight.
        """
        parameters = self._held()
        check_dtypes([(held, name) for held, _, name in parameters])
        first = parameters[0][0]
        dense: nn.Linear = nn.utils.skip_init(  # type: ignore[no-untyped-call]
            nn.Linear,
            self.in_features,
            self.out_features,
            bias=self.use_bias,
            device=first.device,
            dtype=first.dtype,
        ).requires_grad_(False)
        for held, window, name in parameters:
            whole = dense.weight if len(window) == 2 else dense.bias
            read(held, whole[window], name)
            whole.requires_grad_(whole.requires_grad or held.requires_grad)
        return dense.train(self.training)

    def extra_repr(self) -> str:
        """The arguments, for `repr`."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.use_bias}, in_splits={self.in_splits}, out_splits={self.out_splits}"
        )

    # -- what a subclass may override, as in DeepSpeed ---------------------------------------------

    def _split_global_input(self, input: Any, split_sizes: Sequence[int]) -> Sequence[Any]:  # noqa: A002 -- DeepSpeed's name
        """The parts of an input, one for each column."""
        return cast(Sequence[Any], torch.split(input, list(split_sizes), dim=-1))

    def _reduce_local_output(self, in_id: int, out_id: int, current_out: Any, new_out: Any) -> Any:  # noqa: ARG002 -- for subclasses
        """The sum of a row so far, which starts as None, plus the output of its next tile."""
        return new_out if current_out is None else current_out + new_out

    def _combine_output_splits(self, outputs: Sequence[Any]) -> Any:
        """The outputs of all rows as one."""
        return outputs[0] if len(outputs) == 1 else torch.cat(tuple(outputs), dim=-1)

    def _check(self, dense: Any, name: str) -> None:
        check_dense(dense, name, (self.out_features, self.in_features), self.use_bias)

    def _held(self) -> list[tuple[Any, tuple[slice, ...], str]]:
        """(parameter, its window of the dense parameter, name) of each tile, weights first."""
        rows, columns = ([slice(*edges) for edges in pairwise(parts)]
                         for parts in (self.out_parts, self.in_parts))  # fmt: skip
        tiles = [(o, i, t) for o, row in enumerate(_grid(self)) for i, t in enumerate(row)]
        held: list[tuple[Any, tuple[slice, ...], str]] = [
            (t.weight, (rows[o], columns[i]), f"linears[{o}][{i}].weight") for o, i, t in tiles
        ]
        if self.use_bias:
            last = [(o, i, t) for o, i, t in tiles if i == self.in_splits - 1]
            held += [(t.bias, (rows[o],), f"linears[{o}][{i}].bias") for o, i, t in last]
        return held

    @torch.no_grad()
    def _as_drawn_together(self) -> None:
        """Scale what `nn.Linear` drew for the width of a tile to that of the whole input."""
        for tile in (tile for row in _grid(self) for tile in row):
            for parameter in tile.parameters():
                with gathered(parameter):
                    parameter.mul_((tile.in_features / self.in_features) ** 0.5)
            # `nn.Linear`'s own would draw for the width of a tile again. Of the tile only its dict
            # of parameters is held, so that the tile goes when nobody else holds it.
            tile.reset_parameters = partial(_draw, tile._parameters, self.in_features)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        # Registered now, it is the last of the pre-hooks: those of others see what is being loaded.
        register: Any = self.register_load_state_dict_pre_hook
        with register(TiledLinear._recut):
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def _recut(self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any) -> None:
        *_, errors = rest
        heights, widths = _sizes(self.out_parts), _sizes(self.in_parts)
        wanted = [(h, w) for h in heights for w in widths]
        held = [
            tuple(getattr(getattr(tile, "weight", None), "shape", ()))
            for row in _grid(self)
            for tile in row
        ]
        if held == wanted:  # not if ranks hold parts of a tile
            fresh = local_metadata.get("assign_to_params_buffers", False)
            errors += recut(state_dict, prefix, heights, widths, bias=self.use_bias, fresh=fresh)


class TiledLinearReturnBias(TiledLinear):
    """A `TiledLinear` of layers that return their bias with their output, as in Megatron-LM.

    It returns (output, bias) of the whole layer, with the bias not yet added, and None if no tile
    has one. With `combine_out_splits=False` it is a list of such pairs.

    >>> import torch
    >>> class Apart(torch.nn.Linear):
    ...     def forward(self, x):
    ...         return x @ self.weight.T, self.bias
    >>> y, bias = TiledLinearReturnBias(6, 4, in_splits=2, linear_cls=Apart)(torch.ones(3, 6))
    >>> y.shape, bias.shape
    (torch.Size([3, 4]), torch.Size([4]))
    """

    def _reduce_local_output(self, in_id: int, out_id: int, current_out: Any, new_out: Any) -> Any:
        if not isinstance(new_out, tuple) or len(new_out) != 2:
            size = f" of {len(new_out)}" if isinstance(new_out, tuple) else ""
            raise TypeError(
                f"linears[{out_id}][{in_id}]: it returned {a_type(new_out)}{size}; wanted a "
                "tuple (output, bias): TiledLinear takes layers that return one tensor"
            )
        y, bias = current_out or (None, None)
        y = super()._reduce_local_output(in_id, out_id, y, new_out[0])
        return y, bias if new_out[1] is None else new_out[1]

    def _combine_output_splits(self, outputs: Sequence[Any]) -> Any:
        biases = [bias for _, bias in outputs if bias is not None]
        y = super()._combine_output_splits([y for y, _ in outputs])
        return y, super()._combine_output_splits(biases) if biases else None


@torch.no_grad()
def _draw(parameters: Mapping[str, Any], in_features: int) -> None:
    """Draw parameters of a tile anew, as `nn.Linear` draws those of a layer of that width."""
    bound = in_features**-0.5
    for parameter in parameters.values():
        if parameter is not None:
            nn.init.uniform_(parameter, -bound, bound)


def _sizes(edges: Sequence[int]) -> list[int]:
    return [b - a for a, b in pairwise(edges)]


def _grid(layer: TiledLinear) -> list[list[Any]]:
    return [list(cast(nn.ModuleList, row)) for row in layer.linears]
