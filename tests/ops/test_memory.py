"""Memory: a result is the caller's own unless sharing was asked for, and an input never changes."""

from __future__ import annotations

import itertools
import math
import random
import tracemalloc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import as_strided

import xlayout as xl
from tests.frameworks import Framework, Jax, Numpy, Torch
from tests.ops.examples import Example, flat, numbered
from tests.ops.matrix import EXAMPLES
from tests.ops.memory import FORMS, arranged, arrangements, is_row_major, shares
from xlayout.errors import ShapeError

EAGER = [Numpy(), Torch(), Jax()]
STRIDED = arrangements((Numpy(), Torch()))
SINGLE = [example for example in EXAMPLES if len(example.shapes) == 1]


@pytest.mark.parametrize("framework", EAGER, ids=lambda f: f.name)
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_result_is_fresh(framework: Framework, example: Example) -> None:
    arrays = [framework.array(x) for x in numbered(example.shapes)]
    made = flat(example.call(*arrays))
    assert not any(y is x or shares(x, y) for x in arrays for y in made)
    assert not any(shares(a, b) for a, b in itertools.combinations(made, 2))


@pytest.mark.parametrize(("framework", "form"), STRIDED)
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_a_result_is_fresh_and_row_major_whatever_the_input(
    framework: Framework, form: str, example: Example
) -> None:
    made = [arranged(framework, x, form) for x in numbered(example.shapes)]
    results = flat(example.call(*(x for x, _ in made)))
    assert not any(shares(x, y) for x, _ in made for y in results)
    assert all(is_row_major(y) for y in results)
    assert all(np.array_equal(framework.numpy(x), values) for x, values in made)


def positions(shape: tuple[int, ...], form: str) -> np.ndarray:
    """The position of each element in memory, in elements."""
    strides = FORMS[form](shape)
    where = np.zeros(shape, np.int64)
    for axis, (n, s) in enumerate(zip(shape, strides, strict=True)):
        where += (np.arange(n) * s).reshape([n if a == axis else 1 for a in range(len(shape))])
    return where


def is_affine(where: np.ndarray) -> bool:
    """Whether one offset and one stride per axis reach these positions."""
    if not where.size:
        return True
    steps = [int(np.take(where, 1, a).flat[0] - where.flat[0]) if n > 1 else 0
             for a, n in enumerate(where.shape)]  # fmt: skip
    affine = np.full(where.shape, where.flat[0])
    for axis, step in enumerate(steps):
        ramp = np.arange(where.shape[axis]) * step
        affine += ramp.reshape([-1 if a == axis else 1 for a in range(where.ndim)])
    return bool(np.array_equal(where, affine))


@pytest.mark.parametrize(("framework", "form"), STRIDED)
@pytest.mark.parametrize("example", SINGLE, ids=str)
def test_memory_is_shared_exactly_when_a_view_exists(
    framework: Framework, form: str, example: Example
) -> None:
    (shape,) = example.shapes
    x, values = arranged(framework, *numbered([shape]), form)
    wanted = flat(example.oracle(values))
    holes = sum(y.size for y in wanted) > math.prod(shape)
    view = not holes and all(is_affine(y) for y in flat(example.oracle(positions(shape, form))))
    shared = flat(example.call(x, copy=None))
    assert all(
        np.array_equal(framework.numpy(y), want) for y, want in zip(shared, wanted, strict=True)
    )
    assert [shares(x, y) for y in shared] == [view and y.size > 0 for y in wanted]
    if view:
        assert len(flat(example.call(x, copy=False))) == len(wanted)
    else:
        with pytest.raises(BufferError, match=r"copy=False: .* is no view .*use copy=None"):
            example.call(x, copy=False)


@pytest.mark.parametrize("example", SINGLE, ids=str)
def test_jax_shares_a_regrouping_and_nothing_else(example: Example) -> None:
    (values,) = numbered(example.shapes)
    x = Jax().array(values)
    wanted = flat(example.oracle(np.arange(values.size).reshape(values.shape)))
    regrouping = len(wanted) == 1 and np.array_equal(wanted[0].ravel(), np.arange(values.size))
    shared = flat(example.call(x, copy=None))
    assert [np.asarray(y).tolist() for y in shared] == [
        y.tolist() for y in flat(example.oracle(values))
    ]
    assert any(shares(x, y) for y in shared) == (regrouping and values.size > 0)
    if regrouping:
        (y,) = flat(example.call(x, copy=False))
        assert y is x or y.shape != x.shape
    else:
        with pytest.raises(BufferError, match="copy=False"):
            example.call(x, copy=False)


