"""A gather casts first: the same bits in fewer bytes, no wide copy, and gradients summed wide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xlayout as xl
from tests.shard import on_ranks_gather
from tests.shard.pool import Pool
from xlayout.shard import Mesh, Sharding, Split

pytestmark = pytest.mark.distributed

TP, GRID = Mesh(4, "tp"), Mesh((2, 2), ("dp", "tp"))
ROWS, COLUMNS = Sharding(TP, ("tp",)), Sharding(TP, (None, "tp"))
SIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


@pytest.mark.parametrize(
    ("kind", "weight"), [("complex64", 3 - 4j), ("complex128", 1 / 3 - 1j / 7), ("float64", 1 / 3)]
)
def test_complex_gradients_keep_both_parts_and_float64_its_digits(
    ranks: Pool, kind: str, weight: complex
) -> None:
    assert ranks(on_ranks_gather.gradient_of, ROWS, kind, weight) == [True] * 4


def values(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of every magnitude, NaN, infinities, a negative zero and a subnormal."""
    x = np.geomspace(1e-9, 1e9, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    x[::2] *= -1
    x.reshape(-1)[[0, 3, 5, 7, 11]] = np.nan, np.inf, -np.inf, -0.0, 1e-42
    return x


# name: source sharding, what is gathered, shape
CASES = {
    "rows": (ROWS, None, (16, 8)),
    "columns": (COLUMNS, "tp", (16, 8)),
    "uneven rows, a rank without": (ROWS, None, (9, 8)),
    "uneven columns": (COLUMNS, "tp", (8, 10)),
    "fused rows": (Sharding(TP, ("tp",), splits={0: Split(segments=2)}), None, (16, 8)),
    "FSDP over tensor parallel": (Sharding(GRID, (("tp", "dp"),)), "dp", (16, 8)),
    "the same, uneven": (Sharding(GRID, (("tp", "dp"),)), "dp", (10, 8)),
    "tensor parallel over FSDP": (Sharding(GRID, (("dp", "tp"),)), "dp", (16, 8)),
    "all of two axes": (Sharding(GRID, ("dp", "tp")), None, (16, 8)),
    "all of two axes, one of one rank": (
        Sharding(Mesh((4, 1), ("dp", "tp")), (("dp", "tp"),)), None, (16, 8)),
    "copies": (Sharding(GRID, ("tp",)), None, (16, 8)),
    "nothing to gather": (Sharding(GRID, ("tp",)), "dp", (16, 8)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_bits_are_those_of_a_wide_gather_and_bytes_those_of_the_narrow_plan(
    ranks: Pool, case: str, dtype: str
) -> None:
    src, axis, shape = CASES[case]
    dst = src.without(*([axis] if axis else src.mesh.names))
    plan = xl.plan_reshard(xl.Layout.identity(shape), src, dst, itemsize=SIZES[dtype])
    assert plan.recv_bytes == plan.lower_bound
    for rank, (same, bytes_) in enumerate(
        ranks(on_ranks_gather.narrow, values(shape), src, axis, dtype)
    ):
        assert same
        assert bytes_ == {"recv": plan.recv_bytes[rank]} or plan.recv_bytes[rank] == 0


@pytest.mark.parametrize("axes", [("dp", "tp"), ["tp", "dp"], ("tp", "dp", "tp")], ids=str)
@pytest.mark.parametrize("spec", [("dp", "tp"), (("tp", "dp"),)], ids=str)
def test_mesh_axes_may_be_named_in_any_order_and_twice(ranks: Pool, spec: Any, axes: Any) -> None:
    x = np.arange(128.0).reshape(16, 8)
    assert all(ranks(on_ranks_gather.named, x, Sharding(GRID, spec), axes))


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_gathered_from_single_columns_is_row_major_as_its_dtensor_says(
    ranks: Pool, compiled: bool
) -> None:
    x = np.arange(24.0).reshape(6, 4)
    assert ranks(on_ranks_gather.columns, x, COLUMNS, compiled) == [(True, (4, 1))] * 4


@pytest.mark.parametrize(("dtype", "part"), [("bfloat16", 2), ("float8_e4m3fn", 4)])
def test_the_wire_carries_half_or_a_quarter(ranks: Pool, dtype: str, part: int) -> None:
    x = values((16, 8))
    wide = ranks(on_ranks_gather.narrow, x, ROWS, None, "float32")
    for (_, all_), (_, some) in zip(
        wide, ranks(on_ranks_gather.narrow, x, ROWS, None, dtype), strict=True
    ):
        assert some["recv"] * part == all_["recv"] == x.nbytes * 3 // 4


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_summed_in_float32_and_move_no_more_than_they_must(
    ranks: Pool, case: str
) -> None:
    """What each rank adds is so small that bfloat16 would lose it next to the first rank's 1."""
    src, axis, shape = CASES[case]
    gone = [axis] if axis else list(src.mesh.names)
    dst = src.without(*gone)
    plan = xl.plan_reshard(xl.Layout.identity(shape), src, dst, itemsize=4)
    held = {name for entry in src.spec for name in entry}
    copies = int(np.prod([n for n, name in zip(src.mesh.shape, src.mesh.names, strict=True)
                          if name not in held]))  # fmt: skip
    whole = np.arange(np.prod(shape)).reshape(shape)
    answers = ranks(on_ranks_gather.gradient, values(shape), src, axis, "float32")
    for rank, (dtype, grad, received) in enumerate(answers):
        mine = set(src.layout(rank, shape)(whole).ravel().tolist())
        used = [r for r in range(4) if mine <= set(dst.layout(r, shape)(whole).ravel().tolist())]
        assert dtype == "torch.float32"
        assert grad.shape == src.local_shape(rank, shape)
        np.testing.assert_array_equal(
            grad, np.full_like(grad, sum(1.0 if r == 0 else 2.0**-9 for r in used))
        )
        sent = sum(m.elements for m in plan.sent(rank) if m.is_remote)
        assert received.get("recv", 0) == sent * 4
        assert received.get("all_reduce", 0) == 2 * (copies - 1) * grad.nbytes // copies


@pytest.mark.parametrize("shape", [(16, 8), (9, 8)], ids=["even", "uneven"])
def test_gradients_are_summed_in_the_order_of_the_ranks(ranks: Pool, shape: Any) -> None:
    """In any other, float32 would lose the 1 next to one of the large shares."""
    for grad in ranks(on_ranks_gather.summed, shape, ROWS, [1e9, -1e9, 1.0, 0.0]):
        np.testing.assert_array_equal(grad, np.ones_like(grad))


def test_the_caller_may_sum_gradients_in_another_dtype(ranks: Pool) -> None:
    for dtype, grad, received in ranks(
        on_ranks_gather.gradient, values((16, 8)), ROWS, None, "bfloat16"
    ):
        assert dtype == "torch.float32"
        assert set(grad.reshape(-1)) == {1.0}  # what the others added is lost
        assert received == {"recv": 3 * grad.size * 2}


def test_a_gradient_that_is_conjugated_in_name_only_is_summed_as_wide_as_asked(ranks: Pool) -> None:
    for grad in ranks(on_ranks_gather.summed_conjugate, ROWS, [1e9j, 1j, -1e9j, 0]):
        np.testing.assert_array_equal(grad, np.full_like(grad, 1j))


@pytest.mark.parametrize(
    "how",
    ["whole", "cut", "cut elsewhere", "averaged along one axis", "partial along one axis",
     "partial along one that stays"],
)  # fmt: skip
def test_a_gradient_may_come_back_in_any_form(ranks: Pool, how: str) -> None:
    src = Sharding(GRID, (("tp", "dp"),))
    x = values((16, 8))
    for rank, grad in enumerate(ranks(on_ranks_gather.gradient_as, x, src, how)):
        wanted = src.layout(rank, x.shape)(np.arange(x.size, dtype=np.float32).reshape(x.shape))
        np.testing.assert_array_equal(grad, wanted)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
def test_a_gradient_comes_back_in_parts(ranks: Pool, order: tuple[int, ...]) -> None:
    for src in (ROWS, Sharding(GRID, (("tp", "dp"),))):
        assert all(ranks(on_ranks_gather.gradient_of_parts, src, order))


def test_what_is_conjugated_in_name_only_travels_conjugated(ranks: Pool) -> None:
    assert all(ranks(on_ranks_gather.conjugated, ROWS))


def test_what_is_negated_in_name_only_travels_negated(ranks: Pool) -> None:
    assert all(ranks(on_ranks_gather.negated, ROWS))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 3, 1)])
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "bool", "int16", "complex64", "float32"])
def test_a_collective_carries_any_dtype(ranks: Pool, kind: str, order: tuple[int, ...]) -> None:
    assert all(ranks(on_ranks_gather.by_collectives, ROWS, order, kind))


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("on", [TP, Mesh((1, 4), ("dp", "tp"))], ids=str)
def test_a_part_may_be_a_view_also_of_one_element(ranks: Pool, on: Mesh, n: int) -> None:
    assert all(ranks(on_ranks_gather.of_views, on, n))


