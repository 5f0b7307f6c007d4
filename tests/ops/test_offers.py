"""A size that does not divide is refused with sizes and numbers of parts that the op can use."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import xlayout as xl
from xlayout.errors import SizeError

OFFERS: dict[str, tuple[Callable[[], object], str]] = {
    "parts of an axis are a multiple of the groups": (
        lambda: xl.interleave.layout((12,), block=5),
        "groups * block = 10; it would at 10 or 20, or in parts of 2, 4, 6, 12",
    ),
    "an odd axis has no two groups": (
        lambda: xl.deinterleave.layout((9,), block=2),
        "groups * block = 4; it would at 8 or 12",
    ),
    "heads have two halves": (
        lambda: xl.rope_halves.layout((12,), heads=5),
        "2 * heads = 10; it would at 10 or 20, or in parts of 2, 4, 6, 12",
    ),
    "one head of an odd size has none": (
        lambda: xl.rope_pairs.layout((3,), heads=1),
        "2 * heads = 2; it would at 2 or 4",
    ),
    "queries alone may have any number of heads": (
        lambda: xl.fuse_qkv.layout((8,), (8,), (8,), heads=3, kv_heads=3),
        "heads = 3; it would at 6 or 9, or in parts of 1, 2, 4, 8",
    ),
    "one head, its key and its value are three parts": (
        lambda: xl.split_qkv.layout((12,), heads=3, kv_heads=1),
        "heads + 2 * kv_heads = 5; it would at 10 or 15, or in parts of 3, 4, 6, 12",
    ),
    "per head, parts are a multiple of three": (
        lambda: xl.split_qkv.layout((4,), heads=1, kv_heads=1, order="per_head"),
        "heads + 2 * kv_heads = 3; it would at 3 or 6",
    ),
    "and may be any such": (
        lambda: xl.split_qkv.layout((12,), heads=3, kv_heads=3, order="per_head"),
        "heads + 2 * kv_heads = 9; it would at 9 or 18, or in parts of 3, 6, 12",
    ),
    "each block has a query, a key and a value": (
        lambda: xl.split_qkv.layout((16,), heads=2, kv_heads=2, order="codegen", blocks=2),
        "heads + 2 * kv_heads = 6; it would at 12 or 18, or in parts of 8, 16",
    ),
    "blocks share out the key-value heads too": (
        lambda: xl.split_qkv.layout((16,), heads=8, kv_heads=4, order="codegen", blocks=5),
        "blocks = 5; it would at 5 or 10, or in parts of 1, 2, 4",
    ),
    "and the heads": (
        lambda: xl.split_qkv.layout((24,), heads=6, kv_heads=9, order="codegen", blocks=6),
        "kv_heads = 9 does not divide into blocks = 6; it would at 6 or 12, or in parts of 1, 3",
    ),
    "groups share out every segment": (
        lambda: xl.regroup.layout((8,), sizes=(6, 2), groups=4),
        "segment 0 = 6 does not divide into groups = 4; it would at 4 or 8, or in parts of 1, 2",
    ),
}


@pytest.mark.parametrize("case", OFFERS)
def test_what_would_work_is_offered_and_nothing_else(case: str) -> None:
    call, text = OFFERS[case]
    with pytest.raises(SizeError, match=re.escape(text) + "$"):
        call()
