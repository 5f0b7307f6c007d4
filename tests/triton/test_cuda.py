"""Copies of tensors on a GPU are the kernel's if nothing observes them, and torch's otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import xlayout_torch
from tests.native.test_gates import SITUATIONS
from tests.triton.conftest import OPEN
from xlayout_torch import cuda, launches, trial
from xlayout_torch.batch import Batch, move_many


@pytest.fixture
def forgotten() -> Iterator[None]:
    """No device has been tried."""
    cuda.tried.cache_clear()
    yield
    cuda.tried.cache_clear()


# -- who copies ------------------------------------------------------------------------------------


def reaches_the_kernel(x: torch.Tensor, copies: list[Any]) -> bool:
    """Whether a copy of `x`, or one into it, goes by; one that fails went too far."""
    try:
        return cuda.fresh(x) is not None or cuda.move((), [x], [x]) or bool(copies)
    except (RuntimeError, NotImplementedError):  # what has no memory failed behind the gates
        return True


def test_the_gates_are_those_of_the_cpu_and_one_more() -> None:
    assert cuda.GATES.keys() == SITUATIONS.keys() | {"capture"}


@pytest.mark.parametrize("gate", sorted(SITUATIONS.keys() - {"device"}))
def test_a_gate_keeps_the_kernel_away(
    gate: str, copies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    SITUATIONS[gate](lambda x: seen.append(reaches_the_kernel(x, copies)))
    monkeypatch.delitem(cuda.GATES, gate)
    SITUATIONS[gate](lambda x: seen.append(reaches_the_kernel(x, copies)))
    assert seen == [False, True]


def test_in_a_transform_what_it_does_not_wrap_is_kept_away_too(copies: list[Any]) -> None:
    seen, plain = [], torch.zeros(64, 512).t()

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(reaches_the_kernel(plain, copies))
        return x

    torch.func.vmap(look)(torch.zeros(2))
    assert seen == [False]


@pytest.mark.parametrize("gate", OPEN)
def test_so_do_another_device_and_a_capture(
    gate: str, copies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.zeros(64, 512).t()
    monkeypatch.setattr(cuda, "_is_cuda", lambda _x: gate != "device")
    monkeypatch.setitem(cuda.GATES, gate, lambda _x: True)
    assert not reaches_the_kernel(x, copies)
    monkeypatch.setitem(cuda.GATES, gate, lambda _x: False)
    assert reaches_the_kernel(x, copies)


def test_small_and_row_major_tensors_are_torchs(
    copies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cuda.fresh(torch.zeros(64, 512)) is None
    for least in ("SMALL", "SEVERAL"):
        monkeypatch.setattr(cuda, least, 64 * 512 * 4 + 1)
    assert not reaches_the_kernel(torch.zeros(64, 512).t(), copies)


def test_the_backend_asks_for_tensors_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(cuda, "fresh", asked.append)
    monkeypatch.setattr(cuda, "move", lambda *args: not asked.append(args))
    with FakeTensorMode():
        x = torch.empty(512, 512, device="cuda")
    assert [cuda.GATES["device"](y) for y in (x, torch.zeros(1))] == [False, True]
    xlayout_torch.fresh(x)
    assert xlayout_torch.move((), [x], [x])
    assert asked == [x, ((), [x], [x])]


# -- whether the kernel can be used ----------------------------------------------------------------

CPU = torch.device("cpu")


@pytest.mark.usefixtures("forgotten")
def test_a_variable_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLAYOUT_TRITON", "off")
    assert cuda.why_not(CPU) == "switched off by XLAYOUT_TRITON=off"


@pytest.mark.usefixtures("forgotten", "anywhere")
def test_a_trial_that_fails_leaves_the_copies_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_args: Any) -> bool:
        raise RuntimeError("no compiler found\nsee the manual")

    monkeypatch.setattr(trial, "_copy", fails)
    assert cuda.why_not(CPU) == "no compiler found"
    assert cuda.fresh(torch.zeros(64, 512).t()) is None
    assert not cuda.move((), [torch.zeros(4)], [torch.zeros(4)])
    assert not move_many([((), [torch.zeros(4)], [torch.zeros(4)])])


@pytest.mark.usefixtures("forgotten")
def test_one_that_finds_too_little_memory_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = iter([torch.OutOfMemoryError("CUDA out of memory.\nGPU 0"), True, False])

    def passes(_device: torch.device) -> bool:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(trial, "passes", passes)
    assert cuda.why_not(CPU) == "CUDA out of memory."
    assert cuda.why_not(CPU) == cuda.why_not(CPU) == ""


@pytest.mark.usefixtures("forgotten")
def test_so_does_one_that_comes_out_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_copy", lambda *_args: None)
    assert cuda.why_not(CPU) == "a trial came out wrong"


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cuda.status() == "not in use: torch sees no CUDA device"


# -- what it makes ---------------------------------------------------------------------------------

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.float8_e4m3fn,
    torch.float8_e8m0fnu,
    torch.bfloat16,
    torch.float32,
    torch.int64,
    torch.complex64,
    torch.complex128,
]


def filled(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Random bytes; truth values for bool."""
    size = torch.Size(shape).numel()
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, dtype=dtype, device=device)
    raw = torch.randint(0, 256, (size * dtype.itemsize,), dtype=torch.uint8, device=device)
    return raw.view(dtype).view(shape)


