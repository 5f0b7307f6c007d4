"""Safetensors files mean the same to us and to the reference implementation, bit for bit."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.port.formats.arrays import bits, everything, same, save
from tests.port.formats.dcp_saves import to_torch
from xlayout.errors import ShapeError
from xlayout.port.formats import numpy_dtype, open_source
from xlayout.port.formats.safetensors_header import CODES


def test_the_reference_reads_every_dtype_that_we_write(tmp_path: Path) -> None:
    arrays = everything(CODES.values())
    save(tmp_path / "x.safetensors", "safetensors", arrays)
    assert safetensors.safe_open(tmp_path / "x.safetensors", "pt").metadata() == {"format": "pt"}
    raw = dict(safetensors.deserialize((tmp_path / "x.safetensors").read_bytes()))
    assert raw.keys() == arrays.keys()
    for name, array in arrays.items():
        assert raw[name]["dtype"] == {v: k for k, v in CODES.items()}[str(array.dtype)]
        assert raw[name]["shape"] == list(array.shape)
        assert bytes(raw[name]["data"]) == array.tobytes()


def test_torch_loads_what_we_write(tmp_path: Path) -> None:
    arrays = everything(CODES.values())
    save(tmp_path / "x.safetensors", "safetensors", arrays)
    loaded = safetensors.torch.load_file(tmp_path / "x.safetensors")
    for name, array in arrays.items():
        want = to_torch(array)
        assert loaded[name].dtype == want.dtype
        assert loaded[name].shape == want.shape
        assert loaded[name].reshape(-1).view(torch.uint8).equal(want.reshape(-1).view(torch.uint8))


def test_we_read_every_dtype_that_torch_saves(tmp_path: Path) -> None:
    arrays = everything(CODES.values())
    safetensors.torch.save_file(
        {name: to_torch(a) for name, a in arrays.items()}, tmp_path / "x.safetensors"
    )
    with open_source(tmp_path / "x.safetensors") as source:
        assert source.tensors.keys() == arrays.keys()
        for name, array in arrays.items():
            assert same(source.read(name), array)


def test_equal_weights_make_equal_files(tmp_path: Path) -> None:
    arrays = everything(CODES.values()) | {
        name: bits("int8", (2,)) for name in ("a", "b", "c.1", "c.01")
    }
    save(tmp_path / "one.safetensors", "safetensors", arrays)
    save(tmp_path / "two.safetensors", "safetensors", dict(reversed(arrays.items())))
    assert (tmp_path / "one.safetensors").read_bytes() == (
        tmp_path / "two.safetensors"
    ).read_bytes()


def test_data_starts_on_a_cache_line_and_tensors_are_aligned(tmp_path: Path) -> None:
    arrays = everything(CODES.values())
    save(tmp_path / "x.safetensors", "safetensors", arrays)
    content = (tmp_path / "x.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    assert (8 + length) % 64 == 0
    for name, array in arrays.items():
        assert header[name]["data_offsets"][0] % array.dtype.alignment == 0


regions = st.lists(st.integers(1, 7), max_size=4).flatmap(
    lambda shape: st.tuples(
        st.just(tuple(shape)),
        st.tuples(
            *[
                st.tuples(st.integers(0, n), st.integers(0, n)).map(
                    lambda ends: slice(*sorted(ends))
                )
                for n in shape
            ]
        ),
    )
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=regions)
def test_a_region_is_what_slicing_would_give(
    tmp_path: Path, case: tuple[tuple[int, ...], tuple[slice, ...]]
) -> None:
    shape, region = case
    array = bits("bfloat16", shape)
    safetensors.torch.save_file({"x": to_torch(array)}, tmp_path / "x.safetensors")
    with open_source(tmp_path / "x.safetensors") as source:
        want = array[region]
        assert same(source.read("x", region), want)
        out = np.empty(want.shape, want.dtype)
        assert source.read("x", region, out) is out
        assert same(out, want)


@pytest.mark.parametrize("columns", [slice(0, 8), slice(100, 300), slice(0, 600), slice(1, 1024)])
def test_columns_of_a_large_matrix_are_read_across_blocks(tmp_path: Path, columns: slice) -> None:
    array = bits("float32", (3000, 1024)).reshape(3000, 1024)
    save(tmp_path / "x.safetensors", "safetensors", {"x": array})
    with open_source(tmp_path / "x.safetensors") as source:
        assert same(source.read("x", (slice(1, 2999), columns)), array[1:2999, columns])


def test_many_short_runs_take_few_system_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "x.safetensors", "safetensors", {"x": bits("float32", (3000, 1024))})
    calls = counted_reads(monkeypatch)
    with open_source(tmp_path / "x.safetensors") as source:
        source.read("x", (slice(0, 3000), slice(0, 128)))
    assert len(calls) == 3  # 12 MB in blocks of 4


@pytest.mark.parametrize(
    ("row", "wanted", "calls"),
    [
        (1024, 64, 1),  # 16 bytes are read for each that is wanted
        (1024, 63, 50),
        (8192, 4095, 1),  # 16 kB less one number
        (8192, 4096, 50),
    ],
)
def test_runs_are_read_one_by_one_if_they_are_long_or_few_in_much_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: int, wanted: int, calls: int
) -> None:
    save(tmp_path / "x.safetensors", "safetensors", {"x": bits("float32", (50, row))})
    read = counted_reads(monkeypatch)
    with open_source(tmp_path / "x.safetensors") as source:
        source.read("x", (slice(0, 50), slice(8, 8 + wanted)))
    assert len(read) == calls
    assert sum(read) == 4 * (50 * wanted if calls > 1 else 49 * row + wanted)


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which the bytes of each system call that reads are added from now on."""
    calls: list[int] = []
    preadv = os.preadv

    def counted(handle: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(preadv(handle, buffers, offset))
        return calls[-1]

    monkeypatch.setattr(os, "preadv", counted)
    return calls


def test_refuses_regions_and_arrays_that_do_not_fit(tmp_path: Path) -> None:
    save(tmp_path / "x.safetensors", "safetensors", {"x": bits("bfloat16", (4, 3))})
    with open_source(tmp_path / "x.safetensors") as source:
        whole = slice(None)
        with pytest.raises(ShapeError, match=r"1 slices; shape \(4, 3\) wants 2"):
            source.read("x", (whole,))
        with pytest.raises(ShapeError, match=r"on axis 1; 0 <= start <= stop <= 3 and step 1"):
            source.read("x", (whole, slice(0, 4)))
        with pytest.raises(ShapeError, match=r"on axis 0; 0 <= start"):
            source.read("x", (slice(0, 4, 2), whole))
        with pytest.raises(ShapeError, match=r"on axis 0; 0 <= start"):
            source.read("x", (slice(-1, None), whole))
        with pytest.raises(
            ShapeError, match=r"out: float32\(4, 3\); the region is bfloat16\(4, 3\)"
        ):
            source.read("x", None, np.empty((4, 3), np.float32))
        with pytest.raises(ShapeError, match="wanted a writable C-contiguous array"):
            source.read("x", None, np.empty((3, 4), numpy_dtype("bfloat16")).T)
        with pytest.raises(
            ShapeError, match=r"out: bfloat16\(3, 4\); the region is bfloat16\(4, 3\)"
        ):
            source.read("x", None, np.empty((3, 4), numpy_dtype("bfloat16")))
        fixed = np.empty((4, 3), numpy_dtype("bfloat16"))
        fixed.flags.writeable = False
        with pytest.raises(ShapeError, match="out: read-only or strided"):
            source.read("x", None, fixed)
        with pytest.raises(ShapeError, match=r"on axis 0; 0 <= start <= stop <= 4"):
            source.read("x", (slice(3, 2), whole))
        assert source.read("x", (slice(4, 4), slice(0, 3, 1))).shape == (0, 3)
        with pytest.raises(KeyError, match="y"):
            source.read("y")
