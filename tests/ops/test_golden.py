"""Recorded behaviour of other systems, reproduced where it is right and refused where it is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import xlayout as xl
from tests.frameworks import Framework
from tests.golden import FILES, Case, cases
from tests.ops.expressions import EXPRESSIONS, cut, head_aligned
from tests.ops.tiled import TILED
from xlayout.errors import AxisError, LayoutError, PatternError, SizeError

RULES = {**EXPRESSIONS, "tiled_linear": TILED}

TOLD_OTHERWISE = {
    "aliases_input": "a result is never an alias here (tests/ops/test_memory.py)",
    "contiguous": "a result is always row-major (tests/ops/test_memory.py)",
    "fused_type": "a format guessed from a class name; callers of xlayout name the format",
    "logical_shape": "the original's own reading of its options",
    "output_shape": "the original's own reading of its options",
    "bias_partition_dim": "the original's own reading of its options",
    "tiles": "the parameters of a torch module (tests/layers/test_torch_golden.py)",
}

NOT_A_RELAYOUT = {
    ("fused_qkv", r"require_tp_fused_qkvw/.*"): "tells fused weights by their names",
    ("subparam", r"subparam_err/8"): "a nested option of the original that nothing here spells",
}

Given = Callable[..., Any]  # shape -> an array of zeros

REFUSED: dict[tuple[str, str], tuple[Given, type[Exception], str]] = {
    ("transpose", "transpose_(new|old)/1d"):
        (lambda x: xl.matrix_transpose(x(4)), AxisError, r"x: 1 axes, shape \(4,\)"),
    ("te_glu", "te_err/inter_k0"):
        (lambda x: xl.interleave(x(8), block=0), SizeError, "block: 0; wanted at least 1"),
    ("te_glu", "te_err/inter_kneg"):
        (lambda x: xl.interleave(x(8), block=-1), SizeError, "block: -1; wanted at least 1"),
    ("te_glu", "te_err/inter_notdiv"):
        (lambda x: xl.interleave(x(8), block=3), SizeError, "= 8 does not divide into .* = 6"),
    ("te_glu", "te_err/inter_0d"):
        (lambda x: xl.interleave(x()), AxisError, "the array has no axes"),
    ("fused_qkv", "codegen/heads_not_div"):
        (lambda _: xl.partition(4 // 4, 2, rule="even"), SizeError, "1 does not share out evenly"),
    ("megatron_sd", "split_qkv/not_div3"):
        (lambda x: xl.rearrange(x(10, 1), "(q n r) h -> n (q r) h", q=3, n=2), PatternError,
         "10 does not divide by 6"),
    ("megatron_sd", "v2_transpose/2"):
        (lambda x: xl.split_qkv(x(12), heads=3, kv_heads=3, order="per_head", axis=-1), SizeError,
         r"qkv: axis 0 = 12 does not divide into heads \+ 2 \* kv_heads = 9"),
    ("subparam", "subparam_err/0"):
        (lambda _: xl.partition(12, 5, rule="even"), SizeError, "12 does not share out evenly"),
    ("subparam", "subparam_err/1"):
        (lambda x: xl.regroup(x(12, 4), sizes=(), groups=2), SizeError, r"sizes: \(\) add up to 0"),
    ("subparam", "subparam_err/6"):
        (lambda x: xl.rearrange(x(12, 4), "(a b) h -> b a h"), PatternError, "leave a, b open"),
    ("subparam", "subparam_err/7"):
        (lambda x: xl.rearrange(x(12, 4), "(a b) h -> b a h", a=3, h=8), PatternError,
         "'h' is 8, but the axis here is 4"),
    ("tiled_linear", "tiled_err/zero"):
        (lambda x: xl.to_tiles(x(7, 10), grid=(0, 1)), SizeError, "grid: 0; wanted at least 1"),
    ("tiled_linear", "tiled_err/bias_mismatch"):
        (lambda x: xl.tiled_linear(x(10), [[x(7, 10)]], x(6)), SizeError,
         r"bias: shape \(6,\); the tiles make \(7,\)"),
    ("tiled_linear", "tiled_err/wrong_split_count"):
        (lambda x: xl.tiled_linear([x(1)] * 3, [[x(7, 1)] * 4]), SizeError,
         "x: 3 parts; the tiles have 4 columns"),
}  # fmt: skip


def recorded(*, bug: bool) -> list[Any]:
    return [
        pytest.param(file, case, id=f"{file}-{case.id}")
        for file in FILES
        for case in cases(file)
        if case.bug is bug and case.expected is not None and expression(file, case)
    ]


def expression(file: str, case: Case) -> Any:
    found = [e for ids, e in RULES[file].items() if re.fullmatch(ids, case.id)]
    return found[0] if found else None


def test_every_recorded_case_is_claimed_once() -> None:
    claims = {
        **{(file, ids): "value" for file in RULES for ids in RULES[file]},
        **dict.fromkeys(REFUSED, "error"),
        **dict.fromkeys(BETTER, "bug"),
        **NOT_A_RELAYOUT,
    }
    matched = dict.fromkeys(claims, 0)
    for file in FILES:
        for case in cases(file):
            kinds = {}
            for (of, ids), kind in claims.items():
                if of == file and re.fullmatch(ids, case.id):
                    kinds[kind] = kinds.get(kind, 0) + 1
                    matched[of, ids] += 1
            # A bug, or an error in a format that otherwise has values, precedes the format's rule.
            value = kinds.pop("value", 0)
            assert sum(kinds.values()) + value * (not kinds) == 1, (file, case.id)
            assert ("bug" in kinds) == case.bug, (file, case.id)
            assert ("error" in kinds) <= (case.error is not None), (file, case.id)
    assert [claim for claim, count in matched.items() if not count] == []


def forms(backend: Framework, x: Any) -> list[Any]:
    """An input in row-major memory, and in memory with gaps if the framework supports that."""
    if isinstance(x, list):
        return [list(parts) for parts in zip(*(forms(backend, y) for y in x), strict=True)]
    if not isinstance(x, np.ndarray):
        return [x, x]
    if backend.name.startswith("jax"):
        return [backend.array(x)]
    return [backend.array(x), backend.array(np.repeat(x, 2, axis=x.ndim - 1))[..., ::2]]


@pytest.mark.parametrize(("file", "case"), recorded(bug=False))
def test_as_recorded(backend: Framework, file: str, case: Case) -> None:
    express = expression(file, case)
    given = {k: v for k, v in case.inputs.items() if v is not None}
    absent = dict.fromkeys(case.inputs.keys() - given.keys())
    told = plain_of(express(case, {**case.inputs}))  # sizes, edges: the same for every framework
    made = [forms(backend, x) for x in given.values()]
    for form in zip(*made, strict=True) if made else [()]:
        arrays = dict(zip(given, form, strict=True))
        results = backend.call(lambda x: keep(express(case, {**x, **absent})), arrays)
        same(backend, {**results, **told}, case.expected)


def keep(made: Any) -> dict[str, Any]:
    """Arrays by name, which a traced call may return."""
    return {k: v for k, v in named(made).items() if hasattr(v, "dtype")}


def plain_of(made: Any) -> dict[str, Any]:
    return {k: v for k, v in named(made).items() if not hasattr(v, "dtype")}


def named(made: Any) -> dict[str, Any]:
    if isinstance(made, dict):
        return made
    if isinstance(made, list) and made and hasattr(made[0], "dtype"):
        return {str(k): y for k, y in enumerate(made)}
    return {"out": made}


def same(backend: Framework, made: dict[str, Any], expected: Any) -> None:
    for name, want in named(expected).items():
        if name in TOLD_OTHERWISE:
            continue
        got = made[name]
        if isinstance(want, np.ndarray):
            assert backend.numpy(got).shape == want.shape
            assert backend.numpy(got).tolist() == want.tolist()
        else:
            assert got == want


@pytest.mark.parametrize("key", REFUSED, ids=lambda key: key[1])
def test_refuses_what_the_original_refuses(backend: Framework, key: tuple[str, str]) -> None:
    call, error, text = REFUSED[key]
    with pytest.raises(error, match=text):
        call(lambda *shape: backend.array(np.zeros(shape, np.int32)))


# -- where the original is wrong: each case is named after the mistake ----------------------------


def rows(backend: Framework, n: int, *rest: int) -> Any:
    return backend.array(np.arange(n, dtype=np.int32).repeat(int(np.prod(rest))).reshape(n, *rest))


def held(backend: Framework, parts: Any) -> list[list[int]]:
    """The rows held by each rank."""
    return [np.reshape(backend.numpy(p), (len(p), -1))[:, 0].tolist() for p in parts]


def overwrites_the_tensor_it_reads(backend: Framework) -> None:
    for shape in ((2, 3), (3, 3)):
        x = backend.array(np.arange(np.prod(shape), dtype=np.int32).reshape(shape))
        first = backend.numpy(xl.matrix_transpose(x)).tolist()
        assert backend.numpy(xl.matrix_transpose(x)).tolist() == first
        assert first == np.arange(np.prod(shape)).reshape(shape).T.tolist()


def transposes_matrices_only(backend: Framework) -> None:
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    made = backend.call(xl.matrix_transpose, backend.array(x))
    assert backend.numpy(made).tolist() == x.transpose(0, 2, 1).tolist()


def checks_one_direction_only(backend: Framework) -> None:
    x = backend.array(np.zeros(8, np.int32))
    for block in (0, -2):
        with pytest.raises(SizeError, match=f"block: {block}; wanted at least 1"):
            xl.deinterleave(x, block=block)
    with pytest.raises(SizeError, match="axis 0 = 8 does not divide into groups \\* block = 6"):
        xl.deinterleave(x, block=3)
    with pytest.raises(SizeError, match="axis 0 = 7 does not divide into groups \\* block = 2"):
        xl.deinterleave(x[:7])


def gives_all_heads_of_multi_query_attention_to_one_rank(backend: Framework) -> None:
    q, k, v = xl.split_qkv(rows(backend, 12, 1), heads=4, kv_heads=1)
    ranks = [xl.fuse_qkv(part, k, v, heads=2, kv_heads=1) for part in cut(q, [(4, 4)])]
    assert held(backend, ranks) == [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 8, 9, 10, 11]]


def cuts_grouped_queries_in_thirds(backend: Framework) -> None:
    packed = xl.regroup(rows(backend, 24, 1), sizes=(16, 4, 4), groups=2)
    ranks = xl.unstack(xl.rearrange(packed, "(n r) h -> n r h", n=2))
    assert held(backend, ranks) == [
        [*range(8), 16, 17, 20, 21],
        [*range(8, 16), 18, 19, 22, 23],
    ]


def cuts_queries_by_the_heads_of_the_keys(backend: Framework) -> None:
    q, kv = xl.rearrange(rows(backend, 12, 1), "(q + kv) h -> q h, kv h", q=8)
    parts = cut(q, [head_aligned(8, 2, 4)])
    ranks = [xl.rearrange((part, kv), "q h, kv h -> (q + kv) h") for part in parts]
    assert held(backend, ranks) == [[0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 8, 9, 10, 11]]


def cannot_cut_a_bias(backend: Framework) -> None:
    widths = [head_aligned(n, 2, 2) for n in (8, 4, 4)]
    assert held(backend, cut(rows(backend, 16), widths)) == [
        [0, 1, 2, 3, 8, 9, 12, 13],
        [4, 5, 6, 7, 10, 11, 14, 15],
    ]


def gives_a_head_to_two_ranks(_backend: Framework) -> None:
    with pytest.raises(
        SizeError, match=r"total: 3 does not share out evenly into 2 parts; .* 1, 3"
    ):
        xl.partition(6 // 2, 2, rule="even")


def takes_grouped_queries_for_thirds(backend: Framework) -> None:
    widths = [head_aligned(n, 2, 2) for n in (8, 2, 2)]
    ranks = held(backend, cut(rows(backend, 12, 4), widths))
    assert ranks == [[0, 1, 2, 3, 8, 10], [4, 5, 6, 7, 9, 11]]


BETTER: dict[tuple[str, str], Callable[[Framework], None]] = {
    ("transpose", "transpose_old/(2x3|3x3)"): overwrites_the_tensor_it_reads,
    ("transpose", "transpose_old/3d"): transposes_matrices_only,
    ("te_glu", "te_err/deint_.*"): checks_one_direction_only,
    ("fused_qkv", "falcon_mqa/.*"): gives_all_heads_of_multi_query_attention_to_one_rank,
    ("fused_qkv", "glm/gqa_kv4_misplit"): cuts_grouped_queries_in_thirds,
    ("fused_qkv", "bigcode/hf_kv1_tp2"): cuts_queries_by_the_heads_of_the_keys,
    ("fused_qkv", "phi3/bias_1d"): cannot_cut_a_bias,
    ("shared_qk", "yuan_v/6_2"): gives_a_head_to_two_ranks,
    ("subparam", "phi3_preset_gqa"): takes_grouped_queries_for_thirds,
}


@pytest.mark.parametrize("better", BETTER.values(), ids=lambda f: f.__name__)
def test_does_right_where_the_original(backend: Framework, better: Any) -> None:
    better(backend)


def test_a_bug_is_not_reproduced() -> None:
    """The format's rule does not give the wrong shards that were recorded."""
    wrong = [c for c in cases("shared_qk") if c.bug and c.expected]
    for case in wrong:
        with pytest.raises(LayoutError, match="does not share out evenly"):
            expression("shared_qk", case)(case, case.inputs)
