"""`out=`: the result lands in the caller's memory and nowhere else, or nothing happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

import xlayout as xl
from tests.frameworks import Framework, Jax, Numpy, Torch
from tests.ops.examples import Example, flat, numbered
from tests.ops.matrix import EXAMPLES
from tests.ops.memory import arranged
from xlayout.errors import ShapeError

# torch's forward mode compiles its decompositions at first use.
forward_mode = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

WRITEABLE = [Numpy(), Torch()]


@pytest.mark.parametrize("form", ["row-major", "transposed", "sliced"])
@pytest.mark.parametrize("framework", WRITEABLE, ids=lambda f: f.name)
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_result_lands_in_out(framework: Framework, example: Example, form: str) -> None:
    values = numbered(example.shapes)
    wanted = flat(example.oracle(*values))
    outs = [arranged(framework, np.full_like(y, -1), form)[0] for y in wanted]
    several = len(outs) > 1 or example.name.startswith(("split", "unstack", "to_tiles"))
    out = tuple(outs) if several else outs[0]
    made = example.call(*(framework.array(x) for x in values), out=out)
    assert all(a is b for a, b in zip(flat(made), outs, strict=True))
    for y, want in zip(outs, wanted, strict=True):
        assert np.array_equal(framework.numpy(y), want)


@pytest.mark.parametrize("framework", WRITEABLE, ids=lambda f: f.name)
def test_what_lies_between_the_elements_of_out_stays(framework: Framework) -> None:
    memory = framework.array(np.full((4, 6), -1, np.int32))
    x = framework.array(np.arange(4, dtype=np.int32).reshape(2, 2))
    xl.matrix_transpose(x, out=memory[1:3, 1:5:2])
    rows = [[-1] * 6, [-1, 0, -1, 2, -1, -1], [-1, 1, -1, 3, -1, -1], [-1] * 6]
    assert framework.numpy(memory).tolist() == rows


@pytest.mark.parametrize("framework", WRITEABLE, ids=lambda f: f.name)
@pytest.mark.parametrize("side", [2, 24, 512, 2048])
@pytest.mark.parametrize("columns", [False, True])
def test_one_half_of_a_matrix_may_be_written_from_the_other(
    framework: Framework, side: int, columns: bool
) -> None:
    shape = (side, 2 * side + 3) if columns else (2 * side, side)
    values = np.random.default_rng(side).integers(0, 1 << 30, shape, np.int32)
    memory = framework.array(values.copy())
    x, out = (memory[:, :side], memory[:, side + 3 :]) if columns else (memory[::2], memory[1::2])
    xl.matrix_transpose(x, out=out)
    wanted = values.copy()
    if columns:
        wanted[:, side + 3 :] = values[:, :side].T
    else:
        wanted[1::2] = values[::2].T
    assert np.array_equal(framework.numpy(memory), wanted)


@pytest.mark.parametrize("framework", WRITEABLE, ids=lambda f: f.name)
@pytest.mark.parametrize("rows", [8, 300, 3000])  # of a kilobyte each
def test_a_second_call_writes_what_the_first_did(framework: Framework, rows: int) -> None:
    x = np.arange(4 * rows * 256, dtype=np.int32).reshape(4 * rows, 256)
    for number in range(3):
        given = framework.array(np.concatenate([x[:1], x + number]))[1:]  # not first in its memory
        out = framework.array(np.zeros((4 * rows + 1, 256), np.int32))
        assert xl.interleave(given, out=out[1:]) is not None
        want = (x + number).reshape(2, 2 * rows, 256).swapaxes(0, 1).reshape(x.shape)
        assert np.array_equal(framework.numpy(out)[1:], want)
        assert not framework.numpy(out)[0].any()
        q, k, v = (framework.array(y) for y in (x + number, x[: 2 * rows], x[2 * rows :]))
        fused = framework.array(np.zeros((8 * rows, 256), np.int32))
        made = xl.fuse_qkv(q, k, v, heads=4, kv_heads=2, out=fused)
        wanted = xl.fuse_qkv(x + number, x[: 2 * rows], x[2 * rows :], heads=4, kv_heads=2)
        assert np.array_equal(framework.numpy(made), wanted)


@pytest.mark.parametrize("framework", WRITEABLE, ids=lambda f: f.name)
def test_what_was_in_out_before_is_no_hole(framework: Framework) -> None:
    out = framework.array(np.full(5, 9, np.int32))
    xl.pad(framework.array(np.array([1, 2, 3], np.int32)), to=5, value=7, out=out)
    assert framework.numpy(out).tolist() == [1, 2, 3, 7, 7]


def test_refuses_an_out_of_objects() -> None:
    x, out = np.full((2, 3), "thing", object), np.zeros((3, 2), object)
    text = "out: cannot be written: its elements are objects, or no whole elements apart"
    refused(Numpy(), out, ShapeError, text, x)
    record = np.zeros(3, [("a", "u1"), ("b", "<i4")])["b"]  # every five bytes
    with pytest.raises(ShapeError, match=text):
        xl.interleave(np.zeros(4, "<i4")[:3], groups=1, out=record)


def test_out_counts_as_a_change_to_autograd() -> None:
    out = torch.zeros(4)
    before = out._version
    xl.interleave(torch.arange(4.0), out=out)
    assert out._version > before
    w = torch.ones(4, requires_grad=True)
    product = w * out
    xl.interleave(torch.arange(4.0), out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_without_gradients_an_input_that_wants_them_may_be_written_elsewhere() -> None:
    whole, out = torch.arange(8.0, requires_grad=True), torch.zeros(4)
    for x in (whole[:4] / 1, whole[::2] / 2, whole[::2]):  # row-major, and every other element
        want = x.detach()[[0, 2, 1, 3]]
        with torch.no_grad():
            assert torch.equal(xl.interleave(x, out=out), want)
        with torch.inference_mode():
            assert torch.equal(xl.interleave(x, out=torch.zeros(4)), want)


def refused(
    framework: Framework, out: Any, error: type[Exception], text: str, x: Any = None
) -> None:
    """`out` is refused with this text, and holds what it held."""
    x = framework.array(np.arange(6, dtype=np.int32).reshape(2, 3)) if x is None else x
    values = framework.numpy(x)
    knows = framework.name != "jax" and values.dtype != object
    for _ in range(2 * knows):  # later calls know the way already
        good = framework.array(np.zeros(values.shape[::-1], values.dtype))
        xl.matrix_transpose(framework.array(values.copy()), out=good)
        assert np.array_equal(framework.numpy(good), values.T)
    held = [y.tolist() for y in flat(out)]
    with pytest.raises(error, match=text):
        xl.matrix_transpose(x, out=out)
    assert [y.tolist() for y in flat(out)] == held


@pytest.mark.parametrize("framework", WRITEABLE, ids=lambda f: f.name)
class TestRefusesAnOutThat:
    def test_has_another_shape(self, framework: Framework) -> None:
        text = r"out: \S*int32 \(2, 3\) on cpu; wanted \S*int32 \(3, 2\) on cpu"
        refused(framework, framework.array(np.zeros((2, 3), np.int32)), ShapeError, text)

    def test_has_another_dtype(self, framework: Framework) -> None:
        text = r"out: \S*float32 \(3, 2\) on cpu; wanted \S*int32 \(3, 2\)"
        refused(framework, framework.array(np.zeros((3, 2), np.float32)), ShapeError, text)

    def test_is_of_another_framework(self, framework: Framework) -> None:
        other = Torch() if framework.name == "numpy" else Numpy()
        found = r"a (torch\.Tensor|numpy\.ndarray)"
        text = f"out: {found}; wanted the framework of the input, {framework.name}"
        refused(framework, other.array(np.zeros((3, 2), np.int32)), TypeError, text)

    def test_is_no_array(self, framework: Framework) -> None:
        x = framework.array(np.zeros((2, 3), np.int32))
        with pytest.raises(TypeError, match=r"^out: expected a torch\.Tensor, jax\.Array or num"):
            xl.matrix_transpose(x, out="here")

    def test_is_more_than_an_array(self, framework: Framework) -> None:
        masked: Any = np.ma.zeros((3, 2), np.int32)
        if framework.name == "numpy":
            refused(framework, masked, TypeError, "^out: a masked array would lose its mask")
        else:
            sparse = torch.zeros(3, 2, dtype=torch.int32).to_sparse()
            with pytest.raises(TypeError, match=r"^out: a tensor of layout torch\.sparse_coo"):
                xl.matrix_transpose(torch.zeros(2, 3, dtype=torch.int32), out=sparse)

    def test_is_one_too_many(self, framework: Framework) -> None:
        out = [framework.array(np.zeros((3, 2), np.int32)) for _ in range(2)]
        refused(framework, out, ShapeError, "out: 2 arrays, the layout makes 1")

    def test_is_the_input(self, framework: Framework) -> None:
        x = framework.array(np.arange(4, dtype=np.int32).reshape(2, 2))
        refused(framework, x, ShapeError, "out: cannot be written: it overlaps an input", x)

    def test_overlaps_the_input(self, framework: Framework) -> None:
        memory = framework.array(np.arange(10, dtype=np.int32))
        refused(
            framework,
            memory[4:].reshape(3, 2),
            ShapeError,
            "out: cannot be written: it overlaps an input",
            memory[:6].reshape(2, 3),
        )

    def test_overlaps_another_out(self, framework: Framework) -> None:
        memory = framework.array(np.zeros(3, np.int32))
        x = framework.array(np.arange(4, dtype=np.int32).reshape(2, 2))
        with pytest.raises(
            ShapeError, match=r"^out: cannot be written: it overlaps another of them$"
        ):
            xl.unstack(x, out=(memory[:2], memory[1:]))

    def test_is_the_same_out_twice(self, framework: Framework) -> None:
        memory = framework.array(np.zeros(2, np.int32))
        x = framework.array(np.arange(4, dtype=np.int32).reshape(2, 2))
        with pytest.raises(
            ShapeError, match=r"^out: cannot be written: it overlaps another of them$"
        ):
            xl.unstack(x, out=(memory, memory))

    @pytest.mark.parametrize("strides", [(0, 1), (50, 0), (1, 1), (2, 2), (1, 2)])
    def test_holds_an_element_twice(self, framework: Framework, strides: tuple[int, int]) -> None:
        memory = framework.array(np.zeros(200, np.int32))
        if framework.name == "numpy":
            nbytes = (4 * strides[0], 4 * strides[1])
            out: Any = np.lib.stride_tricks.as_strided(memory, (3, 2), nbytes)
        else:
            out = memory.as_strided((3, 2), strides)
        if strides == (1, 2):  # 0 2, 1 3, 2 4
            assert len({k + 2 * j for k in range(3) for j in range(2)}) < 6
        refused(framework, out, ShapeError, "out: cannot be written: its elements share memory")

    def test_comes_with_copy_false(self, framework: Framework) -> None:
        x, out = (framework.array(np.zeros((2, 2), np.int32)) for _ in range(2))
        with pytest.raises(BufferError, match="copy=False: a result written to out= is a copy"):
            xl.matrix_transpose(x, out=out, copy=False)


def test_refuses_an_out_that_reaches_the_input_by_another_name() -> None:
    memory = np.arange(10, dtype=np.int32)
    x, out = torch.from_numpy(memory[:6]).view(2, 3), torch.from_numpy(memory[4:]).view(3, 2)
    refused(Torch(), out, ShapeError, "out: cannot be written: it overlaps an input", x)


def test_refuses_an_out_without_memory() -> None:
    x, out = (torch.empty(4, device="meta") for _ in range(2))
    with pytest.raises(ShapeError, match=r"^out: cannot be written: a meta tensor has no memory$"):
        xl.interleave(x, out=out)


def test_refuses_an_input_at_no_whole_elements_apart() -> None:
    x = np.zeros((2, 3), [("a", "u1"), ("b", "i4")])["b"]
    text = "out: cannot be written: an input's elements are objects, or no whole elements apart"
    refused(Numpy(), np.zeros((3, 2), np.int32), ShapeError, text, x)


def test_refuses_an_out_that_is_read_only() -> None:
    out = Numpy(writeable=False).array(np.zeros((3, 2), np.int32))
    refused(Numpy(), out, ShapeError, "out: cannot be written: it is read-only")


@pytest.mark.parametrize("zeros", [jnp.zeros, np.zeros])
@pytest.mark.parametrize("shape", [(3, 2), (2, 2)], ids=["right", "wrong"])
def test_refuses_to_write_what_comes_from_jax(zeros: Any, shape: tuple[int, ...]) -> None:
    text = "results of jax arrays are jax arrays, which are immutable; leave it out"
    refused(Jax(), zeros(shape, jnp.int32), TypeError, f"out: cannot be written: {text}")


def test_refuses_an_out_that_requires_grad() -> None:
    out = torch.zeros((3, 2), requires_grad=True)
    for context in (torch.enable_grad, torch.no_grad):
        with context(), pytest.raises(ShapeError, match="out: cannot be written: it requires grad"):
            xl.matrix_transpose(torch.zeros(2, 3), out=out)


def test_refuses_an_input_whose_gradient_would_be_lost() -> None:
    x = torch.zeros(2, 3, requires_grad=True)
    with pytest.raises(ShapeError, match="out: cannot be written: an input requires grad"):
        xl.matrix_transpose(x, out=torch.zeros(3, 2))


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def under(transform: Callable[..., Any]) -> None:
    out = torch.zeros(4)
    with pytest.raises((ShapeError, TypeError), match="out: cannot be written"):
        transform(lambda x: xl.interleave(x, out=out).sum())(torch.zeros(4))


@forward_mode
def test_refuses_to_write_under_a_transform() -> None:
    under(torch.func.grad)
    under(lambda f: lambda x: torch.func.vmap(f)(torch.stack([x, x])))
    under(lambda f: lambda x: torch.func.jvp(f, (x,), (x,)))
    under(lambda f: torch.func.functionalize(f))
    under(lambda f: torch.compile(f, backend="eager", fullgraph=False))


@forward_mode
def test_refuses_to_write_under_a_mode() -> None:
    with Watch():
        under(lambda f: f)
    with forward_ad.dual_level():
        under(lambda f: lambda x: f(forward_ad.make_dual(x, torch.ones(4))))


def test_refuses_to_write_under_jit() -> None:
    with pytest.raises(TypeError, match="out: cannot be written while tracing"):
        jax.jit(lambda x: xl.interleave(x, out=jnp.zeros(4)))(jnp.zeros(4))
