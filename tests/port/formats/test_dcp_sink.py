"""What we write as DCP is what torch loads, bit for bit, however it was filled."""

from __future__ import annotations

import io
import subprocess
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from tests.port.formats.arrays import Array, bits, everything, same, save
from tests.port.formats.dcp_saves import load, save_dcp, to_torch
from tests.port.formats.programs import script
from xlayout.errors import FormatError, PortError
from xlayout.port.formats import TensorSpec, create_sink, open_source
from xlayout.port.formats.dcp_metadata import parse_metadata
from xlayout.port.formats.torch_archive import read_archive
from xlayout.port.formats.torch_archive_write import render_archive


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def equal(loaded: dict[str, torch.Tensor], arrays: dict[str, Array]) -> bool:
    return loaded.keys() == arrays.keys() and all(
        str(loaded[name].dtype) == f"torch.{array.dtype}"
        and tuple(loaded[name].shape) == array.shape
        and raw(loaded[name]) == array.tobytes()
        for name, array in arrays.items()
    )


@pytest.mark.parametrize("limit", ["5GB", 200, 1])
def test_torch_loads_every_dtype_that_we_write(tmp_path: Path, limit: int | str) -> None:
    arrays = everything()
    save(tmp_path / "d", "dcp", arrays, max_shard_size=limit)
    assert equal(load(tmp_path / "d", arrays), arrays)
    with open_source(tmp_path / "d") as source:
        assert all(same(source.read(name), array) for name, array in arrays.items())


