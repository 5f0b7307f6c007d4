"""Arrays beyond the size at which other code takes over: the same values, the same promises."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import xlayout as xl
from tests.frameworks import Framework, Jax, Numpy, Torch
from tests.ops.examples import (
    Example,
    deinterleave,
    flat,
    fuse,
    interleave,
    numbered,
    pad,
    permute,
    regroup,
    rope_halves,
    split,
    stack,
    tiles,
    transpose,
    trim,
    unstack,
)
from tests.ops.memory import arranged, arrangements, is_row_major, shares

LARGE = [
    interleave((768, 301), block=32),
    interleave((65536,)),
    deinterleave((7, 4096), axis=-1, block=1),
    transpose(300, 257),
    transpose(3, 129, 255),
    permute((40, 41, 42), (2, 1, 0)),
    rope_halves((512, 65), heads=8),
    fuse(8, 2, 16, "grouped", (257,)),
    split(8, 2, 16, "grouped", (257,)),
    regroup((1000, 33), sizes=(600, 200, 200), groups=20),
    tiles((257, 263), (86, 86, 85), (132, 131), "balanced"),
    stack([(130, 131)] * 3, axis=-1),
    unstack((3, 130, 131)),
    pad((200, 131), to=259, axis=1, value=1),
    trim((131, 260), to=131, axis=1),
]
STRIDED = arrangements((Numpy(), Torch()))


def same(framework: Framework, example: Example, arrays: list, values: list[np.ndarray]) -> None:
    made = flat(example.call(*arrays))
    for y, want in zip(made, flat(example.oracle(*values)), strict=True):
        got = framework.numpy(y)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        assert np.array_equal(got.view(np.uint8), np.ascontiguousarray(want).view(np.uint8))
        assert is_row_major(y)
        assert not any(shares(x, y) for x in arrays)
    for x, value in zip(arrays, values, strict=True):
        assert np.array_equal(framework.numpy(x), value)


@pytest.mark.parametrize(("framework", "form"), STRIDED)
@pytest.mark.parametrize("example", LARGE, ids=str)
def test_values_and_memory(framework: Framework, form: str, example: Example) -> None:
    made = [arranged(framework, x, form) for x in numbered(example.shapes)]
    same(framework, example, [x for x, _ in made], [values for _, values in made])


@pytest.mark.parametrize("example", LARGE, ids=str)
def test_values_in_jax(example: Example) -> None:
    values = numbered(example.shapes)
    same(Jax(), example, [Jax().array(x) for x in values], values)


@pytest.mark.parametrize("name", ["bool", "uint8", "bfloat16", "float64", "complex128", "S3", "S7"])
@pytest.mark.parametrize("example", LARGE, ids=str)
def test_elements_of_any_width(name: str, example: Example) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    values = [(x % 251).astype(dtype) for x in numbered(example.shapes)]
    if "value=1" in example.name and name.startswith("S"):
        return  # numbers are nothing to pad text with
    same(Numpy(), example, values, values)
    if not name.startswith("S"):
        same(Torch(), example, [Torch().array(x) for x in values], values)


@pytest.mark.parametrize("form", ["row-major", "transposed", "sliced"])
@pytest.mark.parametrize("framework", [Numpy(), Torch()], ids=lambda f: f.name)
@pytest.mark.parametrize("example", LARGE, ids=str)
def test_out(framework: Framework, form: str, example: Example) -> None:
    values = numbered(example.shapes)
    wanted = flat(example.oracle(*values))
    outs = [arranged(framework, np.full_like(y, -1), form)[0] for y in wanted]
    versions = [y._version for y in outs] if framework.name == "torch" else []
    example.call(*map(framework.array, values), out=tuple(outs) if len(outs) > 1 else outs[0])
    for y, want in zip(outs, wanted, strict=True):
        assert np.array_equal(framework.numpy(y), want)
    assert all(y._version > v for y, v in zip(outs, versions, strict=False))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("example", LARGE, ids=str)
def test_what_torch_must_see_it_sees(example: Example) -> None:
    xs = [torch.from_numpy(x).float() for x in numbered(example.shapes)]
    leaves = [x.clone().requires_grad_() for x in xs]
    outputs = flat(example.call(*leaves))
    assert all(y.grad_fn is not None for y in outputs)
    sum(y.sum() for y in outputs).backward()
    assert all(x.grad is not None for x in leaves)
    wanted = [y.clone() for y in flat(example.call(*xs))]
    batched = torch.func.vmap(lambda xs: flat(example.call(*xs)))([torch.stack([x, x]) for x in xs])
    assert all(torch.equal(y[1], want) for y, want in zip(batched, wanted, strict=True))
    with forward_ad.dual_level():
        dual = flat(example.call(*(forward_ad.make_dual(x, x) for x in xs)))
        tangents = [forward_ad.unpack_dual(y).tangent for y in dual]
    whole = example.name.startswith("pad")
    assert whole or all(torch.equal(t, want) for t, want in zip(tangents, wanted, strict=True))
    conjugate = [torch.complex(x, x + 1).conj() for x in xs]
    for lazy in (conjugate, [x.imag for x in conjugate]):
        made = flat(example.call(*lazy))
        resolved = flat(example.call(*(x.resolve_conj().resolve_neg() for x in lazy)))
        assert all(torch.equal(y, want) for y, want in zip(made, resolved, strict=True))
        assert not any(y.is_conj() or y.is_neg() for y in made)


def test_a_mapped_file_is_read_in_place(tmp_path: Path) -> None:
    x = np.memmap(tmp_path / "weights", np.float32, "w+", shape=(256, 300))
    x[:] = np.arange(x.size).reshape(x.shape)
    assert np.array_equal(xl.matrix_transpose(x), np.asarray(x).T)
    assert shares(np.asarray(x), xl.matrix_transpose(x, copy=False))


@pytest.mark.parametrize(("to", "error"), [(1 << 62, MemoryError), (1 << 63, ValueError)])
def test_what_there_is_no_memory_for_numpy_refuses(to: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"Unable to allocate|Maximum allowed dimension"):
        xl.pad(np.zeros(2, np.uint8), to=to)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_what_repeats_beyond_all_memory_the_framework_refuses(framework: str) -> None:
    shape = (1 << 30, 1 << 32)
    x = np.broadcast_to(np.uint8(3), shape)
    t = torch.tensor(3, dtype=torch.uint8).expand(shape)
    for call in (
        xl.matrix_transpose,
        lambda x: xl.interleave(x, axis=1),
        xl.matrix_transpose.layout(shape),
    ):
        with pytest.raises((MemoryError, RuntimeError), match=r"allocate (4.00 EiB|memory)"):
            call(x if framework == "numpy" else t)
    assert xl.matrix_transpose(x, copy=None).shape == shape[::-1]


@pytest.mark.parametrize("axes", [2, 62, 63, 64])
@pytest.mark.parametrize("first", [1, 3, 4])
def test_no_array_on_the_way_has_more_axes_than_numpy_allows(
    backend: Framework, axes: int, first: int
) -> None:
    few = xl.Layout.parse("(a b) -> (b a)", (8,), a=2) >> xl.Layout.pad((8,), to=9)
    ones = (1,) * (axes - 1)
    many = few.regrouped([(*ones, first), (*ones, 8 - first)], [(*ones, 9)])
    xs = np.arange(8.0, dtype=np.float32).reshape(*ones, 8)
    made = backend.call(many, *map(backend.array, np.split(xs, [first], axis=-1)))
    assert backend.numpy(made).shape == (*ones, 9)
    assert backend.numpy(made).reshape(9).tolist() == [0, 4, 1, 5, 2, 6, 3, 7, 0]


@pytest.mark.parametrize("side", [8, 256])
def test_elements_of_no_bytes_have_a_shape(side: int) -> None:
    x = np.zeros((side, 4, side), [("float0", np.void, 0)])  # a tangent of integers, to JAX
    for y in (xl.matrix_transpose(x, copy=None), xl.rearrange(x, "a b c -> (c b) a")):
        assert y.dtype == x.dtype
        assert y.size == x.size
    assert xl.pad(x, to=side + 1).shape == (side + 1, 4, side)
    assert xl.stack([x, x]).shape == (2, side, 4, side)


@pytest.mark.parametrize("side", [3, 300])
def test_objects_are_counted_where_they_lie(side: int) -> None:
    thing = object()
    x = np.full((side, side), thing)
    before = sys.getrefcount(thing)
    y = xl.matrix_transpose(x)
    assert sys.getrefcount(thing) == before + side * side
    del y
    assert sys.getrefcount(thing) == before
