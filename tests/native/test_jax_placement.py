"""Spread over devices, exported or differentiated, values are right, and nothing is gathered."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import xlayout as xl
from tests.native.zipped import called, compiled, mesh, put, values, zipped
from xlayout import Layout, Piece
from xlayout_jax import native


def test_a_sharded_array_is_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    x = put(values(), P("d"))
    assert "all-gather" not in compiled(zipped, x)
    assert "all-gather" not in compiled(jax.grad(lambda x: (zipped(x) ** 2).sum()), x)
    assert jax.jit(zipped)(x).sharding.spec == P("d")
    assert np.array_equal(jax.jit(zipped)(x), zipped(values()))
    monkeypatch.delitem(native.LOWERED, "spread")
    assert "all-gather" in compiled(zipped, x)


@pytest.mark.parametrize("check", [True, False])
def test_inside_shard_map_every_device_has_its_call(check: bool) -> None:
    local = jax.shard_map(zipped, mesh=mesh(), in_specs=P("d"), out_specs=P("d"), check_vma=check)
    x = put(values((2048, 384)), P("d"))
    for function in (local, jax.grad(lambda x: (local(x) ** 2).sum())):
        text = compiled(function, x)
        assert called(text)
        assert "all-gather" not in text
    assert np.array_equal(jax.jit(local)(x), zipped(values((2048, 384))))


@pytest.mark.parametrize("flip", [False, True])
def test_an_input_that_does_not_vary_is_left_to_the_ops(flip: bool) -> None:
    def join(a: Any, b: Any) -> Any:
        return xl.rearrange((b, a) if flip else (a, b), "n a, n b -> n (a + b)")

    local = jax.shard_map(join, mesh=mesh(), in_specs=(P("d"), P()), out_specs=P("d"))
    a, b = put(values((8 * 20000, 2)), P("d")), put(values((20000, 3)), P())
    parts = [np.asarray(a), np.tile(np.asarray(b), (8, 1))]
    wanted = np.concatenate(parts[::-1] if flip else parts, 1)
    assert np.array_equal(jax.jit(local)(a, b), wanted)
    gradient = jax.grad(lambda b: (local(a, b) ** 2).sum())(b)
    assert np.array_equal(gradient, 16 * np.asarray(b))  # two, on each of eight devices


def test_in_a_map_over_a_part_of_the_mesh_the_rest_is_spread() -> None:
    on = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    local = jax.shard_map(
        zipped, mesh=on, in_specs=P("a"), out_specs=P("a"), axis_names={"a"}, check_vma=False
    )
    x = put(values((1024, 384)), P(("a", "b")), on)
    text = compiled(local, x)
    assert not called(text)
    assert "all-gather" not in text
    assert np.array_equal(jax.jit(local)(x), zipped(values((1024, 384))))


@pytest.mark.parametrize("platforms", [("cpu",), ("cuda",), ("cpu", "cuda", "tpu")])
def test_an_exported_function_runs_without_the_kernel(platforms: tuple[str, ...]) -> None:
    function = jax.grad(lambda x: (zipped(x) ** 2).sum())
    made = export.export(jax.jit(function), platforms=platforms)(values())
    assert not called(made.mlir_module())
    if "cpu" in platforms:
        assert np.array_equal(made.call(values()), function(values()))


def test_a_program_for_several_platforms_is_for_any_of_them() -> None:
    traced = jax.jit(lambda x: zipped(x)).trace(values())
    assert called(traced.lower(lowering_platforms=("cpu",)).as_text())
    assert not called(traced.lower(lowering_platforms=("cpu", "cuda")).as_text())


def test_a_dynamic_axis_is_left_to_the_ops() -> None:
    (rows,) = export.symbolic_shape("n")
    made = export.export(jax.jit(zipped))(jax.ShapeDtypeStruct((rows, 384), np.float32))
    assert np.array_equal(made.call(values()), zipped(values()))


@pytest.mark.parametrize(
    ("layout", "call"),
    [
        (Layout.pad((384, 256), 400) >> Layout.permute((400, 256), (1, 0)), True),
        (Layout.slice((384, 256), 3, 380) >> Layout.permute((377, 256), (1, 0)), True),
        (
            Layout(
                ((256, 128),),
                ((128, 2, 256),),
                (Piece(0, 0, ((256, 128, 1), (2, 0, 256), (128, 1, 512))),),
            ),
            False,
        ),
    ],
    ids=["holes", "dropped", "repeated"],
)
def test_what_is_no_bijection_has_a_gradient_too(layout: Layout, call: bool) -> None:
    x, weight = values(layout.in_shape), values(layout.out_shape)
    assert called(compiled(layout, x)) == call
    gradient = jax.grad(lambda x: (layout(x) * weight).sum())(x)
    wanted = np.zeros(layout.in_size, np.float32)
    table = layout.index()
    np.add.at(wanted, table[table >= 0], np.asarray(weight).ravel()[table >= 0])
    assert np.array_equal(np.asarray(gradient).ravel(), wanted)


def test_a_regrouping_costs_nothing() -> None:
    large = jax.ShapeDtypeStruct((4096, 4096), np.float32)
    text = compiled(lambda x: xl.rearrange(x, "(a b) c -> a (b c)", a=64), large)
    assert not called(text)
    assert "transpose" not in text


@pytest.mark.parametrize(
    ("shape", "call"),
    [
        ((256, 384), False),  # whole rows
        ((256, 1, 384, 1), False),
        ((49152, 8), True),  # rows of half a line
        ((98304,), True),  # one row, in pieces of 128 elements
    ],
)
def test_whole_rows_are_left_to_xla(shape: tuple[int, ...], call: bool) -> None:
    block = 128 if len(shape) == 1 else 1
    assert called(compiled(lambda x: xl.interleave(x, block=block), values(shape))) == call


def test_large_rows_are_a_call() -> None:
    large = jax.ShapeDtypeStruct((native.LARGE // 4096, 1024), np.float32)
    assert called(compiled(xl.interleave, large))