def test_torch_makes_one_file_of_it(tmp_path: Path) -> None:
    arrays = everything()
    save(tmp_path / "d", "dcp", arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp_to_torch_save(tmp_path / "d", tmp_path / "x.pt")
    assert equal(torch.load(tmp_path / "x.pt"), arrays)


def test_the_metadata_is_what_torch_would_have_saved(tmp_path: Path) -> None:
    arrays = {
        "b.10": bits("int8", (3, 2)),
        "b.9": bits("float8_e5m2", ()),
        "é": bits("int64", (2,)),
    }
    save(tmp_path / "ours", "dcp", arrays)
    save_dcp(tmp_path / "torchs", {name: to_torch(array) for name, array in arrays.items()})
    ours, torchs = (
        torch.distributed.checkpoint.FileSystemReader(tmp_path / name).read_metadata()
        for name in ("ours", "torchs")
    )
    for entry in torchs.state_dict_metadata.values():
        vars(entry.properties).pop("strides", None)  # of torch 2.15; those before read none
    assert ours.state_dict_metadata == torchs.state_dict_metadata
    assert ours.planner_data == torchs.planner_data
    assert ours.storage_data.keys() == torchs.storage_data.keys()
    assert ours.version == torchs.version
    assert {type(value) for value in ours.storage_data.values()} == {
        type(value) for value in torchs.storage_data.values()
    }


def test_archives_are_ones_that_zip_tools_read_and_their_bytes_are_aligned(tmp_path: Path) -> None:
    arrays = everything()
    save(tmp_path / "d", "dcp", arrays)
    content = (tmp_path / "d" / "__0_0.distcp").read_bytes()
    metadata = parse_metadata((tmp_path / "d" / ".metadata").read_bytes(), where="x")
    for name, entry in metadata.tensors.items():
        for chunk in entry.chunks:
            item = chunk.item
            archive = content[item.offset : item.offset + item.length]
            with zipfile.ZipFile(io.BytesIO(archive)) as opened:
                assert {i.compress_type for i in opened.infolist()} == {zipfile.ZIP_STORED}
                assert opened.read("archive/byteorder") == b"little"
                data = opened.getinfo("archive/data/0")
                assert data.CRC == 0  # as torch leaves it if it computes no sums
            front = len(render_archive(entry.spec)[0])
            assert (item.offset + front) % 64 == 0
            assert archive[front:].startswith(arrays[name].tobytes())


def test_equal_weights_make_equal_files(tmp_path: Path) -> None:
    arrays = everything()
    save(tmp_path / "one", "dcp", arrays)
    save(tmp_path / "two", "dcp", dict(reversed(arrays.items())))
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == [".metadata", "__0_0.distcp"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


@pytest.mark.parametrize(
    ("limit", "files"), [(16, [["a.1"], ["a.2", "a.10"]]), ("1kB", [["a.1", "a.2", "a.10"]])]
)
def test_tensors_are_dealt_to_files(
    tmp_path: Path, limit: int | str, files: list[list[str]]
) -> None:
    arrays = {name: bits("int8", (n,)) for name, n in (("a.10", 8), ("a.2", 8), ("a.1", 40))}
    save(tmp_path / "d", "dcp", arrays, max_shard_size=limit, config={"a": 1})
    metadata = parse_metadata((tmp_path / "d" / ".metadata").read_bytes(), where="x")
    dealt: dict[str, list[str]] = {}
    for name, entry in metadata.tensors.items():
        dealt.setdefault(entry.chunks[0].item.file, []).append(name)
    assert dealt == {f"__0_{number}.distcp": group for number, group in enumerate(files)}
    with open_source(tmp_path / "d") as source:
        assert source.config == {"a": 1}
        assert source.files.keys() == {".metadata", *dealt}


def test_a_checkpoint_of_nothing_is_a_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "d", "dcp", {})
    with open_source(tmp_path / "d") as source:
        assert not source.tensors
    assert [path.name for path in (tmp_path / "d").iterdir()] == [".metadata"]


def test_refuses_what_cannot_be_stored(tmp_path: Path) -> None:
    spec = TensorSpec("int8", (1,))
    with pytest.raises(FormatError, match=r"'a\\udc80': surrogates not allowed; wanted a text"):
        create_sink(tmp_path / "d", "dcp", {"a\udc80": spec})
    with pytest.raises(FormatError, match="config: Object of type set"):
        create_sink(tmp_path / "d", "dcp", {"x": spec}, config={"a": {1}})
    with pytest.raises(PortError, match="max_shard_size: 'GB'; wanted bytes"):
        create_sink(tmp_path / "d", "dcp", {"x": spec}, max_shard_size="GB")
    with create_sink(tmp_path / "d", "dcp", {"x": spec, "y": TensorSpec("int8", (2,))}) as sink:
        sink.write("x", np.zeros(1, np.int8))
        with pytest.raises(PortError, match="1 tensors are not fully written: y lacks 2 elements"):
            sink.commit()
    assert not list(tmp_path.iterdir())


def test_writing_imports_no_torch(tmp_path: Path) -> None:
    program = script(
        """
        with create_sink(sys.argv[1], "dcp", {"x": TensorSpec("int8", (3,))}) as sink:
            sink.write("x", np.arange(3, dtype=np.int8))
            sink.commit()
        print("torch" in sys.modules)
        """,
        tmp_path / "d",
    )
    assert subprocess.run(program, capture_output=True, text=True).stdout == "False\n"
    x = np.arange(3, dtype=np.int8)
    assert equal(load(tmp_path / "d", {"x": x}), {"x": x})


def test_numbers_that_32_bits_do_not_hold_are_read_by_torch(tmp_path: Path) -> None:
    """With a tensor of 5 GiB that is never written: the file has holes instead."""
    spec = TensorSpec("int8", (5 << 30,))
    front, back = render_archive(spec)
    path = tmp_path / "archive"
    with path.open("wb") as file:
        file.write(front)
        file.seek(len(front) + spec.nbytes)
        file.write(back)
    length = path.stat().st_size
    reader = torch._C.PyTorchFileReader(str(path))
    assert reader.get_record_offset("data/0") == len(front)
    with zipfile.ZipFile(path) as opened:
        assert opened.getinfo("archive/data/0").file_size == spec.nbytes
    with path.open("rb") as file:
        record = read_archive(file.fileno(), 0, length, where="x")["data/0"]
    assert (record.offset, record.size) == (len(front), spec.nbytes)
