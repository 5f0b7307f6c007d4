"""Files that are laid out up front take their tensors in regions of any shape, in any order."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.port.formats.arrays import bits, same
from xlayout.port.formats import TensorSpec, create_sink, open_source


@pytest.mark.parametrize(
    ("format_", "name"), [("safetensors", "x.safetensors"), ("safetensors", "out"), ("dcp", "out")]
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_regions_may_be_written_in_any_order(
    tmp_path: Path, format_: str, name: str, shape: tuple[int, ...], seed: int, data: st.DataObject
) -> None:
    array = bits("float16", shape, seed)
    ends = [sorted({0, n, *data.draw(st.tuples(*2 * [st.integers(0, n)]))}) for n in shape]
    boxes = list(
        itertools.product(*[itertools.starmap(slice, itertools.pairwise(e)) for e in ends])
    )
    path = Path(mkdtemp(dir=tmp_path)) / name
    with create_sink(path, format_, {"x": TensorSpec("float16", shape)}) as sink:
        for box in data.draw(st.permutations(boxes)):
            sink.write("x", np.asfortranarray(array[box]), box)
        sink.commit()
    with open_source(path) as source:
        assert same(source.read("x"), array)


@pytest.mark.parametrize("format_", ["safetensors", "dcp", "maxtext"])
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_an_array_may_lie_in_memory_as_it_likes(tmp_path: Path, format_: str, dtype: str) -> None:
    array = bits(dtype, (6, 10))
    lying = {"a": array[::2, ::-3], "b": array.T, "c": array[:, 3], "d": array[::-1]}
    specs = {name: TensorSpec(dtype, part.shape) for name, part in lying.items()}
    with create_sink(tmp_path / "out", format_, specs) as sink:
        for name, part in lying.items():
            sink.write(name, part)
        sink.commit()
    with open_source(tmp_path / "out") as source:
        assert all(same(source.read(name), part) for name, part in lying.items())


@pytest.mark.parametrize("format_", ["safetensors", "dcp"])
def test_a_system_call_that_moves_only_a_part_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    """As calls do for more than 2 GiB, on network filesystems, and when a disk fills up."""
    pwrite, preadv = os.pwrite, os.preadv

    def write_some(handle: int, data: memoryview, position: int) -> int:
        return pwrite(handle, data[:5], position)

    def read_some(handle: int, buffers: list[Any], position: int) -> int:
        return preadv(handle, [buffer[:7] for buffer in buffers], position)

    monkeypatch.setattr(os, "pwrite", write_some)
    monkeypatch.setattr(os, "preadv", read_some)
    array = bits("float32", (5, 8))
    with create_sink(tmp_path / "out", format_, {"x": TensorSpec("float32", (5, 8))}) as sink:
        sink.write("x", array)
        sink.commit()
    with open_source(tmp_path / "out") as source:
        assert same(source.read("x"), array)
        assert same(source.read("x", (slice(1, 4), slice(2, 5))), array[1:4, 2:5])
