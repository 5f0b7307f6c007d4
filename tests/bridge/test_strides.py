"""Any shape, strides and alignment: shared where the other side can use it, else copied whole."""

from __future__ import annotations

import tracemalloc
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.bridge.memory import at_offset, bits, pointer
from xlayout.bridge import to_jax, to_numpy, to_torch


@pytest.mark.parametrize("shape", [(), (1,), (5,), (1, 16), (3, 1, 5), (2, 3, 1, 1, 4)])
def test_any_shape_is_shared(shape: tuple[int, ...]) -> None:
    t = torch.randn(shape)
    a = to_jax(t, copy=False)
    assert a.shape == shape
    assert pointer(a) == pointer(t)
    assert a.format.layout.major_to_minor == tuple(range(len(shape)))
    assert to_torch(a, copy=False).shape == shape
    assert to_numpy(a, copy=False).shape == shape


@pytest.mark.parametrize("convert", [to_torch, to_jax, to_numpy])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_no_elements_cross_as_no_elements(convert: Any, shape: tuple[int, ...]) -> None:
    t = torch.empty(shape, dtype=torch.int16)
    of_a_subclass = t.as_subclass(type("Plain", (torch.Tensor,), {}))
    for x in (t, of_a_subclass, jnp.empty(shape, np.int16), np.empty(shape, np.int16)):
        for copy in (None, False, True):
            made = convert(x, copy=copy)
            assert (made.shape, to_numpy(made).dtype) == (shape, np.int16)


def test_forty_axes_are_shared() -> None:
    t = torch.ones((1,) * 40)
    assert pointer(to_jax(t, copy=False)) == pointer(t)


@pytest.mark.parametrize("strides", [(8, 32, 1), (8, 999, 1)])
def test_the_stride_of_a_size_1_axis_means_nothing(strides: tuple[int, ...]) -> None:
    t = torch.arange(32.0).as_strided((4, 1, 8), strides)
    n = np.lib.stride_tricks.as_strided(
        at_offset(t.numpy(), 0), (4, 1, 8), tuple(4 * s for s in strides)
    )
    for x in (t, n):
        a = to_jax(x, copy=False)
        assert a.format.layout.major_to_minor == (0, 1, 2)
        assert bits(a) == bits(t)


def test_nor_does_that_of_the_one_element_there_is() -> None:
    t = torch.arange(8.0)
    for x in (t[::8], at_offset(t.numpy(), 0)[::8]):
        assert bits(to_jax(x, copy=False)) == bits(t[:1])


def test_it_means_nothing_in_another_order_of_axes_either() -> None:
    t = torch.arange(16.0).as_strided((4, 1, 4), (1, 7, 4))
    a = to_jax(t, copy=False, layout="any")
    assert (pointer(a), bits(a)) == (pointer(t), bits(t))


