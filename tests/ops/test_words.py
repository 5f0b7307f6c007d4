"""Options that take one of a few words: another word is a LayoutError, a non-word a TypeError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xlayout as xl

OPTIONS: dict[str, Callable[[Any], Any]] = {
    "order": lambda w: xl.fuse_qkv.layout((4,), (4,), (4,), heads=4, kv_heads=4, order=w),
    "comm": lambda w: xl.interleave(np.arange(4), comm=w),
    "rule": lambda w: xl.partition(4, 2, rule=w),
    "x64": lambda w: xl.to_jax(np.ones(4, np.float32), x64=w),
    "layout": lambda w: xl.to_jax(np.ones(4, np.float32), layout=w),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("given", [1, True, ["grouped"], np.array(["local", "auto"])], ids=repr)
def test_what_is_no_word_is_a_type_error(name: str, given: Any) -> None:
    with pytest.raises(TypeError, match=rf"^{name}: .*; wanted one of '"):
        OPTIONS[name](given)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_word_that_means_nothing_is_a_layout_error(name: str) -> None:
    with pytest.raises(xl.LayoutError, match=rf"^{name}: 'fast'; wanted one of '"):
        OPTIONS[name]("fast")


def test_a_word_is_asked_for_before_anything_else_is_refused() -> None:
    for given in ({"out": np.arange(4)}, {"copy": False}, {"donate": True}):
        with pytest.raises(xl.LayoutError, match=r"^comm: 'fast'; wanted one of '"):
            xl.interleave(np.arange(4), comm="fast", **given)  # type: ignore[arg-type]
        if "donate" not in given:
            with pytest.raises(TypeError, match=r"^comm: array\(\[1, 2\]\); wanted one of '"):
                xl.apply(xl.interleave.layout((4,)), np.arange(4), comm=np.array([1, 2]), **given)


def test_a_split_has_a_rule_by_name() -> None:
    with pytest.raises(TypeError, match=r"^rule: 3; wanted one of 'ceil', "):
        xl.Split(rule=3)  # type: ignore[arg-type]
