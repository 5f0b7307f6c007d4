"""A DCP whose tensors are stored in parts holds them bit for bit, for us and for torch."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.port.formats.arrays import bits, same, save
from tests.port.formats.dcp_saves import load
from tests.port.formats.test_dcp_sink import equal
from xlayout.errors import ShapeError
from xlayout.port.formats import TensorSpec, create_sink, open_source
from xlayout.port.formats.base import Bounds
from xlayout.port.formats.dcp_metadata import parse_metadata


def grid(data: st.DataObject, shape: tuple[int, ...]) -> list[Bounds]:
    """Boxes that cover a shape, in some order."""
    ends = [sorted({0, n, *data.draw(st.tuples(*2 * [st.integers(0, n)]))}) for n in shape]
    boxes = [*itertools.product(*[[*itertools.pairwise(e)] for e in ends])]
    return data.draw(st.permutations(boxes))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple),
    limit=st.sampled_from([1, 30, "5GB"]),
    data=st.data(),
)
def test_parts_are_filled_by_regions_of_any_shape_and_read_whole(
    tmp_path: Path, shape: tuple[int, ...], limit: Any, data: st.DataObject
) -> None:
    array, path = bits("float16", shape), Path(mkdtemp(dir=tmp_path)) / "out"
    ranks = st.integers(0, 3)
    shares = {"x": [(data.draw(ranks), box) for box in grid(data, shape)]}
    specs = {"x": TensorSpec("float16", shape), "y": TensorSpec("int8", ())}
    with create_sink(path, "dcp", specs, shares=shares, max_shard_size=limit) as sink:
        sink.write("y", np.array(7, np.int8))
        for box in grid(data, shape):
            region = tuple(itertools.starmap(slice, box))
            sink.write("x", array[region], region)
        sink.commit()
    found = parse_metadata((path / ".metadata").read_bytes(), where="x").tensors["x"].chunks
    assert {(int(c.item.file.split("_")[2]), c.box) for c in found} == {*shares["x"]}
    with open_source(path) as source:
        assert same(source.read("x"), array)
        for box in grid(data, shape):
            region = tuple(itertools.starmap(slice, box))
            assert same(source.read("x", region), array[region])
    arrays = {"x": array, "y": np.array(7, np.int8)}
    assert equal(load(path, arrays), arrays)


def test_torch_reads_the_metadata_as_its_own(tmp_path: Path) -> None:
    boxes = [(2, ((0, 2), (0, 3))), (0, ((0, 2), (3, 5))), (2, ((2, 4), (0, 5)))]
    save(tmp_path / "d", "dcp", {"x": bits("int8", (4, 5))}, shares={"x": boxes})
    metadata = torch.distributed.checkpoint.FileSystemReader(tmp_path / "d").read_metadata()
    found = metadata.state_dict_metadata["x"]
    chunks = [(tuple(c.offsets), tuple(c.sizes)) for c in found.chunks]
    assert chunks == [((0, 3), (2, 2)), ((0, 0), (2, 3)), ((2, 0), (2, 5))]
    stored = [(i.index, tuple(i.offset)) for i in metadata.storage_data]
    assert stored == [*enumerate(offsets for offsets, _ in chunks)]
    files = [info.relative_path for info in metadata.storage_data.values()]
    assert files == ["__0_0.distcp", "__2_0.distcp", "__2_0.distcp"]


def test_columns_of_many_bytes_are_copied_a_piece_at_a_time(tmp_path: Path) -> None:
    """Five MiB of each row of a region go to one file, and three to another."""
    array = np.random.default_rng(0).integers(0, 256, (2, 3, 4 << 20), np.uint8)
    cut = 5 << 19
    shares = {"x": [(0, ((0, 2), (0, 3), (0, cut))), (1, ((0, 2), (0, 3), (cut, 4 << 20)))]}
    save(tmp_path / "d", "dcp", {"x": array}, shares=shares)
    with open_source(tmp_path / "d") as source:
        assert same(source.read("x"), array)


def test_what_is_stored_in_parts_is_found_again(tmp_path: Path) -> None:
    array = bits("int16", (4, 6))
    options: dict[str, Any] = {
        "shares": {"x": [(0, ((0, 4), (0, 4))), (1, ((0, 4), (4, 6)))]},
        "key": "key",
    }
    above, below = ((slice(0, 2), slice(0, 6)), (slice(2, 4), slice(0, 6)))
    specs = {"x": TensorSpec("int16", (4, 6))}
    with (
        suppress(KeyboardInterrupt),
        create_sink(tmp_path / "d", "dcp", specs, **options) as sink,
    ):
        sink.write("x", array[above], above)
        raise KeyboardInterrupt
    with create_sink(tmp_path / "d", "dcp", specs, **options) as sink:
        there = np.empty((2, 6), np.int16)
        assert sink.holds("x", above, there)
        assert same(there, array[above])
        assert not sink.holds("x", below, there)
        sink.write("x", array[below], below)
        sink.commit()
    with open_source(tmp_path / "d") as source:
        assert same(source.read("x"), array)


def test_boxes_that_are_not_all_of_a_tensor_are_refused(tmp_path: Path) -> None:
    specs = {"x": TensorSpec("int16", (4, 6))}
    text = r"^shares: 'x': boxes of 16 elements; wanted all 24$"
    with pytest.raises(ShapeError, match=text):
        create_sink(tmp_path / "d", "dcp", specs, shares={"x": [(0, ((0, 4), (0, 4)))]})
    assert not list(tmp_path.iterdir())
