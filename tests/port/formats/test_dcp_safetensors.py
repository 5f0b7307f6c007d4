"""The other form of DCP, a safetensors file, is read as what its header says it is."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.checkpoint.filesystem import SerializationFormat

from tests.port.formats.arrays import bits, same
from tests.port.formats.dcp_saves import change, save_dcp, to_torch
from xlayout.errors import FormatError
from xlayout.port.formats import open_source

X = bits("float32", (4, 3))
FILE = "__0_0.distcp"


def safetensors_file(how: Callable[[dict[str, Any]], object]) -> bytes:
    """The file of "x" in torch's other form, with its header changed."""
    header: dict[str, Any] = {
        "__metadata__": {"DCP_SHARDING_INFO": json.dumps({"x": {"saved_offsets": [0, 0]}})},
        "x": {"dtype": "F32", "shape": [4, 3], "data_offsets": [0, 48]},
    }
    how(header)
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + X.tobytes()


WRONG_HEADERS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another name": (
        lambda h: h.update(y=h.pop("x")),
        "nothing under its name; wanted TensorSpec(",
    ),
    "another shape": (
        lambda h: h["x"].update(shape=[3, 4]),
        "TensorSpec(dtype='float32', shape=(3, 4)) from [0, 0]; wanted TensorSpec(",
    ),
    "another place": (
        lambda h: h["__metadata__"].update(DCP_SHARDING_INFO='{"x": {"saved_offsets": [1, 0]}}'),
        "from [1, 0]; wanted TensorSpec(dtype='float32', shape=(4, 3)) from [0, 0]",
    ),
    "a place that is none": (
        lambda h: h["__metadata__"].update(DCP_SHARDING_INFO="{"),
        "not valid JSON",
    ),
    "an overlap": (lambda h: h.update(y=h["x"]), "an overlap with the one before"),
}


@pytest.mark.parametrize("case", WRONG_HEADERS)
def test_refuses_a_safetensors_file_of_something_else(tmp_path: Path, case: str) -> None:
    how, text = WRONG_HEADERS[case]
    path = save_dcp(
        tmp_path / "d", {"x": to_torch(X)}, serialization_format=SerializationFormat.SAFETENSORS
    )
    (path / FILE).write_bytes(safetensors_file(dict))
    with open_source(path) as source:
        assert same(source.read("x"), X)
    (path / FILE).write_bytes(safetensors_file(how))
    with (
        open_source(path) as source,
        pytest.raises(FormatError, match=f"'x': its chunk at \\[0, 0\\]: .*{re.escape(text)}"),
    ):
        source.read("x")


def test_refuses_a_length_that_is_not_the_chunks(tmp_path: Path) -> None:
    path = save_dcp(
        tmp_path / "d", {"x": to_torch(X)}, serialization_format=SerializationFormat.SAFETENSORS
    )

    def longer(metadata: Any) -> None:
        (info,) = metadata.storage_data.values()
        info.length += 1

    with (
        open_source(change(path, longer)) as source,
        pytest.raises(FormatError, match="at \\[0, 0\\]: 49 bytes in the metadata; wanted 48"),
    ):
        source.read("x")
