"""Every op gives the elements its formula says, in every framework, dtype and arrangement."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import xlayout as xl
from tests.frameworks import FRAMEWORKS, Framework, missing
from tests.ops.examples import Example, flat, numbered
from tests.ops.matrix import EXAMPLES, ONE_OF_EACH
from tests.ops.memory import arranged, arrangements, is_row_major

# fmt: off
NATIVE = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32",
          "float16", "float32", "complex64"]
WIDE = ["int64", "uint64", "float64", "complex128"]  # JAX has them under x64
SMALL = ["bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
         "float8_e8m0fnu"]
NO_TORCH = ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float4_e2m1fn",
            "int4", "uint4", "int2", "uint2"]
ONLY_NUMPY = ["longdouble", "clongdouble", "datetime64[ns]", "S5", "U3", ">i4", "object",
              "complex32", [("id", "i4"), ("weight", "f8")]]
# fmt: on

ARRANGEMENTS = arrangements(
    f for f in FRAMEWORKS if not f.name.startswith("jax") and not missing(f)
)


def check(framework: Framework, example: Example, arrays: list, values: list[np.ndarray]) -> None:
    """Check that the op's result is the oracle's in shape, dtype and every bit, and row-major."""
    made = flat(framework.call(example.call, *arrays))
    wanted = flat(example.oracle(*values))
    assert len(made) == len(wanted)
    for y, want in zip(made, wanted, strict=True):
        got = framework.numpy(y)
        assert (got.shape, got.dtype) == (want.shape, values[0].dtype)
        assert is_row_major(y)
        for changed in differences(got, want.astype(got.dtype)):
            # XLA on CPU joins small floats as larger ones, which keeps NaNs but not their payloads.
            assert framework.name.startswith("jax")
            assert np.isnan(changed).all()


def differences(got: np.ndarray, want: np.ndarray) -> list[np.ndarray]:
    """Pairs of elements whose bits differ, or values for dtypes with meaningless bits."""
    if got.dtype.hasobject or got.dtype.char in "gG":
        return [] if got.tolist() == want.tolist() else [got, want]
    bits = [np.frombuffer(x.tobytes(), np.uint8).reshape(-1, x.itemsize) for x in (got, want)]
    where = (bits[0] != bits[1]).any(axis=1)
    return list(np.stack([got.ravel()[where], want.ravel()[where]], axis=1))


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_formula(backend: Framework, example: Example) -> None:
    values = numbered(example.shapes)
    check(backend, example, [backend.array(x) for x in values], values)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
@pytest.mark.parametrize(("framework", "form"), ARRANGEMENTS)
def test_any_arrangement_of_the_input(framework: Framework, form: str, example: Example) -> None:
    made = [arranged(framework, x, form) for x in numbered(example.shapes)]
    check(framework, example, [x for x, _ in made], [values for _, values in made])


def random_bits(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Any bit pattern, NaN payloads included, that the dtype may hold."""
    rng = np.random.default_rng(7)
    if dtype.hasobject:
        return rng.integers(0, 99, shape).astype(object)
    if dtype.kind in "bSU" or dtype.name in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn"):
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.char in "gG":
        return rng.standard_normal(shape).astype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(rng.bytes(count), dtype).reshape(shape)


def dtypes_of(name: str) -> list:
    if name.startswith("torch"):
        return NATIVE + WIDE + SMALL
    if name.startswith("jax"):
        return NATIVE + SMALL + NO_TORCH
    return NATIVE + WIDE + SMALL + NO_TORCH + ONLY_NUMPY


@pytest.mark.parametrize("number", range(len(ONE_OF_EACH)), ids=lambda k: str(ONE_OF_EACH[k]))
def test_any_dtype_bit_for_bit(backend: Framework, number: int) -> None:
    example = ONE_OF_EACH[number]
    dtypes = dtypes_of(backend.name)
    if backend.name.startswith("jax"):  # each is a compilation: every dtype meets two or three ops
        dtypes = dtypes[number % 8 :: 8]
    for name in dtypes:
        if "pad" in example.name and name == "float8_e8m0fnu":
            continue  # it has no zero to pad with
        dtype = np.dtype(getattr(ml_dtypes, name, name) if isinstance(name, str) else name)
        values = [random_bits(shape, dtype) for shape in example.shapes]
        check(backend, example, [backend.array(x) for x in values], values)


@pytest.mark.parametrize("shape", [(4, 6), (256, 4096)])
@pytest.mark.parametrize("dtype", ["V0", np.dtype([])], ids=str)
def test_elements_of_no_bytes_have_places_all_the_same(dtype: Any, shape: tuple[int, int]) -> None:
    x, rows, columns = np.zeros(shape, dtype), *shape
    assert xl.matrix_transpose(x).shape == (columns, rows)
    assert xl.matrix_transpose(x, copy=None).shape == (columns, rows)
    assert xl.interleave(x).shape == shape
    assert len(xl.unstack(x)) == rows
    assert xl.pad(x, to=300).shape == (300, columns)


@pytest.mark.parametrize("dtype", [">i4", ">U3", [("id", ">i4"), ("weight", ">f8")]], ids=str)
def test_a_table_of_positions_keeps_the_order_of_bytes(dtype: Any) -> None:
    layout = xl.Layout.parse("(5, 1) -> (2, 3) {0<-0: (2, 4, 3)} {1<-3:} {2<-1: (2, 1, 2)}")
    x = np.arange(1, 6).reshape(5, 1).astype(dtype)
    wanted = layout(x, out=np.empty((2, 3), dtype))
    assert layout(x).dtype == x.dtype
    assert layout(x).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("held", [np.asarray, jnp.asarray, torch.as_tensor])
def test_options_may_be_held_by_arrays_of_any_framework(backend: Framework, held: Any) -> None:
    two, axes, sizes = (held(np.asarray(n, np.int32)) for n in (2, [1, 0], [4, 4]))
    x = backend.array(np.arange(8, dtype=np.float32))
    turned = xl.permute_dims(backend.array(np.arange(6, dtype=np.int32).reshape(2, 3)), axes)
    assert backend.numpy(turned).tolist() == [[0, 3], [1, 4], [2, 5]]
    for made in (xl.interleave(x, block=two), xl.regroup(x, sizes=sizes, groups=two)):
        assert backend.numpy(made).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    for made in (xl.pad(x, to=9, value=two), xl.pad.layout((8,), to=9)(x, fill=two)):
        assert backend.numpy(made)[-1] == 2
    with pytest.raises(TypeError, match=r"^block: 2\.0 is a float; wanted an int"):
        xl.interleave(x, block=held(np.float32(2)))


OF_ARRAYS = {
    "grid": (xl.to_tiles, (6, 6), {"grid": [1, 3]}),
    "sizes": (xl.regroup, (6,), {"sizes": [2, 4], "groups": 2}),
    "axes": (xl.permute_dims, (2, 3), {"axes": [1, 0]}),
    "axis": (xl.interleave, (2, 4), {"axis": 1}),
}


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_an_op_on_shapes_takes_options_from_arrays_as_the_op_does(name: str) -> None:
    op, shape, options = OF_ARRAYS[name]
    wanted = op.layout(shape, **options)
    for held in (np.array, torch.tensor, jnp.array):
        assert op.layout(shape, **{**options, name: held(options[name])}) == wanted
