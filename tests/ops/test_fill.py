"""A number for holes that a float cannot hold is refused, the same in every framework."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import xlayout as xl
from tests.frameworks import Framework
from xlayout.errors import ShapeError

GREATEST = {name: float(ml_dtypes.finfo(name).max) for name in ("float16", "bfloat16", "float32")}
GREATEST |= {
    name: float(ml_dtypes.finfo(getattr(ml_dtypes, name)).max)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}
INFINITE = {"float16", "bfloat16", "float32", "float8_e5m2"}


@pytest.mark.parametrize("name", GREATEST)
def test_the_greatest_number_is_the_last_that_fits(backend: Framework, name: str) -> None:
    x = backend.array(np.zeros(2, getattr(ml_dtypes, name, name)))
    most = GREATEST[name]
    for value in (most, -most):
        made = backend.call(lambda x, value=value: xl.pad(x, to=3, value=value), x)
        assert float(backend.numpy(made)[2]) == value
    for value in (2 * most, -2 * most, 10**400):
        with pytest.raises(ShapeError, match=rf"in an array of {name}; wanted a number from -"):
            backend.call(lambda x, value=value: xl.pad(x, to=3, value=value), x)


@pytest.mark.parametrize("name", GREATEST)
def test_infinity_fits_where_there_is_one(backend: Framework, name: str) -> None:
    x = backend.array(np.zeros(2, getattr(ml_dtypes, name, name)))
    if name in INFINITE:
        made = backend.call(lambda x: xl.pad(x, to=3, value=-np.inf), x)
        assert float(backend.numpy(made)[2]) == -np.inf
    else:
        with pytest.raises(ShapeError, match="fill: inf in an array"):
            backend.call(lambda x: xl.pad(x, to=3, value=float("inf")), x)


def test_both_parts_of_a_complex_number_must_fit(backend: Framework) -> None:
    x = backend.array(np.zeros(2, np.complex64))
    assert backend.numpy(xl.pad(x, to=3, value=1 - 3e38j)).tolist()[2] == np.complex64(1 - 3e38j)
    with pytest.raises(ShapeError, match=r"1e.39j.* in an array of complex64; wanted a number"):
        xl.pad(x, to=3, value=1e39j)