BACKWARDS = xl.Layout.parse("(a + b) c -> (b + a) c", (2, 3), a=1)


def test_what_a_framework_cannot_view_is_a_copy_and_says_so() -> None:
    key = jax.random.split(jax.random.key(0), 6).reshape(2, 3)
    narrow = jnp.arange(6).astype("int4").reshape(2, 3)
    apart = xl.Layout.parse("a (b c) -> a b c", (2, 3), b=1)
    for layout, x, name in (
        (BACKWARDS, torch.arange(6.0).reshape(2, 3), "torch can make, of torch.float32"),
        (apart, key, "jax can make, of key<fry>"),
        (apart, narrow, "jax can make, of int4"),
    ):
        y = layout(x, copy=None)
        assert (y == layout(x)).all()
        assert tuple(y.shape) == layout.out_shape
        with pytest.raises(BufferError, match=f"is no view of arrays that {name} with strides"):
            layout(x, copy=False)
    x = np.zeros((2, 3))
    assert np.shares_memory(BACKWARDS(x, copy=False), x)
    with pytest.raises(BufferError, match=r"is no view of arrays with strides \[\(3, 1\)\]; use"):
        xl.rearrange(x, "a b -> (b a)", copy=False)
    with pytest.raises(BufferError, match=r"of arrays with strides \[\(3, 1\), \(3, 1\)\]; use"):
        xl.stack([x, x], copy=False)


class Named(np.ndarray):
    """A subclass that is not ours."""


@pytest.mark.parametrize("given", [0, 1])
def test_a_class_of_arrays_that_may_mean_more_is_not_written_nor_read(given: int) -> None:
    arrays = [np.zeros((2, 3)), np.zeros((3, 2))]
    arrays[given] = arrays[given].view(Named)
    text = "^out: cannot be written: a Named may be more than its elements; pass it as x.view"
    with pytest.raises(ShapeError, match=text):
        xl.matrix_transpose(arrays[0], out=arrays[1])


def test_a_single_row_is_shared_too() -> None:
    x = torch.arange(3.0).reshape(1, 3)
    y = xl.Layout([(1, 3)], [(1, 3)], [xl.Piece(0, 0, ((3, 1, 1),))])(x, copy=False)
    assert y.data_ptr() == x.data_ptr()


def test_a_share_is_the_memory_itself() -> None:
    for framework in (Numpy(), Torch()):
        x = framework.array(np.arange(6).reshape(2, 3))
        xl.matrix_transpose(x, copy=False)[2, 1] = -1
        assert x[1, 2] == -1


def test_a_share_of_read_only_memory_is_read_only() -> None:
    y = xl.matrix_transpose(Numpy(writeable=False).array(np.zeros((2, 3))), copy=False)
    assert not y.flags.writeable
    assert xl.matrix_transpose(Numpy(writeable=False).array(np.zeros((2, 3)))).flags.writeable


def test_a_share_keeps_the_memory_alive() -> None:
    y = xl.matrix_transpose(np.arange(6.0).reshape(2, 3), copy=False)
    np.zeros(6)  # would take the freed memory
    assert y.tolist() == [[0, 3], [1, 4], [2, 5]]


def test_a_view_counts_from_the_start_of_the_input_not_of_its_storage() -> None:
    for framework in (Numpy(), Torch()):
        x = framework.array(np.arange(24).reshape(4, 6))[1:3, 2:5]
        y = xl.matrix_transpose(x, copy=False)
        assert framework.numpy(y).tolist() == [[8, 14], [9, 15], [10, 16]]


def test_a_share_of_a_parameter_is_one_that_autograd_sees() -> None:
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    y = xl.matrix_transpose(weight, copy=False)
    assert y.data_ptr() == weight.data_ptr()
    (y * torch.tensor([[1.0, 2], [3, 4], [5, 6]])).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [[1, 3, 5], [2, 4, 6]]


