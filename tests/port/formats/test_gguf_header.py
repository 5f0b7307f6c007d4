"""A GGUF header is believed only where the file bears it out."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.port.formats.test_gguf import LLAMA, weights, write
from xlayout.errors import FormatError
from xlayout.port.formats import open_source


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def head(tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, pairs)


def record(name: str = "x", shape: tuple[int, ...] = (8,), kind: int = 0, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


def padded(header: bytes, data: int = 64) -> bytes:
    return header + bytes(-len(header) % 32 + data)


HOSTILE = {
    "magic": (b"GGML" + bytes(40), "byte 4: begins with b'GGML'; wanted b'GGUF'"),
    "version": (head(version=4), r"version 4; wanted one of \(2, 3\), little-endian"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "a big-endian file; wanted what"),
    "2^64-1 pairs": (head(pairs=2**64 - 1), "asks for 8 bytes with 0 left"),
    "2^64-1 tensors": (head(tensors=2**64 - 1), "asks for 8 bytes with 0 left"),
    "string of 2^62": (head(pairs=1) + struct.pack("<Q", 2**62), "asks for 4611686018427387904"),
    "array of 2^62": (
        head(pairs=1) + text("k") + struct.pack("<IIQ", 9, 0, 2**62),
        "asks for 4611686018427387904 bytes with 0 left",
    ),
    "array of 2^62 strings": (
        head(pairs=1) + text("k") + struct.pack("<IIQ", 9, 8, 2**62),
        "asks for 8 bytes with 0 left",
    ),
    "array of arrays": (
        head(pairs=1) + text("k") + struct.pack("<IIQ", 9, 9, 1),
        "value type 9; wanted a scalar, a string or an array of either",
    ),
    "value type": (
        head(pairs=1) + text("k") + struct.pack("<I", 13),
        "value type 13; wanted a scalar",
    ),
    "no value": (
        head(pairs=2)
        + (text("general.architecture") + struct.pack("<I", 8) + text("llama"))
        + (text("llama.block_count") + struct.pack("<IIQ", 9, 4, 0)),
        r"llama\.block_count: \[\]; wanted one int",
    ),
    "key twice": (
        head(pairs=2) + 2 * (text("k") + struct.pack("<IB", 0, 1)),
        "key 'k' stands twice; wanted each key once",
    ),
    "not UTF-8": (head(pairs=1) + struct.pack("<Q", 1) + b"\xff", "text that is not UTF-8"),
    "tensor twice": (
        padded(head(tensors=2) + 2 * record()),
        "tensor 'x' stands twice; wanted each tensor once",
    ),
    "axes": (padded(head(tensors=1) + record(shape=(1,) * 9)), "'x' has 9 axes; wanted at most 8"),
    "elements": (padded(head(tensors=1) + record(shape=(2**40, 2**40))), "fewer than 2.60"),
    "type": (padded(head(tensors=1) + record(kind=999)), "'x': type 999; 999 is not a valid"),
    "type without a formula": (
        padded(head(tensors=1) + record(shape=(256,), kind=Kind.Q8_K)),
        "'x': type 15; .*Q8_K",
    ),
    "rows of half a block": (
        padded(head(tensors=1) + record(shape=(48,), kind=Kind.Q8_0)),
        r"shape \(48,\) in Q8_0; wanted rows of a multiple of 32",
    ),
    "a number in blocks": (
        padded(head(tensors=1) + record(shape=(), kind=Kind.Q8_0)),
        r"shape \(\) in Q8_0; wanted rows of a multiple of 32",
    ),
    "data beyond the file": (
        padded(head(tensors=1) + record(offset=64)),
        "'x': bytes 128:160; the file has 128, it may be cut short",
    ),
    "offset of 2^63": (padded(head(tensors=1) + record(offset=2**63)), "'x': bytes 92233720"),
    "overlap": (
        padded(head(tensors=2) + record("x") + record("y", offset=16)),
        "'y': begins at byte .*, inside the tensor before it",
    ),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_refuses_a_hostile_header_and_names_the_file(tmp_path: Path, fault: str) -> None:
    content, message = HOSTILE[fault]
    path = tmp_path / "x.gguf"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        open_source(path, "gguf")
    assert str(path) in str(caught.value)


def test_refuses_a_file_cut_at_any_byte(tmp_path: Path) -> None:
    write(tmp_path / "x.gguf", {"x": (weights(8), Kind.F32)}, **{"llama.block_count": 2})
    content = (tmp_path / "x.gguf").read_bytes()
    for length in range(len(content)):
        (tmp_path / "cut.gguf").write_bytes(content[:length])
        with pytest.raises(FormatError, match=r"cut\.gguf"):
            open_source(tmp_path / "cut.gguf", "gguf")


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 400), byte=st.integers(0, 255))
def test_any_byte_changed_is_read_or_refused(tmp_path: Path, at: int, byte: int) -> None:
    path = tmp_path / "x.gguf"
    if not path.exists():
        q8 = gguf.quantize(weights(2, 32), Kind.Q8_0)
        write(path, {"x": (q8, Kind.Q8_0), "y": (weights(8), Kind.F32)}, **LLAMA)
    content = bytearray(path.read_bytes())
    content[at] = byte
    (tmp_path / "flip.gguf").write_bytes(content)
    with np.errstate(all="ignore"):
        assert read_or_refused(tmp_path / "flip.gguf")


def read_or_refused(path: Path) -> bool:
    try:
        with open_source(path, "gguf") as source:
            return all(source.read(n).shape == spec.shape for n, spec in source.tensors.items())
    except FormatError as error:
        return str(path) in str(error)


def test_a_file_that_shrinks_after_opening_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "x.gguf", {"x": (gguf.quantize(weights(4, 32), Kind.Q8_0), Kind.Q8_0)})
    with open_source(tmp_path / "x.gguf") as source:
        os.truncate(tmp_path / "x.gguf", (tmp_path / "x.gguf").stat().st_size - 100)
        with pytest.raises(FormatError, match=r"'x': no byte at .* cut short"):
            source.read("x")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file; wanted a regular file"):
        open_source(tmp_path / "x.gguf", "gguf")


def test_a_long_text_is_passed_over(tmp_path: Path) -> None:
    said = {"llama.long": "x" * (1 << 20) + "y", "llama.short": "x" * (1 << 20)}
    write(tmp_path / "x.gguf", {"x": (weights(8), Kind.F32)}, **said)
    with open_source(tmp_path / "x.gguf") as source:
        assert source.metadata["llama.long"] is None
        assert source.metadata["llama.short"] == "x" * (1 << 20)
        assert source.read("x").tobytes() == weights(8).tobytes()


def test_a_header_does_not_fill_the_memory(tmp_path: Path) -> None:
    """The file is sparse, so its names may be of any length."""
    path = tmp_path / "x.gguf"
    for content in (
        head(pairs=1),
        head(tensors=1),
        head(pairs=1) + text("k") + struct.pack("<IIQ", 9, 8, 1),
    ):
        path.write_bytes(content + struct.pack("<Q", 64 << 20))
        os.truncate(path, 80 << 20)
        with pytest.raises(
            FormatError, match="more of a header than fits; wanted at most 67,108,8"
        ):
            open_source(path)
