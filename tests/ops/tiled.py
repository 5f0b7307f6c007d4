"""What DeepSpeed's tiled layer is in xlayout, on plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import xlayout as xl
from tests.golden import Case

__all__ = ["TILED"]


def layer(case: Case, x: dict[str, Any]) -> dict[str, Any]:
    p = case.params
    tiles = xl.to_tiles(x["weight"], grid=(p["out_splits"], p["in_splits"]))
    return {
        "out": xl.tiled_linear(x["x"], tiles, x["bias"]),
        "in_parts": edges(p["in_features"], p["in_splits"]),
        "out_parts": edges(p["out_features"], p["out_splits"]),
    }


def edges(features: int, splits: int) -> list[int]:
    return list(accumulate(xl.partition(features, splits), initial=0))


def bias_apart(case: Case, x: dict[str, Any]) -> list[Any]:
    return [layer(case, {**x, "bias": None})["out"], x["bias"]]


TILED: dict[str, Callable[[Case, dict[str, Any]], Any]] = {
    r"tiled/\d+": layer,
    r"tiled_returnbias/\d+": bias_apart,
}
"""Pattern of case ids -> the same in public calls."""