def test_a_share_whose_elements_are_one_is_read_only() -> None:
    repeats = xl.Layout.from_json(
        '{"format":"xlayout.layout/1","in_shapes":[[3]],"out_shapes":[[3,4]],'
        '"pieces":[[0,0,[[3,1,4],[4,0,1]]]]}'
    )
    x = np.arange(3)
    y = repeats(x, copy=None)
    assert np.shares_memory(x, y)
    assert not y.flags.writeable  # as `np.broadcast_to` has it
    assert y.tolist() == [[k] * 4 for k in range(3)]
    assert xl.matrix_transpose(np.zeros((2, 1)), copy=False).flags.writeable


def test_memory_that_no_stride_tells_of_is_no_view() -> None:
    x = torch.zeros(2, 3, dtype=torch.complex64).conj()
    for lazy in (x, x.imag):
        with pytest.raises(BufferError, match="no view of arrays with memory that is out of sight"):
            xl.matrix_transpose(lazy, copy=False)


@pytest.mark.parametrize("framework", EAGER, ids=lambda f: f.name)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])  # the kernel copies no complex ones
def test_a_result_that_could_be_a_view_is_fresh(framework: Framework, dtype: Any) -> None:
    x = framework.array(np.ones((2, 3), dtype))
    y = xl.rearrange(x, "a b -> b a 1")
    assert is_row_major(y)
    assert not shares(x, y)


def test_odd_memory_of_numpy_is_copied_where_no_element_stride_can_say_it() -> None:
    packed = np.zeros(4, dtype=[("flag", "u1"), ("x", "<f4")])
    packed["x"] = np.arange(4)
    x = packed["x"]  # 5 bytes from one element to the next
    assert x.strides == (5,)
    assert xl.interleave(x).tolist() == [0, 2, 1, 3]
    assert xl.trim(x, to=2, copy=None).tolist() == [0, 1]
    overlapping = as_strided(np.arange(4, dtype=np.int32), (3, 2), (4, 4))
    assert xl.matrix_transpose(overlapping, copy=False).tolist() == [[0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize("framework", EAGER, ids=lambda f: f.name)
@pytest.mark.parametrize("copy", [1, 0, "never", "True"])
def test_copy_is_one_of_three(framework: Framework, copy: object) -> None:
    with pytest.raises(TypeError, match=rf"copy: {copy!r}; wanted True, False or None"):
        xl.interleave(framework.array(np.zeros(4, np.float32)), copy=copy)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("side", [2, 64])
def test_images_and_volumes_by_channels_are_padded_row_major(
    side: int, requires_grad: bool
) -> None:
    image, volume = (2, 4, side, side), (2, 4, side, side, 2)
    for order, shape in ((torch.channels_last, image), (torch.channels_last_3d, volume)):
        x = torch.randn(shape).contiguous(memory_format=order).requires_grad_(requires_grad)
        for axis in range(x.ndim):
            to = shape[axis] + 3
            layout = xl.pad.layout(shape, to=to, axis=axis)
            for padded in (xl.pad(x, to=to, axis=axis), layout(x), xl.apply(layout, x)):
                assert padded.is_contiguous()
                assert torch.equal(xl.trim(padded, to=shape[axis], axis=axis), x)


@pytest.mark.parametrize("on", [True, False])
def test_a_split_across_the_axes_of_strided_memory_copies_it(on: bool) -> None:
    layout = xl.Layout.permute((3, 4), (1, 0)).regrouped(in_shapes=[(4, 3)])
    values = np.arange(12.0).reshape(3, 4).T  # of which (3, 4) is no view
    with xl.native(on):
        for made in (layout(values), layout(torch.from_numpy(values)).numpy()):
            assert made.tolist() == values.reshape(3, 4).T.tolist()


def test_a_program_frees_what_it_has_concatenated_before() -> None:
    """40 blocks in another order, whose program holds up to nine times the result otherwise."""
    order = random.Random(1).sample(range(40), 40)
    pieces = [xl.Piece(256 * i, 256 * k, ((256, 1, 1),)) for k, i in enumerate(order)]
    layout = xl.Layout([(10240,)], [(10240,)], pieces)
    assert layout.cost(8).lowering == "concatenate"
    x = np.arange(10240).astype(object)
    layout(x)
    tracemalloc.start()
    made = layout(x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * made.nbytes
    assert made.tolist() == x[layout.index()].tolist()
