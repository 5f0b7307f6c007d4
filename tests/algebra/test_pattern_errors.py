"""Pattern errors: the whole text of each, the caret in its column, as errors.txt shows them.

An entry of errors.txt is a call and what it raises; a blank line ends it.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from xlayout import Layout, rearrange
from xlayout.errors import PatternError, SizeError

ENTRIES = Path(__file__).with_name("errors.txt").read_text("utf-8").strip().split("\n\n")
KINDS = {"PatternError": PatternError, "SizeError": SizeError, "TypeError": TypeError}
CALLS = {"parse": Layout.parse, "rearrange": rearrange, "x": np.zeros((2, 3))}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.partition("\n")[0])
def test_the_error_reads(entry: str) -> None:
    call, _, raised = entry.partition("\n")
    kind, _, text = raised.partition(": ")
    with pytest.raises(KINDS[kind], match=f"^{re.escape(text)}$"):
        eval(call, CALLS)


@pytest.mark.parametrize("name", ["out", "copy", "comm", "out_sharding", "pattern"])
def test_a_name_that_is_an_option_is_refused(name: str) -> None:
    with pytest.raises(PatternError, match=rf"'{name}' is an option of rearrange"):
        rearrange(np.zeros((2, 3)), f"{name} b -> b {name}")


@pytest.mark.parametrize("name", ["shape", "x", "axis", "sizes", "self", "text", "α", "größe"])
def test_any_other_name_is_an_axis(name: str) -> None:
    made = rearrange(np.zeros((6, 3)), f"({name} b) c -> b c {name}", **{name: 2})
    assert made.shape == (3, 3, 2)
    layout = Layout.parse(f"({name} b) c -> b c {name}", (6, 3), **{name: 2})
    assert layout.out_shape == (3, 3, 2)
    assert rearrange.layout((6, 3), f"({name} b) c -> b c {name}", **{name: 2}) == layout


def test_a_name_is_the_one_that_python_makes_of_it() -> None:
    text = "\ufb01 b -> b \ufb01"  # the ligature, which Python reads as two letters
    assert Layout.parse(text, None, fi=2, b=3) == Layout.permute((2, 3), (1, 0))


def test_a_digit_that_is_a_letter_to_some_is_no_name() -> None:
    with pytest.raises(PatternError, match="pattern: '\u00b9' means nothing here; use names, 1"):
        Layout.parse("\u00b9 b -> b \u00b9", (1, 3))
