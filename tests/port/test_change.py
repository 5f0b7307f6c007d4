"""What comes back and what does not, tried on every possible bit pattern."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest

from xlayout.errors import PortError
from xlayout.port.change import FLOATS, Change, exact_dtype
from xlayout.port.formats import numpy_dtype

HEADS = [1, 4, 32, 64, 80, 96, 128, 192, 256]


def every_finite(dtype: str) -> np.ndarray:
    every = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(dtype))
    return every[np.isfinite(every.astype(np.float32))]


@pytest.mark.parametrize("exponent", [-0.5, 0.5])
@pytest.mark.parametrize("dim", HEADS)
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_what_is_called_exact_is_exact_and_nothing_else(
    source: str, target: str, dim: int, exponent: float
) -> None:
    change = Change(source, target, float(dim**exponent))
    x = every_finite(source)
    y = change.apply(x, np.empty(x.shape, numpy_dtype(target)))
    assert change.always_exact is (change.losses(x, y) == 0)
    assert change.departures(x, y) == 0


@pytest.mark.parametrize("dim", [1, 64, 128, 2**12, 2**16, 2**20])
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("source", ["float8_e4m3fn", "float8_e5m2"])
def test_a_narrow_exponent_is_never_called_exact_in_vain(
    source: str, target: str, dim: int
) -> None:
    change = Change(source, target, float(dim**-0.5))
    x = np.arange(1 << 8, dtype=np.uint8).view(numpy_dtype(source))
    x = x[np.isfinite(x.astype(np.float32))]
    lost = change.losses(x, change.apply(x, np.empty(x.shape, numpy_dtype(target))))
    assert not (change.always_exact and lost)


@pytest.mark.parametrize("dim", HEADS)
def test_the_exact_dtype_brings_back_every_ordinary_weight(dim: int) -> None:
    for dtype, factor in product(("float16", "bfloat16"), (dim**-0.5, dim**0.5)):
        x = every_finite(dtype)
        if dtype == "bfloat16":  # only exponents near the ends lose bits, or overflow
            size = np.abs(x.astype(np.float32))
            x = x[((size > 1e-30) & (size < 1e37)) | (x == 0)]
        change = Change(dtype, exact_dtype(dtype, factor), factor)
        y = change.apply(x, np.empty(x.shape, numpy_dtype(change.target)))
        assert change.losses(x, y) == 0


def test_the_exact_dtype_is_no_wider_than_it_must_be() -> None:
    assert exact_dtype("bfloat16", 64**-0.5) == "bfloat16"
    assert exact_dtype("float16", 1.0) == "float16"
    assert exact_dtype("bfloat16", 128**-0.5) == "float32"
    assert exact_dtype("float16", 64**-0.5) == "float32"
    assert exact_dtype("bfloat16", 128**0.5) == "float32"
    assert exact_dtype("float16", 96**0.5) == "float32"
    assert exact_dtype("float32", 128**-0.5) == "float64"
    with pytest.raises(PortError, match="no dtype here holds that exactly; exact=False"):
        exact_dtype("float64", 128**-0.5)


@pytest.mark.parametrize("wide", ["float32", "float64"])
def test_the_product_is_that_of_float32_or_of_float64_if_either_side_is(wide: str) -> None:
    x, factor = every_finite("bfloat16"), 80**-0.5
    made = Change("bfloat16", wide, factor).apply(x, np.empty(x.shape, wide))
    assert np.array_equal(made, x.astype(wide) * np.dtype(wide).type(factor))


def test_one_element_in_seven_is_lost_at_head_dim_128() -> None:
    x = np.random.default_rng(0).normal(0, 0.02, 1 << 20).astype(numpy_dtype("bfloat16"))
    change = Change("bfloat16", "bfloat16", 128**-0.5)
    lost = change.losses(x, change.apply(x, np.empty_like(x)))
    assert lost / x.size == pytest.approx(0.146, abs=0.002)


def test_the_way_back_from_a_wider_dtype_is_exact_at_every_head_dim() -> None:
    x = np.random.default_rng(0).normal(0, 0.02, 1 << 10).astype(np.float32)
    for dim in range(2, 512):
        change = Change("float32", "float64", dim**-0.5)
        back = change.inverse()
        y = change.apply(x, np.empty(x.shape))
        assert np.array_equal(back.apply(y, np.empty_like(x)), x)
        assert back.losses(y, x) == 0
        assert back.inverse() == change


def test_a_count_survives_chunking() -> None:
    x = np.ones(200_000, np.float32)
    y = x.copy()
    y[[0, 65_535, 65_536, 199_999]] = 2
    assert Change("float32", "float32").departures(x, y) == 4
    y[[0, 65_535, 65_536, 199_999]] = np.inf
    assert Change("float32", "float32").overflows(x, y) == 4


@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_known_of_a_float_is_what_its_dtype_says(dtype: str) -> None:
    info = ml_dtypes.finfo(numpy_dtype(dtype))
    assert FLOATS[dtype] == (info.nmant + 1, info.minexp, info.maxexp - 1)


def test_integers_keep_their_dtype_or_are_refused() -> None:
    same = Change("int64", "int64")
    assert same.is_nothing
    assert same.always_exact
    with pytest.raises(PortError, match="int64 to float32, times 1; values change between"):
        Change("int64", "float32")


@pytest.mark.filterwarnings("ignore:invalid value")  # bfloat16 notes a NaN that signals
@pytest.mark.parametrize("factor", [1.0, 0.25])
@pytest.mark.parametrize("beside", [1 + 2.0**-40, 1 - 2.0**-40])
@pytest.mark.parametrize("steps", [0, 1, -1, 2, -2])  # of float32, from a tie
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_float64_is_rounded_once(target: str, steps: int, beside: float, factor: float) -> None:
    dtype = numpy_dtype(target)
    every = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    numbers = np.unique(every[np.isfinite(every)].astype(np.float64))
    low, high = numbers[:-1], numbers[1:]
    ties = ((low + high) / 2).astype(np.float32).view(np.int32)
    x = (ties + np.int32(steps)).view(np.float32).astype(np.float64) * beside
    nearest = np.where(x - low < high - x, low, high)
    made = Change("float64", target, factor).apply(x / factor, np.empty(x.shape, dtype))
    assert np.array_equal(made.astype(np.float64), nearest)


@pytest.mark.parametrize("target", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_float64_that_is_too_large_or_no_number_goes_as_float32_does(target: str) -> None:
    x = np.array([0.0, -0.0, 5e-324, -1e-60, 1e39, -1e300, np.inf, -np.inf, np.nan])
    made = Change("float64", target).apply(x, np.empty(x.shape, numpy_dtype(target)))
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float32).astype(numpy_dtype(target))
    assert np.array_equal(made.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.filterwarnings("ignore:invalid value")  # bfloat16 notes a NaN that signals
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float8_e4m3fn", "bfloat16"),
        ("float8_e5m2", "float16"),
        ("float8_e5m2", "bfloat16"),
        ("bfloat16", "float32"),
        ("float16", "float32"),
        ("bfloat16", "float64"),
    ],
)
def test_what_is_called_exact_brings_back_nan_as_nan(source: str, target: str) -> None:
    change = Change(source, target)
    size = numpy_dtype(source).itemsize
    every = np.arange(1 << 8 * size, dtype=f"u{size}").view(numpy_dtype(source))
    y = change.apply(every, np.empty(every.shape, numpy_dtype(target)))
    assert change.always_exact
    assert change.losses(every, y) == 0
    assert np.array_equal(np.isnan(every), np.isnan(y))
    y[np.isnan(y)] = 1
    y[~np.isnan(every)] = np.nan
    assert change.losses(every, y) == every.size


def test_where_nothing_changes_every_bit_is_kept() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    for dtype in ("float16", "bfloat16"):
        x = every.view(numpy_dtype(dtype))
        assert np.array_equal(Change(dtype, dtype).apply(x, x.copy()[::-1]).view("u2"), every)
    large = np.array([2**53 + 1, -(2**63)])
    assert Change("int64", "int64").apply(large, np.empty_like(large)).tolist() == large.tolist()


def test_nan_keeps_its_bits_where_nothing_changes() -> None:
    signalling, quiet = (np.array([bits], np.uint16).view("float16") for bits in (0x7D01, 0x7F01))
    assert Change("float16", "float16").departures(signalling, quiet) == 1


def test_a_nan_that_signals_is_counted_without_a_warning() -> None:
    x = np.array([0x7F81, 0xFF81, 0x7F80, 0x3F80], np.uint16).view(numpy_dtype("bfloat16"))
    change = Change("bfloat16", "float16", 2.0**20)
    y = change.apply(x, np.empty(x.shape, np.float16))
    assert change.losses(x, y) == 1
    assert change.overflows(x, y) == 1
