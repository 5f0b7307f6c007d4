"""JAX's trial of the Triton kernel is not left to XLA, and a line says how it came out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import xlayout as xl
from tests.native.oracle import Buffer, expect
from xlayout_jax import cuda, launches, primitive, trial
from xlayout_triton import uncompiled
from xlayout_triton.words import FEW_COLUMNS, FEW_ROWS, SHIFTED, TRIED, VECTORS


class There:
    """An array on a device, which is not to be read in passing."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("Disallowed device-to-host transfer")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing has been tried."""
    cuda.tried.cache_clear(), cuda.is_right.cache_clear()
    yield
    cuda.tried.cache_clear(), cuda.is_right.cache_clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The outcome of the trial on a device that is really a CPU.

    It is this process's, where JAX may count those of other processes first, and what is there has
    to be asked for by name, as under `jax.transfer_guard("disallow")`.
    """
    own = jax.devices()[0]

    def ask(made: Callable[[], Any], capability: int | None = 90) -> str:
        monkeypatch.setattr(cuda, "capability", lambda: capability)
        monkeypatch.setattr(jax, "devices", lambda *_: [])
        monkeypatch.setattr(jax, "local_devices", lambda backend: {"cuda": [own]}[backend])
        monkeypatch.setattr(trial.relayout_p, "bind", lambda *_, **__: [There(made())])
        monkeypatch.setattr(jax, "device_get", lambda there: there.array)
        found: str = WHY_NOT()
        monkeypatch.undo()
        return found

    return ask


WHY_NOT: Any = cuda.why_not
RIGHT = np.arange(2 * 3 * 66 * 40).reshape(2, 3, 66, 40)


def right() -> Any:
    return np.concatenate([x.swapaxes(1, 2) for x in RIGHT], 1)


def broken() -> Any:
    raise RuntimeError("no kernel image\nis available")


@pytest.mark.parametrize(
    ("made", "capability", "said"),
    [
        (right, 90, ""),
        (lambda: right() + 1, 90, "a trial came out wrong"),
        (broken, 90, "no kernel image"),
        (right, None, "JAX sees no CUDA device, or several kinds of them"),
    ],
    ids=["right", "wrong", "broken", "none"],
)
def test_a_trial_decides(
    made: Callable[[], Any], capability: int | None, said: str, asked: Callable[..., str]
) -> None:
    assert asked(made, capability) == said


FULL = "RESOURCE_EXHAUSTED: Out of memory"


@pytest.mark.parametrize(
    ("ask", "found"),
    [
        (cuda.why_not, [FULL, "", ""]),
        (lambda: cuda.is_wrong(SHIFTED, 1), [True, False, False]),
    ],
    ids=["vectors", "words"],
)
def test_one_that_finds_memory_full_is_made_again(
    ask: Callable[[], Any], found: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter([jax.errors.JaxRuntimeError(FULL), True, False])

    def passes(*_kind: int) -> bool:
        outcome = next(outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(trial, "passes", passes)
    monkeypatch.setattr(cuda, "capability", lambda: 90)
    assert [ask() for _ in range(3)] == found


def test_it_can_be_switched_off(asked: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLAYOUT_TRITON", "off")
    assert asked(right) == "switched off by XLAYOUT_TRITON=off"


def traced(one: trial.Trial) -> Any:
    xs = [jax.ShapeDtypeStruct(one.shape, one.dtype) for _ in one.copies]
    bound = jax.jit(lambda *ys: primitive.relayout_p.bind(*ys, linear=one, alone=True))
    return bound.trace(*xs)


CALL = f"@{launches.TARGET}("


def test_no_gate_keeps_the_kernel_from_its_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would say that the kernel is not to be used because it is not used."""
    for gate in cuda.GATES:
        monkeypatch.setitem(cuda.GATES, gate, lambda *_: True)
    monkeypatch.setattr(launches, "described", lambda *_: "a kernel")
    for one in trial.TRIALS.values():
        assert traced(one).lower(lowering_platforms=("cuda",)).as_text().count(CALL) == 1