def test_a_part_that_is_on_its_way_is_waited_for(ranks: Pool) -> None:
    assert all(ranks(on_ranks_gather.on_its_way, np.eye(16, 8), Sharding(GRID, ("tp", "dp"))))


def test_a_gradient_keeps_no_memory_but_its_own(ranks: Pool) -> None:
    assert ranks(on_ranks_gather.held, ROWS) == [4 * 8 * 2 // 4] * 4


def test_a_gradient_has_a_gradient(ranks: Pool) -> None:
    for twice in ranks(on_ranks_gather.second_gradient, np.ones((9, 4), np.float32), ROWS):
        np.testing.assert_array_equal(twice, np.full_like(twice, 6 * 4))


def test_nothing_is_saved_for_the_gradient(ranks: Pool) -> None:
    for case in ("rows", "columns", "uneven columns"):
        src, axis, shape = CASES[case]
        assert ranks(on_ranks_gather.saved, values(shape), src, axis) == [[]] * 4


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="asks Linux for the peak")
def test_the_wide_whole_is_never_in_memory(ranks: Pool) -> None:
    """The peak falls by the whole in float32, less the narrow part that travels instead."""
    shape = (1 << 13, 1 << 10)
    whole = 4 * np.prod(shape)
    for cast_after, cast_before in ranks(on_ranks_gather.peaks, shape, ROWS):
        assert cast_after - cast_before > 0.95 * (whole - whole / 2 / 4)
        assert cast_before < 1.05 * (whole / 2 + whole / 2 / 4)


