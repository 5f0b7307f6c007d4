"""64 bits stay 64 bits, unless the caller says otherwise and every value fits."""

from __future__ import annotations

import jax
import pytest
import torch

from tests.bridge.memory import bits, every_bit, pointer
from xlayout.bridge import to_jax, to_torch

WIDE = ["int64", "uint64", "float64", "complex128"]


@pytest.mark.parametrize("dtype", WIDE)
def test_64_bit_dtypes_are_shared_where_jax_has_them(dtype: str) -> None:
    with jax.enable_x64(True):
        t = every_bit(dtype)
        a = to_jax(t, copy=False)
        assert (pointer(a), a.dtype.name, bits(a)) == (pointer(t), dtype, bits(t))
        assert pointer(to_torch(a, copy=False)) == pointer(t)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64, torch.float64, torch.complex128])
@pytest.mark.parametrize("copy", [None, False, True])
def test_64_bits_are_never_narrowed_in_silence(dtype: torch.dtype, copy: bool | None) -> None:
    with pytest.raises(
        TypeError, match=r"would be narrowed to \w+(32|64), because jax_enable_x64 is off"
    ):
        to_jax(torch.ones(3, dtype=dtype), copy=copy)
    with pytest.raises(TypeError, match="would be narrowed"):
        to_jax(torch.ones(3, dtype=dtype).numpy(), copy=copy)


def test_narrowing_is_checked_and_finished() -> None:
    t = torch.tensor([1, -(2**31), 2**31 - 1])
    a = to_jax(t, x64="narrow")
    t.zero_()
    assert (a.dtype.name, a.tolist()) == ("int32", [1, -(2**31), 2**31 - 1])
    special = torch.tensor([1.5, float("inf"), float("nan")], dtype=torch.float64)
    assert str(to_jax(special, x64="narrow").tolist()) == "[1.5, inf, nan]"
    assert to_jax(torch.ones(2, dtype=torch.complex128), x64="narrow").dtype.name == "complex64"
    for value, name in ((2**40 + 5, "int32"), (-(2**31) - 1, "int32"), (1e300, "float32")):
        wide = torch.tensor([value], dtype=torch.float64 if name == "float32" else torch.int64)
        with pytest.raises(OverflowError, match=f"x64='narrow': a value does not fit {name}"):
            to_jax(wide, x64="narrow")
    for part in (complex(float("inf"), 1e300), complex(-1e300, float("inf"))):
        with pytest.raises(OverflowError, match="x64='narrow': a value does not fit complex64"):
            to_jax(torch.tensor([part], dtype=torch.complex128), x64="narrow")
    mixed = torch.tensor([complex(float("inf"), 2.5)], dtype=torch.complex128)
    assert to_jax(mixed, x64="narrow").tolist() == [complex(float("inf"), 2.5)]
    with pytest.raises(BufferError, match="cannot be shared: x64='narrow' casts it to int32"):
        to_jax(torch.ones(3, dtype=torch.int64), x64="narrow", copy=False)


@pytest.mark.parametrize("dtype", WIDE)
def test_no_guard_sees_a_transfer(dtype: str) -> None:
    t = torch.arange(3).to(getattr(torch, dtype))
    with jax.transfer_guard("disallow"):
        made = [to_jax(t, x64=x64) for x64 in ("narrow", "keep")]
    assert [a.tolist() for a in made] == [t.tolist()] * 2


def test_keep_transports_64_bits_in_the_same_memory() -> None:
    t = torch.tensor([2**40 + 5])
    a = to_jax(t, x64="keep", copy=False)
    assert (a.dtype.name, a.unsafe_buffer_pointer()) == ("int64", t.data_ptr())
    assert to_torch(a).item() == 2**40 + 5
