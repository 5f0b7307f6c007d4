"""Anything but an array of numbers that both frameworks have is refused; so is a wrong option."""

from __future__ import annotations

import re
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import torch

from xlayout.bridge import to_jax, to_numpy, to_torch
from xlayout.errors import LayoutError

NO_NUMBERS = {
    "foreign byte order": (
        np.ones(3, ">f4"),
        r"dtype >f4: no other framework has it; bring it into native byte order: x.astype\(x.dtype"
        r".newbyteorder\('='\)\)$",
    ),
    "longdouble": (np.ones(3, np.longdouble), "no other framework has it"),
    "datetime": (np.zeros(3, "M8[s]"), "no other framework has it"),
    "string": (np.array(["a"]), "no other framework has it"),
    "structured": (
        np.zeros(3, [("a", ">f4")]),
        r"no other framework has it; pass its fields one by one, such as x\['a'\]$",
    ),
    "object": (
        np.array([None]),
        r"dtype \|O: no other framework has it; cast it to a number, such as float32$",
    ),
    "int4": (
        np.zeros(3, ml_dtypes.int4),
        "dtype int4: no other framework has it; cast it to whole bytes, or copy it into JAX, which "
        r"packs it: jax\.numpy\.asarray\(x\)$",
    ),
    "float6": (
        np.zeros(3, ml_dtypes.float6_e2m3fn),
        "no other framework has it; cast it to a number, such as float32$",
    ),
    "float0": (
        np.zeros(3, jax.dtypes.float0),
        "no other framework has it; it is JAX's gradient of integers, which holds nothing: leave",
    ),
    "masked": (np.ma.masked_array([1.0, 2.0], [0, 1]), "a masked array would lose its mask; pass"),
    "scalar": (np.float32(1), r"expected a numpy.ndarray, got float32; pass np.asarray\(x\)"),
}


@pytest.mark.parametrize("convert", [to_torch, to_jax])
@pytest.mark.parametrize(("x", "text"), NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_numpy_array_of_no_common_numbers_is_refused(convert: Any, x: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        convert(x)


@pytest.mark.parametrize("copy", [None, True, False])
def test_numpy_keeps_no_masked_array_either(copy: bool | None) -> None:
    masked = np.ma.masked_array([1.0, 2.0], [0, 1])
    with pytest.raises(TypeError, match=r"^x\[1\]: a masked array would lose its mask; pass"):
        to_numpy([np.ones(2), masked], copy=copy)


def test_jax_copies_the_narrow_numbers_of_numpy() -> None:
    for name in ("int2", "int4", "uint2", "uint4", "float4_e2m1fn"):
        narrow = np.ones(3, getattr(ml_dtypes, name))
        with pytest.raises(TypeError, match=r"jax\.numpy\.asarray\(x\)$"):
            to_jax(narrow)
        assert jax.numpy.asarray(narrow).dtype == narrow.dtype


@pytest.mark.parametrize("convert", [to_torch, to_jax, to_numpy])
def test_a_module_is_told_of_its_state_dict(convert: Any) -> None:
    text = r"^x: expected a torch.Tensor, got torch.nn.\S*.Linear; pass x.state_dict\(\)$"
    with pytest.raises(TypeError, match=text):
        convert(torch.nn.Linear(1, 1))


@pytest.mark.parametrize("convert", [to_torch, to_jax, to_numpy])
@pytest.mark.parametrize("x", [1, 2.5, "text", object(), torch.nn.Linear(1, 1), np.float32, {1, 2}])
def test_what_is_no_array_is_refused(convert: Any, x: Any) -> None:
    with pytest.raises(TypeError, match="x: expected a "):
        convert(x)


def test_options_are_spelled_right() -> None:
    t = torch.ones(2)
    with pytest.raises(LayoutError, match="x64: 'drop'; wanted one of 'error', 'narrow', 'keep'"):
        to_jax(t, x64="drop")
    with pytest.raises(LayoutError, match="layout: 'F'; wanted one of 'row_major', 'any'"):
        to_jax(t, layout="F")
    with pytest.raises(TypeError, match="copy: 'yes'; wanted True, False or None"):
        to_numpy(t, copy="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("copy", [0, 1, np.False_, np.True_])
@pytest.mark.parametrize("convert", [to_jax, to_numpy, to_torch])
def test_what_only_equals_an_answer_is_refused(convert: Any, copy: Any) -> None:
    with pytest.raises(TypeError, match=rf"^copy: {copy!r}; wanted True, False or None$"):
        convert(torch.ones(4, 4).t(), copy=copy)


@pytest.mark.parametrize("answer", [0, 1, "no", None, np.True_])
def test_a_yes_or_no_is_a_bool(answer: Any) -> None:
    for call, option in ((to_jax, "detach"), (to_jax, "donate"), (to_torch, "donate")):
        text = f"{option}: {answer!r}; wanted True or False"
        with pytest.raises(TypeError, match=f"^{re.escape(text)}$"):
            call(torch.ones(2), **{option: answer})


@pytest.mark.parametrize("ones", [torch.ones, jax.numpy.ones])
def test_more_axes_than_numpy_has_are_refused(ones: Any) -> None:
    assert to_numpy(ones((1,) * 64)).ndim == 64
    with pytest.raises(TypeError, match=r"^x: 65 dimensions; numpy stops at 64; reshape it first$"):
        to_numpy(ones((1,) * 65))