GOLDEN = json.loads(Path(__file__).with_name("pad_gather.json").read_text("utf-8"))["cases"]


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["id"])
def test_padded_parts_are_those_that_were_recorded(case: dict) -> None:
    given, expected = case["params"], case["expected"]
    if "widths" in given:
        axis, count = given["dim"], len(given["widths"])
        whole = array(case["inputs"]["full"])
        spec = [None] * axis + ["tp"]
        split = {axis: Split(sizes=given["widths"])}
        padded = Sharding(Mesh(count, "tp"), spec, splits={axis: Split(pad=True)})
        parts, gathered = expected["padded_shards"], array(expected["out"])
        uneven = Sharding(Mesh(count, "tp"), spec, splits=split)
        assert [uneven.owned(r, whole.shape) for r in range(count)] == [
            padded.owned(r, whole.shape) for r in range(count)
        ]
    else:
        whole, count = np.arange(given["numel"]), given["world"]
        rule = {0: Split(rule="flat_ceil", pad=True)}
        padded = Sharding(Mesh(count, "tp"), ("tp",), splits=rule, flat=True)
        parts, gathered = expected["shards"], array(expected["gathered_trimmed"])
    for rank, part in enumerate(parts):
        np.testing.assert_array_equal(padded.layout(rank, whole.shape)(whole), array(part))
    plan = xl.plan_reshard(xl.Layout.identity(whole.shape), padded, padded.without("tp"))
    np.testing.assert_array_equal(plan.simulate(whole), gathered)


def array(recorded: dict) -> np.ndarray:
    return np.array(recorded["data"]).reshape(recorded["shape"])