SAYS = (
    "the Triton kernel is not used for some copies, which XLA makes: no space left; "
    "XLAYOUT_TRITON=off leaves all of them to XLA"
)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that has compiled the trial, and then compiles nothing."""
    triton = pytest.importorskip("triton")

    def compiles(*_: Any) -> Any:
        raise RuntimeError("no space left\nsee the manual")

    monkeypatch.setattr(triton, "compile", compiles)
    monkeypatch.setattr(cuda, "why_not", lambda: "")
    monkeypatch.setattr(uncompiled, "_said", set())
    launches.described.cache_clear()
    yield
    launches.described.cache_clear()


@pytest.mark.usefixtures("compiler")
def test_what_does_not_compile_later_is_xlas_and_that_is_said_once() -> None:
    def lowered(rows: int) -> str:
        x = jax.ShapeDtypeStruct((rows, 8192), "bfloat16")
        whole = jax.jit(primitive.alone(lambda y: xl.matrix_transpose(y)))
        text: str = whole.trace(x).lower(lowering_platforms=("cuda",)).as_text()
        return text

    with pytest.warns(RuntimeWarning) as said:
        texts = [lowered(4096), lowered(2048)]
    assert [str(one.message) for one in said] == [SAYS]
    assert all("transpose" in text and launches.TARGET not in text for text in texts)


@pytest.mark.usefixtures("compiler")
def test_a_trial_that_does_not_compile_says_why_and_warns_of_nothing() -> None:
    for one in trial.TRIALS.values():
        with pytest.raises(uncompiled.CompileError, match=r"^no space left$"):
            traced(one).lower(lowering_platforms=("cuda",))


@pytest.mark.parametrize("kind", trial.TRIALS)
def test_what_it_moves_is_what_it_should_find(kind: tuple[int, int]) -> None:
    one = trial.TRIALS[kind]
    dtype, count = np.dtype(one.dtype), len(one.copies)
    size = dtype.itemsize * int(np.prod(one.shape))
    sources = [Buffer(size, fill=np.random.default_rng(k)) for k in range(count)]
    made = Buffer(size * count)
    expect([*one.copies], dtype.itemsize, sources, [made])
    (wanted,) = one.plain([b.bytes.view(dtype).reshape(one.shape) for b in sources])
    assert np.array_equal(made.bytes.view(dtype).reshape(one.out_shapes[0]), wanted)


@pytest.mark.parametrize("kind", trial.TRIALS)
def test_it_is_moved_in_the_way_that_it_tries(kind: tuple[int, int]) -> None:
    one = trial.TRIALS[kind]
    made = launches.numbered(one.copies, np.dtype(one.dtype).itemsize, len(one.copies), 1)
    assert made is not None
    assert {(launch.tile.way, launch.tile.unit) for launch in made.launches} == {kind}


# -- words -----------------------------------------------------------------------------------------

PROGRAMS = {
    (VECTORS, 1): ((8192, 4096), "uint8"),
    (SHIFTED, 1): ((8191, 4097), "uint8"),
    (SHIFTED, 2): ((8191, 4097), "bfloat16"),
    (SHIFTED, 4): ((8191, 4097), "float32"),
    (FEW_COLUMNS, 1): ((1 << 24, 3), "uint8"),
    (FEW_COLUMNS, 2): ((1 << 24, 3), "bfloat16"),
    (FEW_ROWS, 1): ((3, 1 << 24), "uint8"),
    (FEW_ROWS, 2): ((3, 1 << 24), "bfloat16"),
}
"""(way, bytes of an element) -> what is transposed so."""


def fail() -> bool:
    raise RuntimeError("no image")


def uncompiled_() -> bool:
    raise uncompiled.CompileError("no space left")


@pytest.mark.parametrize("kind", TRIED)
@pytest.mark.parametrize(
    ("outcome", "kept"),
    [(lambda: True, True), (lambda: False, False), (fail, False), (uncompiled_, True)],
    ids=["right", "wrong", "broken", "uncompiled"],
)
def test_a_way_that_came_out_wrong_is_xlas_and_others_are_the_kernels(
    kind: tuple[int, int],
    outcome: Callable[[], bool],
    kept: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[tuple[int, int]] = []

    def passes(*one: int) -> bool:
        tried.append((one[0], one[1]))
        return outcome() if one == kind else True

    monkeypatch.setattr(trial, "passes", passes)
    monkeypatch.setattr(cuda, "why_not", lambda: "")
    monkeypatch.setattr(launches, "described", lambda *_: "a kernel")
    found = {}
    for one, (shape, dtype) in 2 * [*PROGRAMS.items()]:
        x = jax.ShapeDtypeStruct(shape, dtype)
        whole = jax.jit(primitive.alone(lambda y: xl.matrix_transpose(y)))
        found[one] = CALL in whole.trace(x).lower(lowering_platforms=("cuda",)).as_text()
    assert found == {one: one != kind or kept for one in PROGRAMS}
    assert sorted(tried) == sorted(TRIED)  # each once, and vectors by `why_not`


def test_a_line_says_whether_the_kernel_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "why_not", lambda: "a trial came out wrong")
    assert cuda.status() == "not in use: a trial came out wrong"


def test_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    triton = pytest.importorskip("triton")

    def devices(platform: str) -> list[Any]:
        assert platform == "cuda"
        return [SimpleNamespace(device_kind=kind) for kind in ("H100", "another")]

    monkeypatch.setattr(cuda, "why_not", lambda: "")
    monkeypatch.setattr(jax, "devices", devices)
    assert cuda.status() == f"Triton {triton.__version__}, H100"
