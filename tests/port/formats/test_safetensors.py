"""Safetensors files mean the same to us and to the reference implementation, bit for bit."""

from __future__ import annotations

import itertools
import json
import math
import os
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xlayout.errors import FormatError, PortError, ShapeError
from xlayout.port.formats import TensorSpec, create_sink, numpy_dtype, open_source
from xlayout.port.formats.header import CODES

SHAPES = [(), (1,), (0,), (3, 0, 2), (5,), (4, 3), (2, 3, 4)]


def bits(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Every bit pattern is as likely as any other, NaN payloads included."""
    spec = TensorSpec(dtype, shape)
    raw = np.random.default_rng(seed).integers(0, 256, spec.nbytes, np.uint8)
    raw = raw & 1 if dtype == "bool" else raw
    return raw.view(numpy_dtype(dtype)).reshape(shape)


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def save(path: Path, arrays: dict[str, np.ndarray[Any, Any]], **options: Any) -> None:
    specs = {name: TensorSpec(str(a.dtype), a.shape) for name, a in arrays.items()}
    with create_sink(path, "safetensors", specs, **options) as sink:
        for name, array in arrays.items():
            sink.write(name, array)
        sink.commit()


def everything() -> dict[str, np.ndarray[Any, Any]]:
    pairs = itertools.product(CODES.values(), SHAPES)
    return {f"{d}/{i}": bits(d, s, i) for i, (d, s) in enumerate(pairs)}


def torch_view(array: np.ndarray[Any, Any]) -> torch.Tensor:
    raw = torch.from_numpy(np.frombuffer(bytearray(array.tobytes()), np.uint8).copy())
    dtype = getattr(torch, str(array.dtype))
    return (
        raw.view(dtype).reshape(array.shape)
        if array.size
        else torch.empty(array.shape, dtype=dtype)
    )


def test_the_reference_reads_every_dtype_that_we_write(tmp_path: Path) -> None:
    arrays = everything()
    save(tmp_path / "x.safetensors", arrays)
    assert safetensors.safe_open(tmp_path / "x.safetensors", "pt").metadata() == {"format": "pt"}
    raw = dict(safetensors.deserialize((tmp_path / "x.safetensors").read_bytes()))
    assert raw.keys() == arrays.keys()
    for name, array in arrays.items():
        assert raw[name]["dtype"] == {v: k for k, v in CODES.items()}[str(array.dtype)]
        assert raw[name]["shape"] == list(array.shape)
        assert bytes(raw[name]["data"]) == array.tobytes()


def test_torch_loads_what_we_write(tmp_path: Path) -> None:
    arrays = everything()
    save(tmp_path / "x.safetensors", arrays)
    loaded = safetensors.torch.load_file(tmp_path / "x.safetensors")
    for name, array in arrays.items():
        want = torch_view(array)
        assert loaded[name].dtype == want.dtype
        assert loaded[name].shape == want.shape
        assert loaded[name].reshape(-1).view(torch.uint8).equal(want.reshape(-1).view(torch.uint8))


def test_we_read_every_dtype_that_torch_saves(tmp_path: Path) -> None:
    arrays = everything()
    safetensors.torch.save_file(
        {name: torch_view(a) for name, a in arrays.items()}, tmp_path / "x.safetensors"
    )
    with open_source(tmp_path / "x.safetensors") as source:
        assert source.tensors.keys() == arrays.keys()
        for name, array in arrays.items():
            assert same(source.read(name), array)


def test_equal_weights_make_equal_files(tmp_path: Path) -> None:
    arrays = everything()
    save(tmp_path / "one.safetensors", arrays)
    save(tmp_path / "two.safetensors", dict(reversed(arrays.items())))
    assert (tmp_path / "one.safetensors").read_bytes() == (
        tmp_path / "two.safetensors"
    ).read_bytes()


def test_data_starts_on_a_cache_line_and_tensors_are_aligned(tmp_path: Path) -> None:
    arrays = everything()
    save(tmp_path / "x.safetensors", arrays)
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
    safetensors.torch.save_file({"x": torch_view(array)}, tmp_path / "x.safetensors")
    with open_source(tmp_path / "x.safetensors") as source:
        want = array[region]
        assert same(source.read("x", region), want)
        out = np.empty(want.shape, want.dtype)
        assert source.read("x", region, out) is out
        assert same(out, want)


@pytest.mark.parametrize("columns", [slice(0, 8), slice(100, 300), slice(0, 600), slice(1, 1024)])
def test_columns_of_a_large_matrix_are_read_across_blocks(tmp_path: Path, columns: slice) -> None:
    array = bits("float32", (3000, 1024)).reshape(3000, 1024)
    save(tmp_path / "x.safetensors", {"x": array})
    with open_source(tmp_path / "x.safetensors") as source:
        assert same(source.read("x", (slice(1, 2999), columns)), array[1:2999, columns])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_regions_may_be_written_in_any_order(
    tmp_path: Path, shape: list[int], seed: int, data: st.DataObject
) -> None:
    array = bits("float16", tuple(shape), seed)
    cuts = [
        sorted({0, n, data.draw(st.integers(0, n)), data.draw(st.integers(0, n))}) for n in shape
    ]
    boxes = list(
        itertools.product(*[[slice(a, b) for a, b in itertools.pairwise(c)] for c in cuts])
    )
    path = Path(mkdtemp(dir=tmp_path)) / "x.safetensors"
    with create_sink(path, "safetensors", {"x": TensorSpec("float16", array.shape)}) as sink:
        for box in data.draw(st.permutations(boxes)):
            sink.write("x", np.asfortranarray(array[box]), box)
        sink.commit()
    with open_source(path) as source:
        assert same(source.read("x"), array)


def test_many_short_runs_take_few_system_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "x.safetensors", {"x": bits("float32", (3000, 1024))})
    calls: list[int] = []
    preadv = os.preadv

    def counted(handle: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(offset)
        return preadv(handle, buffers, offset)

    monkeypatch.setattr(os, "preadv", counted)
    with open_source(tmp_path / "x.safetensors") as source:
        source.read("x", (slice(0, 3000), slice(0, 128)))
    assert len(calls) == 3  # 12 MB in blocks of 4


def test_refuses_regions_and_arrays_that_do_not_fit(tmp_path: Path) -> None:
    save(tmp_path / "x.safetensors", {"x": bits("bfloat16", (4, 3))})
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
        with pytest.raises(ShapeError, match="a writable C-contiguous array is wanted"):
            source.read("x", None, np.empty((3, 4), numpy_dtype("bfloat16")).T)
        with pytest.raises(KeyError, match="y"):
            source.read("y")


# --- directories ------------------------------------------------------------------------------


def sharded(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    arrays = {f"layers.{i}.w": bits("bfloat16", (8, 4), i) for i in range(12)}
    save(folder, arrays, max_shard_size=200, config={"model_type": "llama", "vocab_size": 8})
    return arrays


def edit_index(folder: Path, **weight_map: str | None) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"] |= weight_map
    index["weight_map"] = {k: v for k, v in index["weight_map"].items() if v is not None}
    path.write_text(json.dumps(index))


def test_shards_and_their_index_survive_a_round_trip(tmp_path: Path) -> None:
    arrays = sharded(tmp_path / "out")
    with open_source(tmp_path / "out") as source:
        assert source.config == {"model_type": "llama", "vocab_size": 8}
        assert len(source.files) == 4
        assert list(source.tensors) == list(arrays)
        assert all(same(source.read(name), array) for name, array in arrays.items())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "config.json",
        *(f"model-0000{i}-of-00004.safetensors" for i in (1, 2, 3, 4)),
        "model.safetensors.index.json",
    ]
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 12 * 64}


def test_transformers_loads_a_sharded_directory_that_we_wrote(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, dtype="bfloat16",
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path / "theirs")
    with open_source(tmp_path / "theirs") as source:
        arrays = {name: source.read(name) for name in source.tensors}
        save(tmp_path / "ours", arrays, config=source.config, max_shard_size="2KB")
    loaded, report = LlamaForCausalLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True, local_files_only=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    for name, tensor in model.state_dict().items():
        assert loaded.state_dict()[name].equal(tensor)


@pytest.mark.parametrize(
    "file",
    ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\x.safetensors", "x.bin", ""],
)
def test_refuses_an_index_that_leaves_the_directory(tmp_path: Path, file: str) -> None:
    sharded(tmp_path / "out")
    edit_index(tmp_path / "out", **{"layers.0.w": file})
    with pytest.raises(FormatError, match=r"'layers\.0\.w': .*the plain name of a"):
        open_source(tmp_path / "out")


def test_refuses_a_link_that_leaves_the_directory(tmp_path: Path) -> None:
    sharded(tmp_path / "out")
    shard = tmp_path / "out" / "model-00001-of-00004.safetensors"
    shard.rename(tmp_path / "elsewhere.safetensors")
    shard.symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(FormatError, match=r"a link to .*elsewhere.safetensors; a file in"):
        open_source(tmp_path / "out")


def test_follows_the_links_of_a_hugging_face_cache(tmp_path: Path) -> None:
    arrays = sharded(tmp_path / "snapshots" / "main")
    (tmp_path / "blobs").mkdir()
    for path in list((tmp_path / "snapshots" / "main").iterdir()):
        path.rename(tmp_path / "blobs" / path.name)
        path.symlink_to(Path("../../blobs") / path.name)
    with open_source(tmp_path / "snapshots" / "main") as source:
        assert source.tensors.keys() == arrays.keys()


def test_refuses_an_index_that_disagrees_with_its_files(tmp_path: Path) -> None:
    sharded(tmp_path / "ghost")
    edit_index(tmp_path / "ghost", ghost="model-00001-of-00004.safetensors")
    with pytest.raises(FormatError, match=r"listed in the index but not there: \['ghost'\]"):
        open_source(tmp_path / "ghost")
    sharded(tmp_path / "extra")
    edit_index(tmp_path / "extra", **{"layers.0.w": None})
    with pytest.raises(FormatError, match=r"there but not listed: \['layers\.0\.w'\]"):
        open_source(tmp_path / "extra")
    sharded(tmp_path / "gone")
    (tmp_path / "gone" / "model-00002-of-00004.safetensors").unlink()
    with pytest.raises(FormatError, match="no such file; a regular file is wanted"):
        open_source(tmp_path / "gone")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "no weight_map"),
        ('{"weight_map": []}', "no weight_map"),
        ('{"weight_map": {"x": 3}}', "'x': 3; the plain name"),
        ('{"weight_map": {"x": "a.safetensors", "x": "b.safetensors"}}', "'x' stands twice"),
        ("{", "not valid JSON"),
    ],
)
def test_refuses_a_malformed_index(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(FormatError, match=message):
        open_source(tmp_path)


def test_refuses_a_directory_of_files_that_no_index_joins(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(tmp_path / f"{name}.safetensors", {name: bits("int8", (1,))})
    with pytest.raises(
        FormatError, match=r"a\.safetensors, b\.safetensors; one file, or one index"
    ):
        open_source(tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(FormatError, match=r"a directory with nothing; \*\.safetensors"):
        open_source(tmp_path / "none")


@pytest.mark.parametrize("content", ["[]", "{", '{"a": 1, "a": 2}'])
def test_refuses_a_malformed_config(tmp_path: Path, content: str) -> None:
    sharded(tmp_path / "out")
    (tmp_path / "out" / "config.json").write_text(content)
    with pytest.raises(FormatError, match=r"config\.json: "):
        open_source(tmp_path / "out")


# --- writing ----------------------------------------------------------------------------------


def test_commit_refuses_a_tensor_that_is_not_fully_written(tmp_path: Path) -> None:
    specs = {"x": TensorSpec("int8", (4, 2)), "y": TensorSpec("int8", ())}
    sink = create_sink(tmp_path / "out", "safetensors", specs)
    with sink:
        sink.write("x", np.zeros((3, 2), np.int8), (slice(0, 3), slice(0, 2)))
        with pytest.raises(
            PortError, match=r"2 tensors are not fully written: x lacks 2 .*; y lacks 1"
        ):
            sink.commit()
    assert not list(tmp_path.iterdir())
    with pytest.raises(PortError, match="committed or aborted"):
        sink.write("y", np.zeros((), np.int8))


def test_nothing_is_written_twice(tmp_path: Path) -> None:
    specs = {"x": TensorSpec("int8", (4,)), "y": TensorSpec("int8", ())}
    with create_sink(tmp_path / "out", "safetensors", specs) as sink:
        sink.write("x", np.zeros(2, np.int8), (slice(0, 2),))
        with pytest.raises(PortError, match=r"x: \[1:3\] meets \[0:2\], written before"):
            sink.write("x", np.zeros(2, np.int8), (slice(1, 3),))
        sink.write("y", np.zeros((), np.int8), ())
        with pytest.raises(PortError, match="y: a scalar that was written before"):
            sink.write("y", np.zeros((), np.int8))


def test_refuses_an_array_that_does_not_fit_its_region(tmp_path: Path) -> None:
    with create_sink(tmp_path / "out", "safetensors", {"x": TensorSpec("int8", (4,))}) as sink:
        with pytest.raises(ShapeError, match=r"x: int8\(3,\); the region is int8\(4,\)"):
            sink.write("x", np.zeros(3, np.int8))
        with pytest.raises(ShapeError, match=r"x: uint8\(4,\); the region is int8\(4,\)"):
            sink.write("x", np.zeros(4, np.uint8))
        with pytest.raises(KeyError, match="y"):
            sink.write("y", np.zeros(4, np.int8))


def test_refuses_what_the_format_cannot_hold(tmp_path: Path) -> None:
    spec = TensorSpec("int8", (1,))
    with pytest.raises(FormatError, match="x: complex128; safetensors can hold bool"):
        create_sink(tmp_path / "out", "safetensors", {"x": TensorSpec("complex128", (1,))})
    with pytest.raises(FormatError, match="'__metadata__' is reserved"):
        create_sink(tmp_path / "out", "safetensors", {"__metadata__": spec})
    with pytest.raises(FormatError, match="config: Object of type set"):
        create_sink(tmp_path / "out", "safetensors", {"x": spec}, config={"a": {1}})
    with pytest.raises(FormatError, match="one file has no place for a config"):
        create_sink(tmp_path / "x.safetensors", "safetensors", {"x": spec}, config={"a": 1})
    with pytest.raises(FormatError, match="dtype: 'float33'; known are bool"):
        TensorSpec("float33", (1,))
    with pytest.raises(FormatError, match="every size must be 0 or more"):
        TensorSpec("int8", (-1,))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("size", ["5 XB", "GB", 0, "-1"])
def test_refuses_a_shard_size_that_is_none(tmp_path: Path, size: int | str) -> None:
    with pytest.raises(
        FormatError, match=f"max_shard_size: {size!r}; bytes, or text such as '5GB'"
    ):
        create_sink(tmp_path / "out", "safetensors", {}, max_shard_size=size)


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_files_get_the_modes_that_the_umask_gives(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        sharded(tmp_path / "out")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o777 & ~umask
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "out").iterdir()} == {0o666 & ~umask}


def test_a_checkpoint_of_nothing_is_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "out", {})
    with open_source(tmp_path / "out") as source:
        assert not source.tensors
        assert math.fsum(source.files.values()) == 64
