"""What crosses keeps its memory, dtype and bits; what cannot be shared is copied, and says so."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import FrameType
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

import xlayout as xl
from tests.bridge.memory import at_offset, bits, every_bit, pointer
from xlayout.bridge import to_jax, to_numpy, to_torch

INTEGERS = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"]
NARROW = [*INTEGERS, "float16", "float32", "complex64"]
WIDE = ["int64", "uint64", "float64", "complex128"]
FP8 = ["e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"]
ML = ["bfloat16", *(f"float8_{kind}" for kind in FP8)]


@pytest.mark.parametrize("dtype", [*NARROW, *ML])
def test_torch_and_jax_share_every_common_dtype_bit_for_bit(dtype: str) -> None:
    t = every_bit(dtype)
    a = to_jax(t, copy=False)
    assert (pointer(a), a.dtype.name, bits(a)) == (pointer(t), dtype, bits(t))
    back = to_torch(a, copy=False)
    assert (pointer(back), back.dtype, bits(back)) == (pointer(t), t.dtype, bits(t))


@pytest.mark.parametrize("dtype", [*NARROW, *WIDE, *ML])
def test_torch_and_numpy_share_every_common_dtype_bit_for_bit(dtype: str) -> None:
    t = every_bit(dtype)
    n = to_numpy(t, copy=False)
    assert (pointer(n), n.dtype.name, bits(n)) == (pointer(t), dtype, bits(t))
    assert n.flags.writeable
    back = to_torch(n, copy=False)
    assert (pointer(back), back.dtype) == (pointer(t), t.dtype)


@pytest.mark.parametrize(
    "dtype", [*NARROW, *ML, "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"]
)
def test_jax_and_numpy_share_every_common_dtype_bit_for_bit(dtype: str) -> None:
    source = at_offset(np.arange(64).astype(jnp.dtype(dtype)), 0)
    a = to_jax(source, copy=False)
    assert (pointer(a), a.dtype, bits(a)) == (pointer(source), source.dtype, bits(source))
    n = to_numpy(a, copy=False)
    assert (pointer(n), n.dtype) == (pointer(a), source.dtype)
    assert not n.flags.writeable


def test_a_nan_keeps_its_payload() -> None:
    payload = np.array([0x7FC0BEEF, 0xFFA00001], np.uint32)
    t = torch.from_numpy(payload.view(np.int32)).view(torch.float32)
    for x in (t, to_jax(t), to_torch(to_jax(t, copy=True)), to_numpy(t, copy=True)):
        assert bits(x) == payload.tobytes()


SOURCES = {
    "torch": lambda: torch.arange(32, dtype=torch.float32),
    "jax": lambda: jnp.arange(32, dtype=jnp.float32),
    "numpy": lambda: at_offset(np.arange(32, dtype=np.float32), 0),
}
TARGETS = {"torch": to_torch, "jax": to_jax, "numpy": to_numpy}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("target", TARGETS)
def test_copy_means_the_same_everywhere(source: str, target: str) -> None:
    x, convert = SOURCES[source](), TARGETS[target]
    assert pointer(convert(x)) == pointer(convert(x, copy=False)) == pointer(x)
    fresh = convert(x, copy=True)
    assert pointer(fresh) != pointer(x)
    assert bits(fresh) == bits(x)


@pytest.mark.parametrize("source", SOURCES)
def test_an_array_of_the_framework_itself_is_returned_as_it_is(source: str) -> None:
    x = SOURCES[source]()
    assert TARGETS[source](x) is x
    assert TARGETS[source](x, copy=False) is x


def test_a_clone_of_a_tensor_stays_in_its_graph() -> None:
    x = torch.ones(3, requires_grad=True)
    to_torch(x, copy=True).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1, 1, 1]


def test_a_numpy_copy_is_writable() -> None:
    n = to_numpy(jnp.arange(3), copy=True)
    n[0] = 7
    assert n.tolist() == [7, 1, 2]


def test_read_only_memory_is_copied_for_torch_and_shared_with_jax() -> None:
    n = at_offset(np.arange(16, dtype=np.float32), 0)
    n.flags.writeable = False
    t = to_torch(n)
    t.zero_()
    assert n.tolist() == list(range(16))
    with pytest.raises(BufferError, match="it is read-only, and torch has no read-only tensors"):
        to_torch(n, copy=False)
    assert pointer(to_jax(n, copy=False)) == pointer(n)


def test_memory_that_jax_was_lent_for_reading_is_copied_for_torch_as_long_as_it_is_there() -> None:
    n = at_offset(np.arange(16, dtype=np.float32), 0)
    n.flags.writeable = False
    j = to_jax(n, copy=False)
    for x in (j, xl.apply(xl.Layout.parse("(a b) -> a b", (16,), a=4), j, copy=None)):
        to_torch(x).zero_()
        with pytest.raises(BufferError, match="it is read-only, and torch has no read-only"):
            to_torch(x, copy=False)
    assert n.tolist() == list(range(16))
    n.flags.writeable = True
    del j, x
    gc.collect()
    assert pointer(to_torch(to_jax(n, copy=False), copy=False)) == pointer(n)


def test_memory_that_jax_was_lent_twice_is_not_torchs_when_one_array_is_gone() -> None:
    n = at_offset(np.arange(16, dtype=np.float32), 0)
    n.flags.writeable = False
    first, second = to_jax(n, copy=False), to_jax(n, copy=False)
    del first
    gc.collect()
    with pytest.raises(BufferError, match="it is read-only, and torch has no read-only"):
        to_torch(second, copy=False)


def test_memory_that_two_threads_lend_at_once_is_lent_twice() -> None:
    n = at_offset(np.arange(16, dtype=np.float32), 0)
    n.flags.writeable = False
    with ThreadPoolExecutor(1) as pool:
        others: list[Future[Any]] = []

        def meanwhile(frame: FrameType, _event: str, _given: Any) -> None:
            if frame.f_code.co_name == "__missing__" and not others:  # of a Counter
                others.append(pool.submit(to_jax, n, copy=False))
                wait(others, timeout=0.3)

        before = sys.gettrace()
        sys.settrace(meanwhile)
        try:
            first = to_jax(n, copy=False)
        finally:
            sys.settrace(before)
        second = others.pop().result()
    del first
    gc.collect()
    with pytest.raises(BufferError, match="it is read-only, and torch has no read-only"):
        to_torch(second, copy=False)


def test_memory_that_jax_may_write_into_is_torchs_too_whatever_its_dtype() -> None:
    n = at_offset(np.ones(16, ml_dtypes.bfloat16), 0)
    assert pointer(to_torch(to_jax(n, copy=False), copy=False)) == pointer(n)


PLAIN_ENOUGH = {
    "parameter": lambda: torch.nn.Parameter(torch.ones(4), requires_grad=False),
    "buffer": lambda: torch.nn.Buffer(torch.ones(4)),
    "shared memory": lambda: torch.ones(4).share_memory_(),
    "subclass": lambda: torch.ones(4).as_subclass(type("Plain", (torch.Tensor,), {})),
}


@pytest.mark.parametrize("make", PLAIN_ENOUGH.values(), ids=PLAIN_ENOUGH)
def test_a_tensor_with_plain_memory_is_shared_whatever_its_class(make: Any) -> None:
    t = make()
    assert pointer(to_jax(t, copy=False)) == pointer(t)


def test_an_inference_tensor_is_shared() -> None:
    with torch.inference_mode():
        t = torch.ones(4)
    assert pointer(to_jax(t, copy=False)) == pointer(t)


def test_bytes_of_a_bool_cross_unchanged() -> None:
    t = torch.tensor([0, 1, 2], dtype=torch.uint8).view(torch.bool)
    assert bits(to_jax(t, copy=False)) == b"\x00\x01\x02"


def test_ordinary_modes_do_not_get_in_the_way() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    t = torch.ones(4)
    with Counting(), torch.device("meta"), torch.no_grad():
        assert pointer(to_jax(t)) == pointer(t)


def test_a_constant_crosses_inside_jit() -> None:
    t = torch.arange(4.0)
    assert jax.jit(lambda x: x + to_jax(t))(1.0).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, np.float64])
@pytest.mark.parametrize("offset", [0, 4])
def test_a_constant_may_cross_by_any_way_inside_jit(dtype: Any, offset: int) -> None:
    n = at_offset(np.arange(16).astype(dtype), offset)
    n.flags.writeable = False
    for x in (n, n[:0], np.ones(0, dtype)):
        made = jax.jit(lambda y, x=x: y + to_jax(x, x64="narrow"))(1)
        back = jax.jit(lambda y, x=x: y + to_numpy(to_jax(x, x64="narrow")))(1)
        assert made.tolist() == back.tolist() == (x + 1).tolist()
    a = jnp.arange(4.0)
    assert jax.jit(lambda y: y + to_torch(a, copy=True)[1].item())(1.0) == 2


@pytest.mark.parametrize("copy", [None, True])
def test_what_crosses_is_committed_to_the_first_device_of_the_host(copy: bool | None) -> None:
    lent, wide = np.ones(2, np.float32), np.ones(2)
    lent.flags.writeable = wide.flags.writeable = False
    narrow, nothing = np.ones(2, ml_dtypes.bfloat16), np.ones(0, np.float32)
    for x in (torch.ones(2), torch.ones(0), np.ones(2, np.float32), lent, wide, narrow, nothing):
        a = to_jax(x, copy=copy, x64="keep")
        assert (a.committed, a.device) == (True, jax.devices("cpu")[0])


def test_a_round_trip_from_another_host_device_lands_on_the_first() -> None:
    a = jax.device_put(jnp.ones(4), jax.devices("cpu")[3])
    t = to_torch(a, copy=False)
    assert pointer(t) == pointer(a)
    assert to_jax(t, copy=False).device == jax.devices("cpu")[0]


def test_an_unfinished_computation_is_waited_for() -> None:
    a = jnp.ones((512, 512))
    for _ in range(20):
        a = a @ a / 512
    assert to_torch(a).mean().item() == 1.0


def test_ml_dtypes_are_numpys_own_names() -> None:
    assert to_numpy(torch.ones(1, dtype=torch.bfloat16)).dtype == ml_dtypes.bfloat16
