"""Inputs and outputs recorded by running the systems whose layouts xlayout must reproduce.

One JSON file per system: `id`, `fn`, `params`, `inputs`, then `expected` or `error`; `status:
"bug"` where the original is wrong, so that nobody imitates it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FILES", "Case", "cases"]

HERE = Path(__file__).parent
FILES = sorted(path.stem for path in HERE.glob("*.json"))


@dataclass(frozen=True, slots=True)
class Case:
    """One recorded call; tensors are numpy arrays."""

    id: str
    params: dict[str, Any]
    inputs: dict[str, Any]
    expected: Any
    error: dict[str, str] | None
    bug: bool

    def __str__(self) -> str:
        return self.id


def cases(file: str) -> list[Case]:
    """The cases of one file, in its order."""
    recorded = json.loads((HERE / f"{file}.json").read_text("utf-8"))["cases"]
    return [
        Case(
            case["id"],
            case["params"],
            _arrays(case["inputs"]),
            _arrays(case.get("expected")),
            case.get("error"),
            case.get("status") == "bug",
        )
        for case in recorded
    ]


def _arrays(value: Any) -> Any:
    if isinstance(value, list):
        return [_arrays(v) for v in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"shape", "dtype", "data"}:
        # JAX has no 64-bit numbers unless asked, and every value here fits in 32.
        dtype = value["dtype"].replace("64", "32")
        return np.array(value["data"], dtype).reshape(value["shape"])
    return {k: _arrays(v) for k, v in value.items()}
