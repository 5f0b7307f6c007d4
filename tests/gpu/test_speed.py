"""What races on a GPU gives right answers on any machine, and a wrong one is reported by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

pytest.importorskip("jax")

from bench.gpu import jax as gpu_jax
from bench.gpu import speed, state, timing, tune
from bench.gpu.checks import troubles
from bench.gpu.timing import race
from xlayout_triton import tile as tiles
from xlayout_triton import words


def test_torch_is_raced() -> None:
    found = list(speed.rows(2, "uint8", "unzip by", compiled=False))
    assert [row["op"] for row in found] == ["unzip by 32"]
    assert found[0]["calls"].keys() == {"xlayout", "eager"}


def test_large_answers_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "FIRST", 1)
    monkeypatch.setattr(gpu_jax, "FIRST", 1)
    rows = [
        *speed.rows(2, "bfloat16", "odd", compiled=False),
        *gpu_jax.rows(2, "bfloat16", "odd"),
    ]
    assert len(rows) == 2
    assert [troubles(row) for row in rows] == [[], []]


def test_jax_is_raced_and_what_cannot_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_op: str, _case: Any) -> Any:
        def kernel(_x: Any) -> Any:
            raise TypeError("not here")

        return kernel

    (row,) = gpu_jax.rows(2, "uint8", "64 experts")
    assert row["calls"].keys() == {"xlayout", "jit", "by torch", "pallas"}
    assert row["calls"]["pallas"]["share"] > 0
    monkeypatch.setattr(gpu_jax, "pallas_of", fails)
    (row,) = gpu_jax.rows(2, "uint8", "64 experts")
    assert row["calls"]["pallas"] == "transpose, 64 experts, pallas: TypeError: not here"


def test_a_state_dict_is_relaid() -> None:
    row = state.row(4)
    assert row["op"] == "state dict of 999"
    assert row["calls"].keys() == {"apply_many", "each", "eager"}
    assert row["host beside device"] == ["apply_many", "each", "eager"]
    assert troubles(row) == []


@pytest.mark.parametrize("module", [speed, gpu_jax])
def test_a_wrong_answer_does_not_stop_the_race(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = module.fresh

    def wrong(*args: Any) -> Any:
        right = made(*args)
        return lambda *xs: right(*xs) ^ 1

    monkeypatch.setattr(module, "fresh", wrong)
    name, more = ("eager", {"compiled": False}) if module is speed else ("jit", {})
    found = list(module.rows(2, "uint8", "unzip", **more))
    assert [row["calls"][name] for row in found] == [
        f"{op}, {name}: wrong answer" for op in ("unzip", "unzip by 32")
    ]
    assert all(row["calls"]["xlayout"]["share"] > 0 for row in found)


@pytest.mark.parametrize("module", [speed, gpu_jax])
def test_a_row_that_fails_does_not_stop_the_others(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = module.make_case

    def gone(op: str, count: int) -> Any:
        if op == "unzip":
            raise MemoryError("too much")
        return made(op, count)

    monkeypatch.setattr(module, "make_case", gone)
    more = {"compiled": False} if module is speed else {}
    first, second = module.rows(2, "uint8", "unzip", **more)
    assert first["calls"] == {"xlayout": "unzip, before any call: MemoryError: too much"}
    assert second["calls"]["xlayout"]["share"] > 0


@pytest.mark.parametrize("module", [speed, gpu_jax])
def test_what_matters_most_is_measured_first(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def rows(mib: int, dtype: str, _only: str, **_more: bool) -> list[Any]:
        asked.append((dtype, mib))
        return []

    monkeypatch.setattr(module, "rows", rows)
    monkeypatch.setattr("sys.argv", ["it"])
    module.main()
    dtypes = ("bfloat16", "float32", "uint8")
    assert asked == [(dtype, mib) for dtype in dtypes for mib in (64, 1024)]


def test_the_device_does_not_wait_for_what_cannot_be_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[Any, set[tuple[int, bool]]] = {}

    def read(call: Any, times: int, wait: float) -> float:
        seen.setdefault(call, set()).add((times, wait > 0))
        return 1e-3

    monkeypatch.setattr(timing, "_on_gpu", read)
    monkeypatch.setattr(timing, "_settle", lambda **_: None)
    calls = {"one": lambda: 1, "each": lambda: 2}
    race(calls, list, cuda=True, many={"each"})
    assert seen == {list: {(3, True)}, calls["one"]: {(3, True)}, calls["each"]: {(1, False)}}


def test_a_race_is_in_copies() -> None:
    x = torch.zeros(1 << 20)
    found = race({"twice": lambda: x.clone() + 1}, lambda: x.clone(), cuda=False)
    assert found["twice"].share > 0
    assert found["twice"].asdict().keys() == {"share", "spread", "seconds", "host"}


@pytest.mark.parametrize(
    ("op", "dtype", "name"),
    [
        ("interleave rows", "bfloat16", "STRIP"),
        ("transpose", "bfloat16", "TILE"),
        ("transpose, odd", "float32", "SHIFTS"),
        ("transpose, 3 columns", "float32", "STRIP"),
        ("transpose, 3 columns", "bfloat16", "GROUPS"),
    ],
)
def test_an_op_is_tuned_by_the_setting_that_its_tiles_are_made_by(
    op: str, dtype: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[dict[str, Any]] = []
    setting = tune.setting

    @contextmanager
    def noted(changed: dict[str, Any]) -> Iterator[None]:
        tried.append(changed)
        with setting(changed):
            yield

    monkeypatch.setattr(tune, "setting", noted)
    homes = [(vars(home), dict(vars(home))) for home in (tiles, words)]
    found = tune.tuned(op, dtype, 2)
    assert 0 < len(found) <= len(tune.SETTINGS[name])  # some make the same tiles
    assert [some for some in tried if some in tune.SETTINGS[name]] == tune.SETTINGS[name]
    assert all(isinstance(share, float) for share in found.values())
    assert all(now == before for now, before in homes)
