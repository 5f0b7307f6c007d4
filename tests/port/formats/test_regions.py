"""Files that are laid out up front take their tensors in regions of any shape, in any order."""

from __future__ import annotations

import itertools
from pathlib import Path
from tempfile import mkdtemp

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
