"""Many arrays of `out=`: one that overlaps is found among dozens, wherever the others lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import xlayout as xl
import xlayout_numpy
from tests.frameworks import Framework, Numpy, Torch
from xlayout.errors import ShapeError
from xlayout.lower.writes import neighbours
from xlayout_native.overlap import may_meet

COUNT = 40
OTHER = "^out: cannot be written: it overlaps another of them$"
INPUT = "^out: cannot be written: it overlaps an input$"


def matrix(framework: Framework) -> Any:
    return framework.array(np.arange(2 * 6 * COUNT, dtype=np.int32).reshape(6, 2 * COUNT))


@pytest.mark.parametrize("framework", [Numpy(), Torch()], ids=lambda f: f.name)
class TestAmongDozens:
    def test_columns_of_one_matrix_are_written(self, framework: Framework) -> None:
        x, memory = matrix(framework)[:, ::2].T, matrix(framework)
        xl.unstack(x, out=[memory[:, 2 * k + 1] for k in range(COUNT)])
        wanted = framework.numpy(matrix(framework)).copy()
        wanted[:, 1::2] = wanted[:, ::2]
        assert framework.numpy(memory).tolist() == wanted.tolist()

    @pytest.mark.parametrize("at", [0, 1, 17, COUNT - 1])
    def test_two_that_share_an_element_are_refused(self, framework: Framework, at: int) -> None:
        x, memory = matrix(framework)[:, ::2].T, matrix(framework)
        outs = [memory[:, 2 * k] for k in range(COUNT)]
        outs[at] = memory.reshape(-1)[2 * COUNT - 1 : 2 * COUNT + 5]
        with pytest.raises(ShapeError, match=OTHER):
            xl.unstack(x, out=outs)
        assert framework.numpy(memory).tolist() == framework.numpy(matrix(framework)).tolist()

    @pytest.mark.parametrize("at", [0, 1, 17, COUNT - 1])
    def test_one_that_reaches_an_input_is_refused(self, framework: Framework, at: int) -> None:
        memory, other = matrix(framework), matrix(framework)
        outs = [other[:, k] for k in range(COUNT)]
        outs[at] = memory[:, 2 * at]
        layout = xl.Layout.identity(6 * COUNT).regrouped([(6,)] * COUNT, [(6,)] * COUNT)
        with pytest.raises(ShapeError, match=INPUT):
            layout(*[memory[:, 2 * k] for k in range(COUNT)], out=outs)
        assert framework.numpy(other).tolist() == framework.numpy(matrix(framework)).tolist()


def test_a_backend_that_does_not_tell_where_arrays_lie_is_asked_about_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(xlayout_numpy, "extent")
    numpy = TestAmongDozens()
    numpy.test_columns_of_one_matrix_are_written(Numpy())
    numpy.test_two_that_share_an_element_are_refused(Numpy(), 17)
    numpy.test_one_that_reaches_an_input_is_refused(Numpy(), 17)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_may_meet_is_near(seed: int) -> None:
    rng, memory = np.random.default_rng(seed), np.zeros(4096, np.uint8)

    def some() -> np.ndarray:
        shape, strides = rng.integers(0, 9, 2), rng.choice([-64, -3, 0, 1, 2, 64, 65], 2)
        return np.ndarray(shape, np.uint8, memory, int(rng.integers(1100, 3000)), strides)

    given = [some() for _ in range(COUNT)]
    if seed % 2:
        given = [memory.reshape(64, 64)[:, k : k + 2] for k in range(COUNT)]
    meeting = neighbours(xlayout_numpy, given)
    for y in (*given[:5], *[some() for _ in range(20)]):
        here = xlayout_numpy.extent(y)
        met = {k for k, x in enumerate(given) if may_meet(xlayout_numpy.extent(x), here)}
        assert met <= {*meeting(y)}
