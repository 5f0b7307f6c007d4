"""A layout in JAX that the Triton kernel copies, compiled for a GPU that is not present."""

from __future__ import annotations

import importlib.util
import re
import zlib
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("jax")

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import xlayout as xl
from xlayout.lower.moves import moves_of
from xlayout_jax import cuda, launches, primitive, targets

NEEDED = ("triton", "jax_cuda12_plugin")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

OPS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], str, int]] = {
    "zip": (lambda x: xl.interleave(x, axis=1), ((8192, 4096),), "bfloat16", 1),
    "transpose": (xl.matrix_transpose, ((8191, 4099),), "float32", 1),
    "rope, transpose": (
        xl.rope_pairs.layout((8192, 4096), heads=32) >> xl.matrix_transpose.layout((8192, 4096)),
        ((8192, 4096),),
        "bfloat16",
        1,
    ),
    "qkv": (
        lambda *xs: xl.fuse_qkv(*xs, heads=16, kv_heads=4),
        ((8192, 4096), (2048, 4096), (2048, 4096)),
        "int8",
        1,
    ),
    "stack": (lambda *xs: xl.stack(xs), ((1024, 1024),) * 20, "float32", 1),
    "regroup": (
        lambda x: xl.regroup(x, sizes=(8, 16, 24), groups=2, axis=1), ((1 << 20, 48),), "int8", 3
    ),
}  # fmt: skip
"""Name -> the op, shapes, dtype, launches."""


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all trials had come out right on a Hopper GPU."""
    monkeypatch.setattr(cuda, "why_not", lambda: "")
    monkeypatch.setattr(cuda, "is_wrong", lambda *_kind: False)
    monkeypatch.setattr(launches, "capability", lambda: 90)


@pytest.mark.parametrize("name", OPS)
def test_it_is_one_pass_over_the_memory(name: str) -> None:
    op, shapes, dtype, count = OPS[name]
    place = NamedSharding(Mesh(targets._devices("h100", 1), ("devices",)), PartitionSpec())
    arrays = [jax.ShapeDtypeStruct(shape, dtype, sharding=place) for shape in shapes]
    whole = jax.jit(primitive.alone(lambda *xs: op(*xs))).lower(*arrays)
    compiled = whole.compile({"xla_gpu_autotune_level": "0"})
    text = compiled.as_text()
    assert text.count(f'custom_call_target="{launches.TARGET}"') == count
    assert " copy(" not in text
    assert " fusion(" not in text
    used = compiled.memory_analysis()
    assert used.temp_size_in_bytes == 0
    assert used.output_size_in_bytes == used.argument_size_in_bytes


@pytest.mark.parametrize(("capability", "version"), [(80, "8.7"), (90, "8.7"), (103, "8.8")])
def test_its_code_is_of_a_version_that_xla_can_read(
    capability: int, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although Triton's own assembler reads a later one."""
    from triton.backends.nvidia import compiler

    monkeypatch.setattr(compiler, "ptx_get_version", lambda _: 94)
    layout = xl.matrix_transpose.layout((8192, 4096))
    made = launches.numbered(moves_of(layout, ((4096, 1),)), 2, 1, 1)
    assert made is not None
    call = launches.described.__wrapped__(made.launches[0], 1, 1, capability)
    assert re.findall(rb"\.version (\S+)", zlib.decompress(call)) == [version.encode()]