NOT_ROW_MAJOR = {
    "transposed": lambda t: t.t(),
    "permuted": lambda t: t.view(4, 4, 16).permute(2, 0, 1),
    "channels_last": lambda t: t.view(2, 2, 8, 8).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("make", NOT_ROW_MAJOR.values(), ids=NOT_ROW_MAJOR)
def test_another_order_of_axes_is_copied_unless_any_layout_will_do(make: Any) -> None:
    t = make(torch.arange(256.0).view(16, 16))
    a = to_jax(t)
    assert pointer(a) != pointer(t)
    assert a.format.layout.major_to_minor == tuple(range(t.ndim))
    with pytest.raises(BufferError, match=r"not row-major \(layout='any' would share it\); pass"):
        to_jax(t, copy=False)
    shared = to_jax(t, copy=False, layout="any")
    assert pointer(shared) == pointer(t)
    assert bits(shared) == bits(a) == bits(t)
    back = to_torch(shared, copy=False)
    assert (pointer(back), back.stride()) == (pointer(t), t.stride())
    view = to_numpy(shared, copy=False)
    assert (pointer(view), bits(view)) == (pointer(t), bits(t))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_what_crosses_as_its_bits_is_copied_in_any_layout(dtype: Any) -> None:
    n = at_offset(np.arange(256).astype(dtype).reshape(16, 16), 0)
    n.flags.writeable = False
    assert pointer(to_jax(n, copy=False, layout="any")) == pointer(n)
    assert bits(to_jax(n.T, layout="any")) == bits(n.T)
    with pytest.raises(BufferError, match=r"its strides \(1, 16\) are not row-major; pass"):
        to_jax(n.T, copy=False, layout="any")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_jax_gives_bits_by_rows_so_that_numpy_copies_another_layout(dtype: torch.dtype) -> None:
    t = torch.arange(256.0).view(16, 16).to(dtype).t()
    a = to_jax(t, copy=False, layout="any")
    for copy in (None, True):
        n = to_numpy(a, copy=copy)
        assert (pointer(n) != pointer(t), bits(n)) == (True, bits(t))
    with pytest.raises(BufferError, match=r"its strides \(1, 16\) are not row-major, and"):
        to_numpy(a, copy=False)
    b = to_jax(t.contiguous(), copy=False)
    assert pointer(to_numpy(b, copy=False)) == pointer(b)


GAPS = {
    "column slice": lambda t: t[:, :3],
    "every second": lambda t: t[::2],
    "expanded": lambda t: t[:1].expand(16, 16),
    "overlapping": lambda t: t.as_strided((15, 4), (1, 1)),
    "diagonal": lambda t: t.diagonal(),
    "one column": lambda t: t[:, :1],
}


@pytest.mark.parametrize("make", GAPS.values(), ids=GAPS)
@pytest.mark.parametrize("layout", ["row_major", "any"])
def test_strides_with_gaps_or_overlaps_are_copied(make: Any, layout: str) -> None:
    t = make(torch.arange(256.0).view(16, 16))
    a = to_jax(t, layout=layout)
    assert bits(a) == bits(t)
    with pytest.raises(BufferError, match=r"its strides .* leave gaps or overlap; pass copy=None"):
        to_jax(t, copy=False, layout=layout)


@pytest.mark.parametrize("make", {**NOT_ROW_MAJOR, **GAPS}.values(), ids={**NOT_ROW_MAJOR, **GAPS})
def test_torch_and_numpy_share_any_strides(make: Any) -> None:
    t = make(torch.arange(256.0).view(16, 16))
    n = to_numpy(t, copy=False)
    assert (pointer(n), bits(n)) == (pointer(t), bits(t))
    back = to_torch(n, copy=False)
    assert (pointer(back), back.stride()) == (pointer(t), t.stride())


@pytest.mark.parametrize("convert", [to_torch, to_jax])
def test_negative_strides_are_copied(convert: Any) -> None:
    n = np.arange(16, dtype=np.float32)[::-1]
    assert bits(convert(n)) == bits(n)
    with pytest.raises(BufferError, match=r"x: float32\[16\] cannot be shared: a stride is neg"):
        convert(n, copy=False)


def test_strides_between_elements_are_copied() -> None:
    n = np.zeros(4, np.dtype([("a", np.int16), ("b", np.float32)]))["b"]
    assert to_torch(n).tolist() == [0.0] * 4
    with pytest.raises(BufferError, match="no whole number of elements"):
        to_torch(n, copy=False)


@pytest.mark.parametrize("offset", [4, 16, 48])
def test_unaligned_memory_is_copied_before_jax_sees_it(offset: int) -> None:
    n = at_offset(np.arange(64, dtype=np.float32), offset)
    for x in (n, torch.from_numpy(n)):
        a = to_jax(x)
        x[:] = -1  # the copy is over: nothing reads the source any more
        assert a.tolist() == list(range(64))
        with pytest.raises(BufferError, match="its address is not a multiple of 64 bytes"):
            to_jax(x, copy=False)
        x[:] = np.arange(64) if x is n else torch.arange(64)


def test_torch_gets_a_copy_of_complex_numbers_where_its_instructions_would_crash() -> None:
    n = at_offset(np.arange(6, dtype=np.complex128).reshape(2, 3), 8)
    for x in (n, n.T, n[:, 1:]):
        t = to_torch(x)
        assert pointer(t) % 16 == 0
        assert (t * 2).tolist() == (x * 2).tolist()
        with pytest.raises(BufferError, match="its address is not a multiple of 16 bytes; pass"):
            to_torch(x, copy=False)
    assert to_torch(n[:0], copy=False).shape == (0, 3)
    for x in (at_offset(n, 16), at_offset(n.astype(np.complex64), 8)):
        assert pointer(to_torch(x, copy=False)) == pointer(x)


@pytest.mark.parametrize("lazy", ["conj", "neg"])
def test_a_lazy_sign_is_resolved_never_dropped(lazy: str) -> None:
    z = torch.tensor([1 + 2j, 3 - 4j])
    x = z.conj() if lazy == "conj" else z[:1].conj().imag.reshape(())
    assert x.is_conj() or x.is_neg()
    want = x.resolve_conj().resolve_neg()
    for convert in (to_jax, to_numpy):
        assert convert(x).tolist() == want.tolist()
        assert convert(x, copy=True).tolist() == want.tolist()
        with pytest.raises(
            BufferError, match=r"its (conjugate|negative) bit is set; pass copy=None"
        ):
            convert(x, copy=False)


def test_a_negative_view_keeps_its_sign() -> None:
    x = torch._neg_view(torch.arange(8.0))
    assert to_jax(x).tolist() == to_numpy(x).tolist() == [-float(i) for i in range(8)]


def test_what_is_conjugated_in_name_only_is_copied_by_rows() -> None:
    t = (torch.arange(6) * (1 + 2j)).view(2, 3).T
    n = to_numpy(t.conj())
    assert n.flags.c_contiguous
    np.testing.assert_array_equal(n, t.numpy().conj())


def test_what_torch_has_copied_numpy_does_not_copy_again() -> None:
    t = torch.ones(1 << 16, dtype=torch.complex64).conj()
    tracemalloc.start()  # it sees numpy's memory alone
    n = to_numpy(t, copy=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < n.nbytes
    n[:] = 0
    assert t.eq(1).all()
