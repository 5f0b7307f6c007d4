"""A kind of tile that does not compile is left to torch; what a kernel fails of is an error."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import xlayout as xl
from tests.triton.conftest import TRITON
from tests.triton.test_launch import CPU
from xlayout_torch import cuda, launches
from xlayout_torch.batch import move_many
from xlayout_triton import uncompiled
from xlayout_triton.tile import Tile

pytestmark = pytest.mark.skipif(not TRITON, reason="Triton is not installed")

SAYS = (
    "the Triton kernel is not used for some copies, which torch makes: {}; "
    "XLAYOUT_TRITON=off leaves all of them to torch"
)
TURNED = torch.arange(64 * 48, dtype=torch.float32).view(64, 48).t()


class Triton:
    """Stands for the kernel and for what Triton makes of it; each step may fail."""

    def __init__(self) -> None:
        self.asked: list[Tile] = []
        self.compiles: Callable[[Tile], None] = lambda _tile: None
        self.loads: Callable[[], None] = lambda: None
        self.starts: Callable[[], None] = lambda: None

    def warmup(self, *arguments: Any, grid: Any, **_options: Any) -> Any:
        assert len(grid) == 3
        self.asked.append(arguments[-1])
        self.compiles(arguments[-1])
        return self

    def __getitem__(self, _grid: Any) -> Any:
        self.loads()
        return lambda *_arguments, **_stream: self.starts()


def failing(text: str, kind: type[Exception] = RuntimeError) -> Callable[..., None]:
    def fails(*_args: Any) -> None:
        raise kind(text)

    return fails


@pytest.fixture
def triton(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Triton]:
    """A device that has passed the trial, on the host, where nothing is too small."""
    from xlayout_triton import copy

    stands = Triton()
    request.getfixturevalue("anywhere")
    for name in ("_kernels", "_refused"):
        monkeypatch.setattr(launches, name, {})
    monkeypatch.setattr(uncompiled, "_said", set())
    monkeypatch.setattr(copy, "copy_tiles", stands)
    monkeypatch.setattr(launches, "interprets", lambda: False)
    monkeypatch.setattr(cuda, "why_not", lambda _device: "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning that is not wanted
        yield stands


def turned_into(out: torch.Tensor) -> Any:
    return ((0, 0, (0, 0, ((48, 1, 64), (64, 48, 1)))),), [TURNED], [out]


STEPS = ["compiles", "loads"]


@pytest.mark.parametrize("step", STEPS)
def test_it_is_said_once_and_not_tried_again(step: str, triton: Triton) -> None:
    setattr(triton, step, failing("no space left\nsee the manual"))
    with pytest.warns(RuntimeWarning) as said:
        assert cuda.fresh(TURNED) is None
    assert [str(one.message) for one in said] == [SAYS.format("no space left")]
    out = torch.zeros(48, 64)
    assert cuda.fresh(TURNED) is None
    assert not cuda.move(*turned_into(out))
    assert not move_many([turned_into(out)])
    assert len(triton.asked) == 1


@pytest.mark.parametrize("step", STEPS)
def test_many_at_once_are_torchs_too(step: str, triton: Triton) -> None:
    setattr(triton, step, failing("", MemoryError))
    layouts = [xl.matrix_transpose.layout((48, 64)), xl.interleave.layout((64, 48))]
    xs = TURNED, TURNED.t().contiguous()
    with pytest.warns(RuntimeWarning, match=r"torch makes: MemoryError; XLAYOUT_TRITON=off"):
        made = xl.apply_many(layouts, xs)
    for y, layout, x in zip(made, layouts, xs, strict=True):
        assert torch.equal(y, torch.from_numpy(layout(x.numpy())))


def test_other_kinds_are_still_the_kernels(triton: Triton) -> None:
    def compiles(tile: Tile) -> None:
        if tile.unit == 4:
            raise RuntimeError("too many registers")

    triton.compiles = compiles
    with pytest.warns(RuntimeWarning, match="too many registers"):
        assert cuda.fresh(TURNED) is None
    assert cuda.fresh(TURNED.double()) is not None
    triton.compiles = failing("another reason")
    with pytest.warns(RuntimeWarning, match="another reason"):
        assert cuda.fresh(TURNED.half()) is None


def test_an_error_of_a_kernel_that_was_started_is_raised(triton: Triton) -> None:
    triton.starts = failing("an illegal memory access was encountered")
    for call in (lambda: cuda.fresh(TURNED), lambda: move_many([turned_into(torch.zeros(48, 64))])):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="an illegal memory access was encountered"):
                call()


def test_the_trial_tells_what_it_fails_for_and_warns_of_nothing(triton: Triton) -> None:
    triton.compiles = failing("no compiler found\nsee the manual")
    # `why_not` stands aside in these tests, and what it asks does not.
    assert TRIAL(CPU) == "no compiler found"


TRIAL = cuda.tried.__wrapped__
