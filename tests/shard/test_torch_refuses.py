"""Wrong use of DTensors is an error that says what was given and what would work."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import xlayout as xl
from tests.shard.compilers import Aot
from xlayout import Mesh, Piece, Sharding, Split
from xlayout.errors import AxisError, LayoutError, ShapeError, ShardingError, SizeError

TP = Mesh(4, "tp")
ROWS = Sharding(TP, ("tp",))


@pytest.fixture(scope="module", autouse=True)
def mesh() -> Iterator[DeviceMesh]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


@pytest.fixture
def x(mesh: DeviceMesh) -> DTensor:
    return DTensor.from_local(torch.ones(3, 8), mesh, [Shard(0)])  # 12 rows


def columns(x: DTensor) -> DTensor:
    return DTensor.from_local(torch.ones(12, 2), x.device_mesh, [Shard(1)])


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "local, and something would have to move": (
        lambda x: xl.interleave(columns(x), axis=1, comm="local"), ShardingError,
        "comm: 'local', but something would have to move:\nfrom (12, 8) (-, tp) on tp=4\n"),
    "local, and what would have been": (
        lambda x: xl.interleave(columns(x), axis=1, comm="local"), ShardingError,
        "local if it came from (-, tp, axis 1 by ceil in 2 segments) on tp=4"),
    "a fused weight cut as if it were plain": (
        lambda x: xl.interleave(x, comm="local"), ShardingError,
        "cannot shard axis 0 = 12 into 4: the cut at 3 falls inside"),
    "a way that is not known": (
        lambda x: xl.interleave(x, comm="fast"), LayoutError,
        "comm: 'fast'; wanted one of 'auto', 'local', 'native'"),
    "memory": (
        lambda x: xl.interleave(x, copy=False), BufferError,
        "copy=False: the result of a sharded op is no view; use copy=None to allow a copy"),
    "a tensor of one device": (
        lambda x: xl.reshard(x.to_local(), ROWS), TypeError,
        "x: a torch.Tensor is on one device; wanted a DTensor or a jax.Array"),
    "a layer": (
        lambda _x: xl.all_gather(torch.nn.Linear(2, 2)), TypeError,
        "x: a torch.nn.modules.linear.Linear is on one device; wanted a DTensor or a jax.Array"),
    "a plain tensor to gather": (
        lambda x: xl.all_gather(x.to_local()), TypeError,
        "x: a torch.Tensor is on one device; wanted a DTensor or a jax.Array"),
    "a mesh of another size": (
        lambda x: xl.reshard(x, Sharding(Mesh(2, "tp"), ("tp",))), ShardingError,
        "to: (tp) on tp=2; x lies on tp=4: give it on the mesh of x"),
    "a mesh of other names": (
        lambda x: xl.reshard(x, Sharding(Mesh(4, "dp"), ("dp",))), ShardingError,
        "to: (dp) on dp=4; x lies on tp=4: give it on the mesh of x"),
    "one placement where one for each mesh axis is wanted": (
        lambda x: xl.reshard(x, Shard(1)), TypeError,
        "to: Shard(dim=1); wanted a Sharding, or a list of placements, one for each mesh axis"),
    "no sharding at all": (
        lambda x: xl.interleave(x, out_sharding=3), TypeError,
        "out_sharding: 3; wanted a Sharding, or a list of placements, one for each mesh axis"),
    "placements for another mesh": (
        lambda x: xl.reshard(x, [Shard(1), Replicate()]), ValueError,
        "to: placements: 2 for a mesh of 1 axes ('tp',); one each"),
    "what torch itself does not do": (
        lambda x: xl.rearrange(x, "(a b) c -> a b c", a=2, comm="native"), RuntimeError,
        "Sharding propagation failed"),
    "a result that is still to be summed": (
        lambda x: xl.reshard(x, [Partial()]), ValueError,
        "to: placements: P(sum) on mesh axis 'tp'; its sums are not done, redistribute it; wanted"),
    "an array that is still to be summed": (
        lambda x: xl.all_gather(DTensor.from_local(x.to_local(), x.device_mesh, [Partial()])),
        ValueError, "placements: P(sum) on mesh axis 'tp'; its sums are not done, redistribute it"),
    "an axis that is not there": (
        lambda x: xl.reshard(x, [Shard(3)]), AxisError,
        "to: placements: dim: 3; the array has axes -2 to 1"),
    "several shardings for one result": (
        lambda x: xl.reshard(x, [ROWS, ROWS]), ShardingError,
        "to: a list of 2 for 1 results; wanted one for all, or one for each"),
    "several shardings for one result of an op": (
        lambda x: xl.interleave(x, out_sharding=(ROWS, ROWS)), ShardingError,
        "out_sharding: a list of 2 for 1 results; wanted one for all, or one for each"),
    "what DTensor cannot say": (
        lambda x: xl.reshard(x, Sharding(TP, ("tp",), splits={0: Split(rule="balanced")})),
        ShardingError, "to: axis 0: DTensor cuts as torch.chunk does, in equal segments at most, "),
    "what DTensor cannot say of an op's result": (
        lambda x: xl.interleave(x, out_sharding=Sharding(TP, ("tp",), splits={0: "balanced"})),
        ShardingError, "out_sharding: axis 0: DTensor cuts as torch.chunk does, in equal segmen"),
    "segments that differ": (
        lambda x: xl.reshard(x, Sharding(TP, ("tp",), splits={0: Split(segments=(8, 4))})),
        ShardingError, "the nearest that it can say is Shard(0) of each segment as a tensor"),
    "a mesh axis that is not there": (
        lambda x: xl.all_gather(x, mesh_axis="fsdp"), AxisError,
        "mesh_axis: 'fsdp'; the mesh (tp=4) has tp"),
    "a dtype that is none": (
        lambda x: xl.all_gather(x, dtype="bfloat17"), TypeError,
        "dtype: 'bfloat17'; wanted a torch.dtype or its name"),
    "a dtype to sum in that is none": (
        lambda x: xl.all_gather(x, reduce_dtype=32), TypeError,
        "reduce_dtype: 32; wanted a torch.dtype or its name"),
    "a dtype to sum in that holds no gradients": (
        lambda x: xl.all_gather(x, reduce_dtype="int64"), TypeError,
        "reduce_dtype: torch.int64; wanted a dtype of floats, which gradients are"),
    "a layout of other shapes": (
        lambda x: xl.reshard(x, ROWS, layout=xl.Layout.identity((3, 8))), ShapeError,
        "x: an array of shape (12, 8); the layout takes (3, 8)"),
    "a mesh axis that is no name": (
        lambda x: xl.all_gather(x, mesh_axis=0), AxisError,
        "mesh_axis: 0; the mesh (tp=4) has tp"),
    "an axis that cannot be there": (
        lambda x: xl.reshard(x, Sharding(TP, (None, None, "tp"))), LayoutError,
        "shape: (12, 8) has 2 axes; the sharding (-, -, tp) on tp=4 cuts more"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_use_is_an_error_that_teaches(x: DTensor, case: str) -> None:
    call, kind, text = REFUSED[case]
    with pytest.raises(kind, match=re.escape(text)):
        call(x)


@pytest.mark.parametrize("case", ["a fused weight cut as if it were plain",
                                  "a mesh axis that is not there"])  # fmt: skip
def test_inside_torch_compile_it_teaches_as_well(x: DTensor, case: str) -> None:
    call, _, text = REFUSED[case]
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match=re.escape(text)):
        torch.compile(call, backend=Aot(), fullgraph=True)(x)


TABLE = xl.Layout([(12, 8)], [(96,)], [Piece(k, 37 * k % 96) for k in range(96)])
WRAPPED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an op": (xl.matrix_transpose, "x"),
    "an op that fills": (lambda x: xl.pad(x, to=9, axis=1, value=2), "x"),
    "nothing moved": (lambda x: xl.interleave(x, comm="local"), "x"),
    "a sharding": (lambda x: xl.interleave(x, out_sharding=[Shard(1)]), "x"),
    "a stack": (lambda x: xl.stack([x, x]), "xs[0]"),
    "columns": (lambda x: xl.from_tiles([[x, x]]), "tiles[0]"),
    "a layout": (xl.matrix_transpose.layout((12, 8)), "arrays[0]"),
    "a table": (TABLE, "arrays[0]"),
    "a layout that is applied": (
        lambda x: xl.apply(xl.interleave.layout((12, 8)), x, out_sharding=[Shard(1)]), "x"),
    "another sharding": (lambda x: xl.reshard(x, [Shard(1)]), "x"),
    "a gather": (xl.all_gather, "x"),
}  # fmt: skip
TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "vjp": torch.func.vjp,
    "grad of vjp": lambda f, x: torch.func.grad(lambda x: torch.func.vjp(f, x)[0].sum())(x),
    "vmap": lambda f, x: torch.func.vmap(f)(torch.stack([x, x])),
    "functionalize": lambda f, x: torch.func.functionalize(f)(x),
}


@pytest.mark.parametrize("how", TRANSFORMS)
@pytest.mark.parametrize("case", WRAPPED)
def test_what_a_transform_wraps_is_not_taken_for_a_tensor_of_one_device(
    x: DTensor, case: str, how: str
) -> None:
    """Nor is it after calls on plain tensors of its shape, which are found again."""
    call, name = WRAPPED[case]
    text = f"{name}: a DTensor inside a transform of torch.func, which no exchange sees through; "
    with suppress(TypeError):
        call(torch.ones(12, 8))
        TRANSFORMS[how](call, torch.ones(12, 8))
    with pytest.raises(TypeError, match="^" + re.escape(text)):
        TRANSFORMS[how](call, x)


def test_a_rank_outside_of_the_mesh_is_told_so() -> None:
    others = DeviceMesh("cpu", torch.tensor([1, 2, 3]), mesh_dim_names=("tp",))
    x = DTensor.from_local(torch.ones(3, 8), others, [Shard(0)], run_check=False)
    with pytest.raises(ValueError, match=r"rank 0 is not in DeviceMesh\(.*; call it on its ranks"):
        xl.reshard(x, [Shard(1)])


def test_tensors_on_meshes_of_other_orders_do_not_meet(x: DTensor) -> None:
    turned = DeviceMesh("cpu", torch.tensor([0, 2, 1, 3]), mesh_dim_names=("tp",))
    other = DTensor.from_local(torch.ones(3, 8), turned, [Shard(0)], run_check=False)
    wanted = (
        r"arrays: 0 lies on DeviceMesh\(.* over ranks \[0, 1, 2, 3\], 1 on DeviceMesh\(.* over "
        r"ranks \[0, 2, 1, 3\]; wanted one mesh, with its devices in one order"
    )
    with pytest.raises(ShardingError, match=wanted):
        xl.stack([x, other])


def test_tensors_on_equal_meshes_meet(x: DTensor) -> None:
    again = DeviceMesh("cpu", torch.arange(4), mesh_dim_names=("tp",))
    other = DTensor.from_local(torch.ones(3, 8), again, [Shard(0)], run_check=False)
    assert xl.stack([x, other], comm="local").shape == (2, 12, 8)


def test_a_tensor_of_one_rank_and_one_of_many_do_not_meet(x: DTensor) -> None:
    for arrays in ([x, torch.ones(12, 8)], [torch.ones(12, 8), x]):
        many = [type(a) for a in arrays].index(DTensor)
        said = f"arrays: {many} is on many devices, {1 - many} on one"
        with pytest.raises(TypeError, match=said):
            xl.stack(arrays)


def test_a_split_factor_that_no_order_has_names_the_nearest() -> None:
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    x = DTensor.from_local(
        torch.ones(3, 8), grid, [_StridedShard(0, split_factor=3), Shard(0)], run_check=False
    )
    with pytest.raises(ShardingError, match="split factor 3 on mesh axis 'dp' for axis 0: no ord"):
        xl.all_gather(x)


def test_meshes_of_different_sizes_have_no_plan() -> None:
    with pytest.raises(SizeError, match=r"src, dst: meshes \(dp=2\) of 2, \(tp=4\) of 4 ranks;"):
        xl.plan_reshard(xl.Layout.identity((8,)), ROWS, Sharding(Mesh(2, "dp"), ()))
