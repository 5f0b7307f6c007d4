"""What races on a GPU gives right answers anywhere, and a wrong one stops the race."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("jax")

from bench import gpu_jax, gpu_speed, gpu_state
from bench.gpu_timing import race


def test_torch_is_raced() -> None:
    found = list(gpu_speed.rows(2, "uint8", "unzip by", compiled=False))
    assert [row["op"] for row in found] == ["unzip by 32"]
    assert found[0]["calls"].keys() == {"xlayout", "eager"}


def test_large_answers_are_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_speed, "FIRST", 1)
    monkeypatch.setattr(gpu_jax, "FIRST", 1)
    assert len(list(gpu_speed.rows(2, "bfloat16", "odd", compiled=False))) == 1
    assert len(list(gpu_jax.rows(2, "bfloat16", "odd"))) == 1


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
    assert row["calls"]["pallas"] == "TypeError: not here"


def test_a_state_dict_is_relaid() -> None:
    row = gpu_state.figures(4)
    assert row["op"] == "state dict of 999"
    assert row["calls"].keys() >= {"apply_many", "each", "eager"}


@pytest.mark.parametrize("module", [gpu_speed, gpu_jax])
def test_a_wrong_answer_stops_the_race(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = module.fresh

    def wrong(*args: Any) -> Any:
        right = made(*args)
        return lambda *xs: right(*xs) ^ 1

    monkeypatch.setattr(module, "fresh", wrong)
    rows = (
        gpu_speed.rows(2, "uint8", "odd", compiled=False)
        if module is gpu_speed
        else gpu_jax.rows(2, "uint8", "odd")
    )
    with pytest.raises(AssertionError, match=r"eager: wrong answer|jit"):
        list(rows)


def test_a_race_is_in_copies() -> None:
    x = torch.zeros(1 << 20)
    found = race({"twice": lambda: x.clone() + 1}, lambda: x.clone(), rounds=3, cuda=False)
    assert found["twice"].share > 0
    assert found["twice"].asdict().keys() == {"share", "spread", "seconds", "host"}
