"""Compiled for sm_90, which takes no GPU: wide accesses on both sides, and no spilled registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from typing import NamedTuple

import pytest

from tests.house.tree import ROOT
from tests.triton.conftest import TRITON

pytestmark = pytest.mark.skipif(not TRITON, reason="Triton is not installed")

CODE = """
import json
from tests.triton.ptx import (
    FAMILIES, IN_WORDS, TOKENS, compiled, first_link, links, tile_of, variants
)
found = {f"{name} {itemsize}": compiled(tile_of(name, itemsize)) for name, itemsize in FAMILIES}
chains = [links(name, several=some) for name in ("rows", "transpose") for some in (False, True)]
words = [compiled(tile) for tile in IN_WORDS]
asked = [compiled(tile, several=False)["loads before any shuffle"] for tile in IN_WORDS[:3]]
firsts = [first_link(tile) for tile in IN_WORDS]
print(json.dumps([found, variants(), chains, words, asked, firsts, compiled(TOKENS.tile)]))
"""

Kernel = dict[str, int]


class Found(NamedTuple):
    """What the code above prints."""

    families: dict[str, Kernel]
    variants: int
    chains: list[list[list[str]]]
    words: list[Kernel]
    asked: list[int]
    firsts: list[Kernel]
    tokens: Kernel


TABLE = 33
"""Numbers of a piece and its ends."""


@pytest.fixture(scope="module")
def found() -> Found:
    """What each kernel's code holds, how many launches compile, and chains; in its own process."""
    more = filter(None, [os.environ.get("PYTHONPATH")])
    path = os.pathsep.join((str(ROOT), str(ROOT / "backends"), *more))
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", CODE],  # Triton has no advice
        env={**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Found(*json.loads(done.stdout))


def test_both_sides_are_moved_16_bytes_at_a_time(found: Found) -> None:
    for name, kernel in found.families.items():
        each = kernel["vectors"]
        assert (kernel["wide loads"], kernel["wide stores"]) == (each, each), name
        assert each in (8, 32), name
        assert kernel["narrow stores"] == 0, name


def test_nothing_is_spilled_and_many_programs_fit(found: Found) -> None:
    for name, kernel in found.families.items():
        assert kernel["stack"] == 0, name
        programs = min((1 << 16) // (kernel["registers"] * kernel["threads"]), 32)
        assert programs * kernel["shared"] <= 227 << 10, name
        assert programs * kernel["threads"] * kernel["vectors"] * 16 >= 1 << 16, name  # on the way


def test_other_numbers_are_the_same_kernel(found: Found) -> None:
    assert found.variants == 1


def test_links_of_a_chain_wait_and_let_the_next_begin_where_they_should(found: Found) -> None:
    wait, let = "griddepcontrol.wait", "griddepcontrol.launch_dependents"
    assert len(found.chains) == 4
    for alone, first, further in found.chains:
        assert not {wait, let} & set(alone)
        moves = [k for k, step in enumerate(first) if step.startswith(("ld.global.v", "st"))]
        assert first.index(let) == first.index(wait) + 1 < moves[0]
        assert [step for step in first if step not in (wait, let)] == alone
        # The wait comes after the last label, and so is every program's.
        assert further == [let, *alone[:-1], wait, "ret;"]


def test_a_first_link_that_moves_words_waits_before_it_reads_any(found: Found) -> None:
    for first in found.firsts:
        assert (first["waits"], first["lets"], first["stores before"]) == (1, 1, 0)
        assert first["loads before"] <= TABLE


def test_odd_rows_are_moved_in_words_and_turned_once_through_shared_memory(found: Found) -> None:
    """On two paths: one of whole tiles, and one of those at the ends."""
    # Of 4 bytes; others cannot be told from the table's.
    assert found.words[0]["words read"] == 2 * 32
    spilled = 32 if tuple(map(int, version("triton").split(".")[:2])) < (3, 9) else 48
    for kernel, most in zip(found.words, (0, spilled, 0), strict=False):
        assert kernel["stack"] <= most  # of tiles at the ends: see `SHIFTS`
        assert (kernel["barriers"], kernel["words written"]) == (2, 2 * 16)
        assert kernel["shuffles"] == 2 * (32 + 2 * 16)  # a neighbour's word for each
        assert kernel["permutes"] >= 2 * (2 * 16 + 2 * 16)


def test_all_words_of_odd_rows_are_asked_for_before_any_is_waited_for(found: Found) -> None:
    """Of whole tiles, whose path is the first."""
    assert found.asked == [TABLE + 32, TABLE + 16, TABLE + 16]


def test_a_few_columns_and_rows_are_moved_in_words_and_without_shared_memory(found: Found) -> None:
    columns, rows = found.words[3:5], found.words[5:]
    for few, groups, kernels in ((3, 8, (columns[0], rows[0])), (7, 4, (columns[1], rows[1]))):
        words = 2 * few * groups  # on two paths
        for kernel, from_each in zip(kernels, (1, 1 + few), strict=True):
            assert (kernel["stack"], kernel["shared"], kernel["barriers"]) == (0, 0, 0)
            assert kernel["words written"] == words
            assert kernel["permutes"] >= 2 * 2 * words
            assert kernel["shuffles"] == from_each * 2 * words  # two halves of others' words


def test_four_axes_in_either_order_are_moved_16_bytes_at_a_time(found: Found) -> None:
    kernel = found.tokens
    assert kernel["wide loads"] == kernel["wide stores"] == kernel["vectors"] == 8
    assert (kernel["stack"], kernel["narrow stores"]) == (0, 0)