def raw(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1).view(torch.uint8)


@pytest.mark.usefixtures("anywhere")
def test_the_trial_passes(device: str) -> None:
    assert cuda.why_not(torch.device(device)) == ""


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_fresh_copy_is_row_major_and_the_same(dtype: torch.dtype, device: str) -> None:
    x = filled((40, 3, 50), dtype, device)
    for view in (x.permute(2, 0, 1), x[1:, :, 7:], x[:, :1].expand(40, 4, 50), x[:, :, ::2]):
        made = cuda.fresh(view)
        assert made is not None
        assert made.is_contiguous()
        assert made.dtype is dtype
        assert torch.equal(raw(made), raw(view.contiguous()))


@pytest.mark.usefixtures("anywhere")
def test_several_tensors_are_joined_and_a_version_counted(device: str) -> None:
    x, y = (filled((30, 20), torch.bfloat16, device) for _ in range(2))
    out = torch.zeros(30, 40, dtype=torch.bfloat16, device=device)
    before = out._version
    moves = tuple((j, 0, (0, 20 * j, ((30, 20, 40), (20, 1, 1)))) for j in range(2))
    assert cuda.move(moves, [x, y], [out])
    assert torch.equal(raw(out), raw(torch.cat([x, y], 1)))
    assert out._version > before


def test_ends_are_kept_for_the_distances_they_are_about(device: str, started: list[Any]) -> None:
    """And not without end: whoever calls with others all the time keeps little."""
    moves = tuple((j, 0, (0, 21 * j, ((31, 21, 42), (21, 1, 1)))) for j in range(2))
    place = torch.device(device)

    def ends(*sources: int, to: int = 1 << 20) -> torch.Tensor:
        assert cuda.copy(moves[: len(sources)], 2, sources, [to], place)
        _made, _table, ends, *where = started[-1]
        assert where == [sources[0], to]  # the launch says where the first ones are
        return ends

    first = ends(256, 512)
    assert first.tolist() == [0, 0, 256, 0]
    assert ends(256, 512) is first
    assert ends(4096, 4352, to=1 << 21) is first
    others = [ends(256, 512 * k) for k in range(2, 40)]
    assert not any(torch.equal(other, first) for other in others)
    assert len({id(table) for _, table, *_ in started}) == 1  # wherever the tensors lie
    assert launches.ready.cache_parameters()["maxsize"] <= 4096  # of all plans
    assert torch.equal(ends(256, 512), first)
    assert ends(256) is ends(512)


def test_each_stream_has_its_own_uploads(
    started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another stream they might be read before they are there, or when they are let go of."""
    moves = tuple((j, 0, (0, 23 * j, ((31, 23, 46), (23, 1, 1)))) for j in range(2))
    for stream in (1, 2, 1):
        monkeypatch.setattr(launches, "stream", lambda _device, stream=stream: stream)
        assert cuda.copy(moves, 2, [256, 512], [1 << 20], CPU)
    first, other, again = [uploads for _made, *uploads, _source, _target in started]
    for one, two, three in zip(first, other, again, strict=True):
        assert torch.equal(one, two)
        assert one is not two
        assert one is three


@pytest.mark.usefixtures("anywhere")
def test_a_state_dict_takes_a_few_launches(device: str) -> None:
    shapes = [(48, 64), (64, 48), (96, 32), (5,), (1000,)] * 20
    kinds = [torch.bfloat16, torch.float32]
    xs = [filled(shape, kinds[k % 2], device) for k, shape in enumerate(shapes)]
    turned = [x.t() if x.ndim == 2 and k % 3 else x for k, x in enumerate(xs)]
    outs = [torch.zeros(x.shape, dtype=x.dtype, device=device) for x in turned]
    items = []
    for x, view, out in zip(xs, turned, outs, strict=True):
        n, steps = view.shape, (*view.stride(), 1)
        loops = ((n[0], steps[0], out.stride()[0]), (n[-1] if x.ndim == 2 else 1, steps[1], 1))
        items.append((((0, 0, (0, 0, loops)),), [x], [out]))
    batch = Batch.of(items)
    assert batch is not None
    assert batch.launches <= 12
    for _ in range(2):
        for out in outs:
            out.zero_()
        batch.run()
        for view, out in zip(turned, outs, strict=True):
            assert torch.equal(raw(out), raw(view.contiguous()))
    assert all(out._version >= 4 for out in outs)


@pytest.mark.usefixtures("copies")
def test_a_batch_takes_nothing_that_is_watched() -> None:
    x = torch.zeros(4)
    weight = torch.zeros(4, requires_grad=True)
    for watched in ([x], [weight]), ([weight], [x]):
        assert Batch.of([((), [x], [x]), ((), *watched)]) is None
    assert Batch.of([]) is None
    assert Batch.of([((), [x], [x])]) is not None


def test_nobody_waits_for_the_table_of_a_batch_that_runs_once(
    copies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    uploaded = launches.uploaded
    monkeypatch.setattr(launches, "uploaded", lambda *args: made.append(args) or uploaded(*args))
    monkeypatch.setattr(launches, "launch", lambda *_args: None)
    x = torch.zeros(4)
    assert Batch.of([((), [x], [x])]) is not None
    assert not made
    assert move_many([((), [x], [x])])
    assert made
    assert copies == []
