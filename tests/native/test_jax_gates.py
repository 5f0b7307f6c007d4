"""Where a call of the kernel does not belong, a gate of its own prevents it, and plain ops stay."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import export
from jax.experimental import pallas
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import xlayout as xl
import xlayout_jax
from tests.native.zipped import SHAPE, compiled, jitted, mesh, put, values, zipped
from xlayout.lower.linear import Linear
from xlayout_jax import native

ZIP = xl.interleave.layout(SHAPE, axis=1)
TURNED = xl.trim.layout((1 << 16, 4), axis=1, to=3) >> xl.matrix_transpose.layout((1 << 16, 3))
Situation = Callable[[Callable[..., Any]], str]


# -- what the arrays tell --------------------------------------------------------------------------


def off(function: Callable[..., Any]) -> str:
    with xl.native(False):
        return compiled(function, values())


def packed(function: Callable[..., Any]) -> str:
    return compiled(function, jax.device_put(np.zeros((512, 512), ml_dtypes.int4)))


def small(function: Callable[..., Any]) -> str:
    return compiled(function, values((32, 32)))


def kernel(function: Callable[..., Any]) -> str:
    def body(x: Any, y: Any) -> None:  # functions called in a kernel are traced separately
        y[...] = jax.lax.fori_loop(0, 2, lambda _, v: function(v), x[...])

    like = jax.ShapeDtypeStruct(SHAPE, np.float32)
    return str(jax.make_jaxpr(lambda x: pallas.pallas_call(body, out_shape=like)(x))(values()))


def typed(function: Callable[..., Any]) -> str:
    on, made = mesh(AxisType.Explicit), Linear(ZIP, xlayout_jax)
    with jax.set_mesh(on):
        bound = jax.make_jaxpr(lambda x: native.linear(lambda: made, [x]) or [function(x)])
        return str(bound(put(values(), P("d"), on)))


TRACED: dict[str, Situation] = {
    "off": off,
    "packed": packed,
    "small": small,
    "in a kernel": kernel,
    "sharded by type": typed,
}


# -- what the computation tells --------------------------------------------------------------------


def off_later(function: Callable[..., Any]) -> str:
    traced = jitted(function).trace(values())
    with xl.native(False):
        text: str = traced.lower().as_text()
    return text


def elsewhere(function: Callable[..., Any]) -> str:
    text: str = jitted(function).trace(values()).lower(lowering_platforms=("cuda",)).as_text()
    return text


def exported(function: Callable[..., Any]) -> str:
    try:
        return str(export.export(jitted(function))(values()).mlir_module())
    except ValueError as error:  # the call went too far
        return str(error)


def spread(function: Callable[..., Any]) -> str:
    return compiled(function, put(values(), P("d")))


def by_rows(_function: Callable[..., Any]) -> str:
    return compiled(xl.interleave, values())


def many(_function: Callable[..., Any]) -> str:
    text: str = jax.jit(lambda x: xl.to_tiles(x, grid=(24, 24))).lower(values((240, 240))).as_text()
    return text


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def of_another_time(frame: int) -> None:
    """A handler that says it was made for version 0.99 of XLA's interface."""
    extension = ctypes.c_void_p.from_address(frame + 8).value or 0
    metadata = ctypes.c_void_p.from_address(extension + 24).value or 0
    ctypes.c_int.from_address(metadata + 24).value = 0
    ctypes.c_int.from_address(metadata + 28).value = 99


def refused(function: Callable[..., Any]) -> str:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    address = ctypes.cast(of_another_time, ctypes.c_void_p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "TARGET", f"{native.TARGET}_of_another_time")
        patch.setattr(native, "_handler", new(address, None, None))
        native._refused.cache_clear()
        text: str = jitted(function).lower(values()).as_text()
    native._refused.cache_clear()
    return text


LOWERED: dict[str, Situation] = {
    "off": off_later,
    "elsewhere": elsewhere,
    "exported": exported,
    "spread": spread,
    "by rows": by_rows,
    "many": many,
    "refused": refused,
}
TABLES = {"traced": (native.TRACED, TRACED), "lowered": (native.LOWERED, LOWERED)}
GATES = [(stage, name) for stage, (_, situations) in TABLES.items() for name in situations]


def called(text: str) -> bool:
    """Whether there is a call, or, before lowering, the primitive that becomes one."""
    return native.TARGET in text or "relayout[" in text


def test_every_gate_has_a_situation() -> None:
    assert TRACED.keys() == native.TRACED.keys()
    assert LOWERED.keys() == native.LOWERED.keys()


def test_without_a_gate_in_the_way_there_is_a_call() -> None:
    assert called(compiled(zipped, values()))
    assert np.array_equal(
        jax.jit(zipped)(values()),
        np.asarray(values()).reshape(256, 2, 192).swapaxes(1, 2).reshape(SHAPE),
    )


@pytest.mark.parametrize(
    ("function", "shape", "kernel"),
    [
        (lambda x: xl.trim(x, axis=1, to=500), (512, 512), False),  # XLA copies its rows
        (lambda x: xl.pad(x, to=600), (512, 512), False),
        (lambda x: xl.pad(x, axis=1, to=513), (512, 512), True),  # but not these
        (lambda x: xl.pad(x, axis=1, to=5), (1 << 16, 3), False),  # unless they are short
        (lambda x: xl.trim(x, axis=1, to=3), (1 << 16, 4), False),
        (TURNED, (1 << 16, 4), True),
        (lambda x: xl.trim(x, axis=1, to=4000), (4096, 4096), True),  # 64 MB
        (lambda x: xl.pad(x, axis=1, to=4), (1 << 22, 3), True),
    ],
)
def test_rows_that_are_cut_or_padded(function: Any, shape: tuple[int, int], kernel: bool) -> None:
    assert called(compiled(function, values(shape))) == kernel


@pytest.mark.parametrize(("stage", "name"), GATES)
def test_a_gate_keeps_the_call_away(stage: str, name: str) -> None:
    assert not called(TABLES[stage][1][name](zipped))


@pytest.mark.parametrize(("stage", "name"), GATES)
def test_and_no_other_gate_does(stage: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gates, situations = TABLES[stage]
    monkeypatch.delitem(gates, name)
    if (stage, name) == ("traced", "off"):  # the only one that checks later
        monkeypatch.delitem(native.LOWERED, name)
    try:
        text = situations[name](zipped)
    except Exception as error:  # noqa: BLE001 -- whatever a call that does not belong brings about
        text = f"{native.TARGET}: {error}"
    assert called(text)


def test_a_pallas_kernel_with_an_op_on_a_large_block_is_lowered_for_tpu() -> None:
    def body(x: Any, y: Any) -> None:
        y[...] = xl.matrix_transpose(x[...])

    like = jax.ShapeDtypeStruct((256, 256), np.float32)
    run = jax.jit(lambda x: pallas.pallas_call(body, out_shape=like)(x))
    assert "tpu_custom_call" in export.export(run, platforms=["tpu"])(like).mlir_module()
