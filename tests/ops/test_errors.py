"""Every refusal names the argument, its value, what was wanted, and what would work."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import xlayout as xl
from tests.frameworks import Framework
from xlayout import Layout
from xlayout.errors import AxisError, LayoutError, PatternError, ShapeError, SizeError

QKV = {"heads": 8, "kv_heads": 4}
MHA = {"heads": 8, "kv_heads": 8}
DIVIDE = "x: axis 0 = 8 does not divide into groups * block = 6; it would at 6 or 12"

# (what is called on an array of shape (8, 3), error, text)
REFUSALS: list[tuple[str, Any, type[Exception], str]] = [
    ("an uneven block", lambda x: xl.interleave(x, block=3), SizeError, DIVIDE),
    ("the inverse too", lambda x: xl.deinterleave(x, block=3), SizeError, DIVIDE),
    ("block 0", lambda x: xl.interleave(x, block=0), SizeError, "block: 0; wanted at least 1"),
    ("block 0 back", lambda x: xl.deinterleave(x, block=0), SizeError, "block: 0; wanted at"),
    ("block -1 back", lambda x: xl.deinterleave(x, block=-1), SizeError, "block: -1; wanted at"),
    ("groups 0", lambda x: xl.interleave(x, groups=0), SizeError, "groups: 0; wanted at least 1"),
    ("a block that is a float", lambda x: xl.interleave(x, block=3.0), TypeError,
     "block: 3.0 is a float; wanted an int"),
    ("a block that is a bool", lambda x: xl.interleave(x, block=True, groups=8), TypeError,
     "block: True is a bool; wanted an int"),
    ("an axis too far", lambda x: xl.interleave(x, axis=2), AxisError,
     "axis: 2; the array has axes -2 to 1"),
    ("an axis too far back", lambda x: xl.rope_halves(x, heads=1, axis=-3), AxisError,
     "axis: -3; the array has axes -2 to 1"),
    ("an axis by name", lambda x: xl.interleave(x, axis="rows"), TypeError,
     "axis: 'rows' is a str; wanted an int"),
    ("an option it does not have", lambda x: xl.interleave(x, blocks=2), TypeError,
     "interleave: no option 'blocks'; it takes block, groups, axis, out, copy, donate, comm, out_"),
    ("an axis where there is none to choose", lambda x: xl.matrix_transpose(x, axis=1), TypeError,
     "matrix_transpose: no option 'axis'; it takes out, copy, donate, comm, out_sharding"),
    ("options by position", lambda x: xl.interleave(x, 2), TypeError,
     "interleave: options are given by name; got 1 by position"),
    ("an option given twice", lambda x: xl.permute_dims(x, (1, 0), axes=(0, 1)), TypeError,
     "permute_dims: axes given twice, by position and by name"),
    ("a pattern given twice", lambda x: xl.rearrange(x, "a b -> b a", pattern="a b -> a b"),
     TypeError, "rearrange: pattern given twice, by position and by name"),
    ("no pattern", lambda x: xl.rearrange(x), TypeError,
     "rearrange() missing 1 required positional argument: 'pattern'"),
    ("a vector to transpose", lambda x: xl.matrix_transpose(x[0]), AxisError,
     "x: 1 axes, shape (3,); a matrix transpose needs at least 2"),
    ("an axis missing", lambda x: xl.permute_dims(x, (0,)), AxisError,
     "axes: (0,); wanted each of 0 to 1 exactly once"),
    ("an axis twice", lambda x: xl.permute_dims(x, (0, -2)), AxisError,
     "axes: (0, -2); wanted each of 0 to 1 exactly once"),
    ("an axis it has not", lambda x: xl.permute_dims(x, (0, 2)), AxisError,
     "axes: 2; the array has axes -2 to 1"),
    ("heads that do not divide", lambda x: xl.rope_halves(x, heads=3), SizeError,
     "x: axis 0 = 8 does not divide into 2 * heads = 6"),
    ("heads of odd size", lambda x: xl.rope_pairs(x, heads=8), SizeError,
     "x: axis 0 = 8 does not divide into 2 * heads = 16; it would at 16"),
    ("no heads", lambda x: xl.rope_pairs(x, heads=0), SizeError, "heads: 0; wanted at least 1"),
    ("q of other heads", lambda x: xl.fuse_qkv(x, x, x, heads=3, kv_heads=3), SizeError,
     "q: axis 0 = 8 does not divide into heads = 3; it would at 6 or 9"),
    ("k of other heads", lambda x: xl.fuse_qkv(x, x, x[:4], **QKV), SizeError,
     "k: axis 0 = 8; wanted kv_heads * head_dim = 4 * 1 = 4"),
    ("v of other heads", lambda x: xl.fuse_qkv(x, x[:4], x[:6], **QKV), SizeError,
     "v: axis 0 = 6; wanted kv_heads * head_dim = 4 * 1 = 4"),
    ("v of another width", lambda x: xl.fuse_qkv(x, x[:4], x[:4, :2], **QKV), SizeError,
     "q, k, v: shapes (8, 3), (4, 3), (4, 2) differ outside axis 0; only that may differ"),
    ("GQA per head", lambda x: xl.fuse_qkv(x, x[:4], x[:4], order="per_head", **QKV), SizeError,
     "kv_heads: 4; order 'per_head' needs kv_heads == heads = 8; use order='grouped'"),
    ("few heads in blocks", lambda x: xl.split_qkv(x, heads=4, kv_heads=2, order="codegen"),
     SizeError, "kv_heads = 2 does not divide into blocks = 4; it would at 4, or in parts of 1, 2"),
    ("heads in other blocks", lambda x: xl.fuse_qkv(x, x, x, order="codegen", blocks=3, **MHA),
     SizeError, "heads = 8 does not divide into blocks = 3; it would at 6 or 9"),
    ("uneven groups", lambda x: xl.fuse_qkv(x, x[:6], x[:6], heads=8, kv_heads=6), SizeError,
     "heads, kv_heads: 8, 6; order 'grouped' needs heads to be a multiple of kv_heads"),
    ("an unknown order", lambda x: xl.split_qkv(x, heads=6, kv_heads=1, order="mpt"), LayoutError,
     "order: 'mpt'; wanted one of 'concat', 'per_head', 'grouped', 'codegen'"),
    ("rows that are no heads", lambda x: xl.split_qkv(x, heads=3, kv_heads=2), SizeError,
     "qkv: axis 0 = 8 does not divide into heads + 2 * kv_heads = 7"),
    ("sizes of another axis", lambda x: xl.regroup(x, sizes=(4, 2), groups=2), SizeError,
     "sizes: (4, 2) add up to 6; axis 0 is 8"),
    ("no sizes", lambda x: xl.ungroup(x, sizes=(), groups=2), SizeError,
     "sizes: () add up to 0; axis 0 is 8"),
    ("a size below 0", lambda x: xl.regroup(x, sizes=(9, -1), groups=1), SizeError,
     "sizes: -1; wanted at least 0"),
    ("one size where several are wanted", lambda x: xl.ungroup(x, sizes=8, groups=2), TypeError,
     "sizes: 8; wanted a sequence of ints"),
    ("a segment that does not divide", lambda x: xl.ungroup(x, sizes=(5, 3), groups=2), SizeError,
     "sizes: segment 0 = 5 does not divide into groups = 2; it would at 4 or"),
    ("an empty grid", lambda x: xl.to_tiles(x, grid=(0, 1)), SizeError,
     "grid: 0; wanted at least 1"),
    ("a grid of three", lambda x: xl.to_tiles(x, grid=(1, 2, 3)), SizeError,
     "grid: (1, 2, 3); wanted (rows, columns)"),
    ("a grid that is a text", lambda x: xl.to_tiles(x, grid="12"), TypeError,
     "grid: '12'; wanted (rows, columns)"),
    ("a rule that is a number", lambda x: xl.to_tiles(x, grid=(1, 1), rule=5), TypeError,
     "rule: 5; wanted one of 'balanced', 'ceil', 'back', 'last', 'even'"),
    ("an uneven even grid", lambda x: xl.to_tiles(x, grid=(3, 1), rule="even"), SizeError,
     "total: 8 does not share out evenly into 3 parts; parts that would: 1, 2, 4, 8"),
    ("an unknown rule", lambda x: xl.to_tiles(x, grid=(1, 1), rule="fair"), LayoutError,
     "rule: 'fair'; wanted one of 'balanced', 'ceil', 'back', 'last', 'even'"),
    ("tiles of a vector", lambda x: xl.to_tiles(x[0], grid=(1, 1)), AxisError,
     "x: 1 axes, shape (3,); tiles need at least 2"),
    ("ragged rows of tiles", lambda x: xl.from_tiles([[x], [x, x]]), SizeError,
     "tiles: rows of [1, 2] blocks; every row needs the same number, at least one"),
    ("tiles by columns", lambda x: xl.from_tiles([[x]], columns=1), TypeError,
     "from_tiles: no option 'columns'; it takes out, copy, donate, comm, out_sharding, in_shar"),
    ("a grid that is missing", lambda x: xl.to_tiles(x), TypeError,
     "to_tiles() missing 1 required keyword-only argument: 'grid'"),
    ("an option of no tiles", lambda x: xl.to_tiles(x, grid=(1, 2), foo=1), TypeError,
     "to_tiles: no option 'foo'; it takes grid, rule, out, copy, donate, comm, out_sharding, in_"),
    ("an array for a shape", lambda x: xl.interleave.layout((4,), out=x), TypeError,
     "interleave.layout: no option 'out'; it takes block, groups, axis"),
    ("where none is taken", lambda _: xl.matrix_transpose.layout((4, 2), copy=None), TypeError,
     "matrix_transpose.layout: no option 'copy'; it takes none"),
    ("tiles in an array", xl.from_tiles, TypeError,
     "; wanted a list of rows, each a list of blocks"),
    ("tiles in one row", lambda x: xl.from_tiles([x, x]), TypeError,
     "; wanted a list of rows, each a list of blocks"),
    ("an axis that is a bool", lambda x: xl.interleave(x, axis=True), TypeError,
     "axis: True is a bool; wanted an int"),
    ("no tiles", lambda _: xl.from_tiles([]), SizeError,
     "tiles: rows of [] blocks; every row needs the same number, at least one"),
    ("tiles that do not fit", lambda x: xl.from_tiles([[x], [x[:, :2]]]), SizeError,
     "tiles[1][0]: shape (8, 2); its row and column want (8, 3)"),
    ("tiles that are vectors", lambda x: xl.from_tiles([[x[0]]]), AxisError,
     "tiles: shapes ((3,),); every block needs at least 2 axes"),
    ("nothing to stack", lambda _: xl.stack([]), SizeError, "xs: no arrays; give at least one"),
    ("no sequence to stack", lambda _: xl.stack(None), TypeError,
     "xs: a NoneType; wanted a sequence of arrays"),
    ("a stack of unequals", lambda x: xl.stack([x, x[:4]]), SizeError,
     "xs: shapes [(4, 3), (8, 3)] differ; stack takes arrays of one shape"),
    ("a new axis too far", lambda x: xl.stack([x, x], axis=3), AxisError,
     "axis: 3; the array has axes -3 to 2"),
    ("an empty axis to unstack", lambda x: xl.unstack(x[:0]), SizeError,
     "x: axis 0 has size 0; there is nothing to unstack"),
    ("a pad that shortens", lambda x: xl.pad(x, to=7), SizeError,
     "to: 7 is less than axis 0 = 8; pad only lengthens, trim shortens"),
    ("a trim that lengthens", lambda x: xl.trim(x, to=9), SizeError,
     "to: 9 is more than axis 0 = 8; trim only shortens, pad lengthens"),
    ("a pad below 0", lambda x: xl.pad(x, to=-1), SizeError, "to: -1; wanted at least 0"),
    ("a value that is no number", lambda x: xl.pad(x, to=9, value="a"), TypeError,
     "value: 'a' is a str; wanted a number"),
    ("a value that the dtype cuts", lambda x: xl.pad(x, to=9, value=1j), ShapeError,
     "value: 1j in an array of float32; wanted a real number"),
    ("an axis named as an option", lambda x: xl.rearrange(x, "out b -> b out"), PatternError,
     "pattern: 'out' is an option of rearrange; give the axis another name"),
    ("a size of no axis", lambda x: xl.rearrange(x, "a b -> b a", c=3), PatternError,
     "c: size 3 given, but no axis here has that name\n  a b -> b a\n  ^"),
    ("a pattern that is none", lambda x: xl.rearrange(x, 5), TypeError,
     "pattern: 5; wanted a str"),
    ("an array of another rank", lambda x: xl.rearrange(x, "a -> a"), PatternError,
     "pattern: 1 axes in this input, the array has shape (8, 3)\n  a -> a\n  ^"),
    ("arrays for one input", lambda x: xl.rearrange([x, x], "a b -> b a"), PatternError,
     "pattern: 1 input, 2 arrays given; name the others here\n  a b -> b a\n      ^"),
    ("a layout that is none", lambda x: xl.apply(np.ones(3), x), TypeError,
     "layout: a numpy.ndarray; wanted a Layout: apply(layout, x)"),
    ("an array of another shape", lambda x: Layout.identity((3, 8))(x), ShapeError,
     "x: an array of shape (8, 3); the layout takes (3, 8)"),
    ("a layout of no arrays", lambda _: Layout((), ((3,),), ())(), TypeError,
     "layout: it takes no arrays, so no framework can make its result"),
    ("too many arrays", lambda x: Layout.identity((8, 3))(x, x), ShapeError,
     "layout: takes 1 arrays, 2 given"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), [case[1:] for case in REFUSALS],
                         ids=[case[0] for case in REFUSALS])  # fmt: skip
def test_refuses(backend: Framework, call: Any, error: type[Exception], text: str) -> None:
    x = backend.array(np.zeros((8, 3), np.float32))
    with pytest.raises(error, match=re.escape(text)):
        backend.call(call, x)


def test_a_refusal_is_a_value_error_of_ours() -> None:
    assert issubclass(LayoutError, ValueError)
    assert all(issubclass(e, (LayoutError, TypeError)) for _, _, e, _ in REFUSALS)


def test_refuses_a_scalar_where_an_axis_is_needed(backend: Framework) -> None:
    x = backend.array(np.zeros((), np.float32))
    for op in (xl.interleave, xl.unstack, lambda x: xl.pad(x, to=3)):
        with pytest.raises(AxisError, match=r"axis: 0; the array has no axes \(it is a scalar\)"):
            backend.call(op, x)


def test_refuses_frameworks_mixed_in_one_call() -> None:
    arrays = {"numpy": np.zeros(2), "torch": torch.zeros(2), "jax": jnp.zeros(2)}
    for first, x in arrays.items():
        for second, y in arrays.items():
            if first != second:
                text = f"xs: 0 is {first}, 1 is {second}; one framework per call"
                with pytest.raises(TypeError, match=text + rf" \(xlayout\.to_{first}\)"):
                    xl.stack([x, y])


@pytest.mark.parametrize("good_before", [False, True])
def test_refuses_dtypes_mixed_in_one_call(backend: Framework, good_before: bool) -> None:
    def fused(a: Any, b: Any) -> Any:
        return xl.fuse_qkv(a, a, b, heads=3, kv_heads=3)  # of nobody else's here

    x, y = (backend.array(np.zeros(3, dtype)) for dtype in (np.float32, np.float16))
    if good_before:
        backend.call(fused, x, x)
    text = r"q is \S*float32 on \w+, v is \S*float16 on \w+; one of each per call"
    with pytest.raises(TypeError, match=text):
        backend.call(fused, x, y)


def test_refuses_devices_mixed_in_one_call() -> None:
    x, y = torch.zeros(2), torch.zeros(2, device="meta")
    with pytest.raises(TypeError, match=r"xs: 0 is torch\.float32 on cpu, 1 is .* on meta"):
        xl.stack([x, y])


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
def test_quantized_tensors_go_together_by_one_scale() -> None:
    dense = torch.arange(6.0).reshape(2, 3)
    x, y, z = (torch.quantize_per_tensor(dense, s, p, torch.quint8) for s, p in SCALES)
    assert torch.equal(xl.interleave(x).dequantize(), x.dequantize())
    joined = xl.stack.layout([(2, 3), (2, 3)], axis=1)
    for join in (xl.stack, lambda xs: xl.stack(xs, axis=1), lambda xs: joined(*xs)):
        for _ in range(2):
            made = join([x, x])
            assert (made.q_scale(), made.q_zero_point()) == SCALES[0]
            assert torch.equal(made.int_repr(), join([x.int_repr(), x.int_repr()]))
            for other, said in zip((y, z), SCALED, strict=True):
                with pytest.raises(TypeError, match=rf"1 is torch\.quint8 on cpu with {said};"):
                    join([x, other])
            join([dense, dense])  # whatever ran before


SCALES = ((0.5, 0), (1.0, 0), (0.5, 2))
SCALED = "scale 1.0 and zero point 0", "scale 0.5 and zero point 2"


@pytest.mark.parametrize("op", [xl.interleave, xl.rope_halves, xl.fuse_qkv, xl.stack, xl.pad])
def test_a_layout_has_no_place_for_options_of_a_run(op: Any) -> None:
    shapes = ((8,),) * (3 if op is xl.fuse_qkv else 1)
    with pytest.raises(
        TypeError, match=rf"^{op.__name__}\.layout: no option 'copy'; it takes (?!.*out)"
    ):
        op.layout(*([shapes] if op is xl.stack else shapes), copy=None)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: xl.permute_dims(x, 0), TypeError, r"axes: 0; wanted a sequence of ints"),
        (lambda x: xl.split_qkv(x, heads=2, kv_heads=1, blocks=()), TypeError, r"blocks: \(\) is"),
        (lambda x: xl.to_tiles(x, grid=3), TypeError, r"grid: 3; wanted \(rows, columns\)"),
        (lambda x: xl.to_tiles(x, grid=(0, 2)), xl.SizeError, "grid: 0; wanted at least 1"),
    ],
)
def test_one_number_for_several_or_no_number(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=f"^{text}"):
        call(np.zeros((4, 6)))


@pytest.mark.parametrize("twin", [1.0, True])
def test_an_option_that_equals_a_good_one_is_no_good_one(backend: Framework, twin: Any) -> None:
    x = backend.array(np.arange(4, dtype=np.int32))
    backend.call(lambda a: xl.interleave(a, block=1), x)
    backend.call(lambda a: xl.interleave(a, block=1), x)
    text = f"^block: {twin} is a {type(twin).__name__}; wanted an int"
    with pytest.raises(TypeError, match=text):
        backend.call(lambda a: xl.interleave(a, block=twin), x)


def test_a_value_that_one_dtype_held_is_asked_of_the_next(backend: Framework) -> None:
    for dtype in (np.float32, np.float16, np.float32):
        backend.call(lambda a: xl.pad(a, to=4, value=0.5), backend.array(np.zeros(3, dtype)))
    with pytest.raises(ShapeError, match=r"^value: 0\.5 in an array of int32; wanted an integer"):
        backend.call(lambda a: xl.pad(a, to=4, value=0.5), backend.array(np.zeros(3, np.int32)))
    layout = xl.pad.layout((3,), to=4)
    backend.call(lambda a: layout(a, fill=0.5), backend.array(np.zeros(3, np.float32)))
    with pytest.raises(ShapeError, match=r"^fill: 0\.5 in an array of int32; wanted an integer"):
        backend.call(lambda a: layout(a, fill=0.5), backend.array(np.zeros(3, np.int32)))


@pytest.mark.parametrize(("dtype", "value"), [(">i2", 1.5), (">f2", 1e6), (">i2", float("nan"))])
def test_a_fill_is_checked_in_any_order_of_bytes(dtype: str, value: float) -> None:
    for n in (3, 40_000):
        with pytest.raises(ShapeError, match=r"^value: .* in an array of (int16|float16); wanted"):
            xl.pad(np.zeros(n, dtype), to=n + 1, value=value)


def test_what_has_no_holes_needs_no_zero() -> None:
    x = np.ones((2, 3), ml_dtypes.float8_e8m0fnu)
    turned = xl.matrix_transpose.layout(x.shape)
    assert turned(x).shape == xl.matrix_transpose(x).shape == (3, 2)
    refusal = r"^value: 0 in an array of float8_e8m0fnu; wanted a number"
    with pytest.raises(ShapeError, match=refusal):
        xl.pad(x, to=3)
