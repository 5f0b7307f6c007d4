"""The random tests with tiles of kilobytes, whose edges would otherwise be megabytes apart."""

from __future__ import annotations

import itertools
import math
import shutil
from types import ModuleType

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import xlayout_native
from tests.native.oracle import Buffer, Loops, Move, agree, same
from tests.native.test_alternate import test_any_few
from tests.native.test_compound import test_any as test_any_of_several_loops
from tests.native.test_copy import permuted, strides_of
from tests.native.test_pieces import test_any as test_any_patches
from tests.native.tiles import build

__all__ = ["test_any_few", "test_any_of_several_loops", "test_any_patches"]  # from elsewhere

REPLACED = ("get_intel", "get_isa", "prepare", "run", "set_intel", "set_isa", "set_thresholds")

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no cc here"),
    pytest.mark.usefixtures("small", "lines", "maker"),
]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Another build of the kernel, in memory of its own beside the usual one."""
    return build(tmp_path_factory.mktemp("small"))


@pytest.fixture
def small(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel with small tiles in place of the usual one."""
    for name in REPLACED:
        monkeypatch.setattr(xlayout_native, name, getattr(kernel, name))


@st.composite
def transposes(draw: st.DrawFn) -> tuple[Loops, int]:
    """Rows and columns of one to four loops, one of them long; and bytes of an element."""
    width = draw(st.sampled_from((1, 2, 4, 8, 16)))
    few = st.lists(st.integers(2, 12), max_size=2)
    pairs = st.lists(st.integers(2, 4), max_size=1)
    rows, columns = (
        [*draw(few), draw(st.integers(2, 2000 // width)), *draw(pairs)] for _ in range(2)
    )
    while math.prod(rows) * math.prod(columns) * width > 1 << 18:
        longer = max(rows, columns, key=math.prod)
        longer[longer.index(max(longer))] //= 2
    shape = (*rows, *reversed(columns))
    backwards = tuple(reversed(range(len(shape))))
    axes = draw(st.one_of(st.just(backwards), st.permutations(backwards)))
    return permuted(shape, tuple(axes)), width


@settings(max_examples=600, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(transposes(), st.sampled_from((0, 0, 16, 1)), st.booleans())
def test_any_transpose(copy: tuple[Loops, int], shift: int, cached: bool) -> None:
    xlayout_native.set_thresholds(1 << 30 if cached else 0, 0)
    agree(*copy, (shift, 0))


def dense(shape: list[int], order: list[int]) -> list[int]:
    """Strides of axes that are nested in some order, the first innermost, without gaps."""
    return strides_of(shape, order, [(1, 0)] * len(shape), [False] * len(shape))


Cut = tuple[list[Move], int, list[int], list[int]]


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """An array and its parts along an axis, each side with its axes in some order.

    Returns the moves from the array to its parts, or back; bytes of an element; and how many
    elements every input and every output has.
    """
    width = draw(st.sampled_from((1, 2, 4, 8, 16)))
    size = st.one_of(st.integers(2, 9), st.sampled_from((16, 31, 64, 130)), st.integers(2, 600))
    shape = draw(st.lists(size, min_size=1, max_size=4))
    while math.prod(shape) * width > 1 << 17:
        shape[shape.index(max(shape))] //= 2
    axis = draw(st.integers(0, len(shape) - 1))
    inner = st.integers(1, max(shape[axis] - 1, 1))
    ends = sorted({0, shape[axis], *draw(st.lists(inner, max_size=8))})
    orders = [draw(st.permutations(range(len(shape)))) for _ in range(2)]
    whole, total = dense(shape, orders[0]), math.prod(shape)
    to_parts = draw(st.booleans())
    moves: list[Move] = []
    counts = []
    for k, (start, end) in enumerate(itertools.pairwise(ends)):
        shape_of_part = [end - start if q == axis else n for q, n in enumerate(shape)]
        part = dense(shape_of_part, orders[1])
        counts.append(math.prod(shape_of_part))
        first = start * whole[axis]
        loops = zip(shape_of_part, whole, part, strict=True)
        if to_parts:
            moves.append((0, k, (first, 0, tuple(loops))))
        else:
            moves.append((k, 0, (0, first, tuple((n, y, x) for n, x, y in loops))))
    return (moves, width, [total], counts) if to_parts else (moves, width, counts, [total])


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts(), st.sampled_from((0, 0, 16, 1, 63)), st.booleans())
def test_any_cut(cut: Cut, shift: int, cached: bool) -> None:
    moves, width, ins, outs = cut
    xlayout_native.set_thresholds(1 << 30 if cached else 0, 0)
    sources = [Buffer(n * width, fill=np.random.default_rng(n)) for n in ins]
    same(moves, width, sources, [Buffer(n * width, shift=shift) for n in outs])
