"""A header is believed only where the file bears it out; anything else is a FormatError."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xlayout.errors import FormatError
from xlayout.port.formats import open_source

GOOD = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
}


def file_of(header: bytes | dict[str, Any], data: int = 32, length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + bytes(data)


def outcome_of(path: Path) -> int | str:
    """How many bytes of tensors can be read, or why the file is refused."""
    try:
        with open_source(path) as source:
            return sum(source.read(name).nbytes for name in source.tensors)
    except FormatError as error:
        return str(error)


def but(name: str = "a", **changes: Any) -> dict[str, Any]:
    return {**GOOD, name: {**GOOD[name], **changes}}


def without(key: str) -> dict[str, Any]:
    return {**GOOD, "a": {k: v for k, v in GOOD["a"].items() if k != key}}


def rows(start: int, stop: int) -> dict[str, Any]:
    return but("b", data_offsets=[start, stop])


HOSTILE = {
    "empty file": (
        b"",
        "a file of 0 bytes; wanted all of a safetensors file, so fetch or save it again$",
    ),
    "length cut short": (b"\x02\x00\x00\x00\x00\x00\x00", "a file of 7 bytes; wanted all of a saf"),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
        "a pointer of Git LFS; wanted the file that `git lfs pull` puts in its place$",
    ),
    "length of 2^62": (
        file_of(GOOD, length=2**62),
        "a header of 4611686018427387904 bytes in a file of 169; wanted 161 at most, so it is no "
        "safetensors file or was cut short$",
    ),
    "length of 2^64-1": (file_of(GOOD, length=2**64 - 1), "header of 18446744073709551615"),
    "length beyond the file": (file_of(GOOD, length=10_000), "header of 10000 bytes"),
    "no header": (file_of(b"", 0), "wanted '{'"),
    "an array": (file_of(b"[]", 0), "wanted '{'"),
    "space before": (file_of(b" {}", 0), "wanted '{'"),
    "not UTF-8": (file_of(b'{"\xff": 1}', 0), "not valid JSON"),
    "lone surrogate": (file_of(b'{"\\ud800": {}}', 0), "not valid JSON"),
    "half an object": (file_of(b'{"a": {"dtype"', 0), "not valid JSON"),
    "two objects": (file_of(b"{}{}", 0), "not valid JSON"),
    "nested too deep": (file_of(b'{"a":' + b"[" * 100_000, 0), "not valid JSON"),
    "digits without end": (file_of(b'{"a":' + b"9" * 5000 + b"}", 0), "not valid JSON"),
    "tensor twice": (
        file_of(b'{"a":' + json.dumps(GOOD["a"]).encode() + b',"a":{}}', 24),
        "key 'a' stands twice",
    ),
    "dtype twice": (file_of(b'{"a":{"dtype":"F32","dtype":"I8"}}', 0), "key 'dtype' stands twice"),
    "tensor is a number": (
        file_of({**GOOD, "a": 3}),
        "'a': 3; wanted an object of dtype, shape and",
    ),
    "no dtype": (file_of(without("dtype")), "an object of dtype, shape and data_offsets"),
    "no shape": (file_of(without("shape")), "an object of dtype, shape and data_offsets"),
    "no offsets": (file_of(without("data_offsets")), "an object of dtype, shape and"),
    "one key more": (file_of(but(stride=[1])), "an object of dtype, shape and data_offsets"),
    "unknown dtype": (file_of(but(dtype="F33")), "dtype 'F33'; wanted one of BOOL"),
    "sub-byte dtype": (file_of(but(dtype="F4")), "dtype 'F4'; wanted one of BOOL"),
    "dtype is a list": (file_of(but(dtype=["F32"])), r"dtype \['F32'\]; wanted one of BOOL"),
    "shape is text": (file_of(but(shape="23")), "shape '23'; wanted a list of integers"),
    "shape is a number": (file_of(but(shape=6)), "shape 6; wanted a list of integers"),
    "negative size": (file_of(but(shape=[-2, -3])), r"shape \[-2, -3\]; wanted a list"),
    "float size": (file_of(but(shape=[2.0, 3])), r"shape \[2.0, 3\]; wanted a list"),
    "true as a size": (file_of(but(shape=[True, 6])), r"shape \[True, 6\]; wanted a list"),
    "too many axes": (file_of(but(shape=[1] * 64 + [6])), "wanted 64 axes at most"),
    "size overflows": (file_of(but(shape=[2**62, 2**62])), "and less than 2"),
    "zero hides an overflow": (file_of(but(shape=[0, 2**62, 9])), "and less than 2"),
    "negative offset": (
        file_of(but(data_offsets=[-24, 0])),
        r"data_offsets \[-24, 0\]; wanted a list",
    ),
    "float offset": (
        file_of(but(data_offsets=[0, 24.0])),
        r"data_offsets \[0, 24.0\]; wanted a list",
    ),
    "one offset": (file_of(but(data_offsets=[24])), r"data_offsets \[24\]; wanted a list of two"),
    "offsets reversed": (file_of(rows(32, 24)), "bytes 32:24; wanted a span of 8 for BF16"),
    "shape is not the span": (
        file_of(but(shape=[3, 3])),
        "bytes 0:24; wanted a span of 36 for F32",
    ),
    "dtype is not the span": (file_of(but(dtype="F64")), "bytes 0:24; wanted a span of 48 for F64"),
    "overlap": (file_of(rows(20, 28), 28), "'b': begins at byte 20, an overlap.* byte 24"),
    "hole": (file_of(rows(28, 36), 36), "'b': begins at byte 28, a hole before it; wanted byte 24"),
    "hole at the front": (
        file_of({"a": {"dtype": "I8", "shape": [4], "data_offsets": [4, 8]}}, 8),
        "'a': begins at byte 4, a hole before it; wanted byte 0",
    ),
    "data cut short": (file_of(GOOD, 31), "'b': ends at byte 32; the data has 31"),
    "bytes left over": (file_of(GOOD, 33), "33 bytes of data, of which the tensors cover 32"),
    "no tensor but data": (file_of({}, 1), "1 bytes of data, of which the tensors cover 0"),
    "metadata is a list": (file_of({**GOOD, "__metadata__": ["x"]}), "__metadata__: .*text under"),
    "metadata holds a number": (
        file_of({**GOOD, "__metadata__": {"epoch": 3}}),
        "__metadata__: {'epoch': 3}; wanted text under every key",
    ),
    "metadata is null": (
        file_of({**GOOD, "__metadata__": None}),
        "__metadata__: None; wanted text",
    ),
}


@pytest.mark.parametrize("fault", HOSTILE)
def test_refuses_a_hostile_header_and_names_the_file(tmp_path: Path, fault: str) -> None:
    content, message = HOSTILE[fault]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message) as caught:
        open_source(path)
    assert str(path) in str(caught.value)


def test_a_header_of_more_than_the_format_allows_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes((100_000_001).to_bytes(8, "little") + b"{}")
    os.truncate(path, 200_000_000)  # a hole, so it takes no space
    text = r"a header of 100000001 bytes in a file of 200000000; wanted 100000000 at most, so it "
    with pytest.raises(FormatError, match=text):
        open_source(path)


def test_reads_what_the_hostile_headers_are_made_of(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of(GOOD))
    with open_source(path) as source:
        assert {name: spec.shape for name, spec in source.tensors.items()} == {
            "a": (2, 3),
            "b": (4,),
        }


def test_a_tensor_of_no_elements_may_lie_anywhere_between_others(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    for at in (0, 24, 32):
        path.write_bytes(
            file_of({"z": {"dtype": "U8", "shape": [0], "data_offsets": [at, at]}} | GOOD)
        )
        with open_source(path) as source:
            assert source.read("z").shape == (0,)
            assert list(source.tensors) == ["z", "a", "b"]


def test_a_name_that_looks_like_a_path_is_only_a_name(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(
        file_of({"../../etc/x": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}}, 1)
    )
    with open_source(path) as source:
        assert source.read("../../etc/x").shape == ()


@pytest.mark.parametrize("length", range(8 + len(json.dumps(GOOD)) + 32))
def test_refuses_a_file_cut_at_any_byte(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of(GOOD)[:length])
    with pytest.raises(FormatError, match=r"model\.safetensors"):
        open_source(path)


def test_a_file_that_shrinks_after_opening_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of(GOOD))
    with open_source(path) as source:
        os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(FormatError, match=r"'b': no byte at .*cut short"):
            source.read("b")


def test_refuses_what_is_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="wanted a regular file"):
        open_source(tmp_path / "absent.safetensors", "safetensors")
    with pytest.raises(FormatError, match="nothing is there"):
        open_source(tmp_path / "absent.safetensors")


scalars = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["F32", "BF16", "U8", "F4", 0, 1, 2, 3, 4, 8, -1, 2**31, 2**62, 2**64])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
entries = values | st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "U8", "BOOL"]) | values,
        "shape": st.lists(st.integers(0, 4), max_size=3) | values,
        "data_offsets": st.tuples(st.integers(0, 64), st.integers(0, 64)) | values,
    }
)
headers = st.dictionaries(
    st.sampled_from(["a", "b", "__metadata__"]) | st.text(max_size=4), entries, max_size=4
).map(lambda header: json.dumps(header).encode())


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    header=headers | st.binary(max_size=64),
    length=st.none() | st.integers(0, 2**64 - 1),
    data=st.integers(0, 64),
)
def test_any_header_is_read_in_full_or_refused(
    tmp_path: Path, header: bytes, length: int | None, data: int
) -> None:
    path = tmp_path / "fuzz.safetensors"
    path.write_bytes(file_of(header, data, length))
    tracemalloc.start()
    outcome = outcome_of(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outcome == data or str(path) in str(outcome)
    assert peak < 1 << 20


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 8 + len(json.dumps(GOOD)) + 31), byte=st.integers(0, 255))
def test_any_byte_changed_is_read_or_refused(tmp_path: Path, at: int, byte: int) -> None:
    path = tmp_path / "flip.safetensors"
    content = bytearray(file_of(GOOD))
    content[at] = byte
    path.write_bytes(content)
    outcome = outcome_of(path)
    assert outcome == 32 or str(path) in str(outcome)
