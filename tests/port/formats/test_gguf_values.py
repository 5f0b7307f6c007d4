"""Every kind of value in a GGUF header is read for what it is, up to the lengths that are kept."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest

from tests.port.formats.test_gguf_header import head, record, text
from xlayout.errors import FormatError
from xlayout.port.formats.gguf_header import Header, parse_header

SCALARS: dict[int, tuple[str, Any]] = {
    0: ("B", 200),
    1: ("b", -100),
    2: ("H", 60_000),
    3: ("h", -30_000),
    4: ("I", 4_000_000_000),
    5: ("i", -2_000_000_000),
    6: ("f", 1e-05),
    7: ("?", True),
    10: ("Q", 2**63 + 1),
    11: ("q", -(2**62) - 1),
    12: ("d", 1e-300),
}


def parsed(raw: bytes, size: int | None = None) -> Header:
    return parse_header(io.BytesIO(raw), size=len(raw) if size is None else size, name="x.gguf")


def value_of(kind: int, raw: bytes) -> Any:
    header = parsed(head(pairs=1) + text("k") + struct.pack("<I", kind) + raw)
    assert list(header.metadata) == ["k"]
    return header.metadata["k"]


@pytest.mark.parametrize("kind", SCALARS)
@pytest.mark.parametrize("count", [None, 0, 4096, 4097])
def test_numbers_are_read_by_their_type(kind: int, count: int | None) -> None:
    code, value = SCALARS[kind]
    raw = struct.pack(f"<{code}", value)
    if count is None:
        assert value_of(kind, raw) == value
        assert type(value_of(kind, raw)) is type(value)
    else:
        found = value_of(9, struct.pack("<IQ", kind, count) + raw * count)
        assert found == (None if count == 4097 else [value] * count)


@pytest.mark.parametrize("count", [0, 4096, 4097])
def test_texts_are_read_in_arrays_of_so_many(count: int) -> None:
    raw = struct.pack("<IQ", 8, count) + (struct.pack("<Q", 2) + "ä".encode()) * count
    assert value_of(9, raw) == (None if count == 4097 else ["ä"] * count)


def test_a_record_is_read_up_to_eight_axes_and_less_than_2_to_the_60() -> None:
    raw = head(tensors=2) + record("a", tuple(range(1, 9)), kind=2, offset=64)
    raw += record("b", (2**30, 2**30 - 1), kind=0)
    found = parsed(raw + bytes(64)).records
    assert found["a"].shape == (8, 7, 6, 5, 4, 3, 2, 1)
    assert (found["a"].kind, found["a"].offset) == (2, 64)
    assert found["b"].shape == (2**30 - 1, 2**30)
    with pytest.raises(FormatError, match=r"fewer than 2\^60 elements"):
        parsed(head(tensors=1) + record("b", (2**30, 2**30)))


@pytest.mark.parametrize(("said", "wanted"), [(None, 32), (1, 1), (8, 8), (64, 64)])
def test_data_begins_at_the_next_multiple_of_the_alignment(said: int | None, wanted: int) -> None:
    pairs = [] if said is None else [text("general.alignment") + struct.pack("<II", 4, said)]
    raw = head(pairs=len(pairs)) + b"".join(pairs)
    start = next(n for n in range(len(raw), len(raw) + 64) if n % wanted == 0)
    assert parsed(raw) == Header({} if said is None else {"general.alignment": said}, {}, start)


def test_a_file_that_shrinks_meanwhile_is_refused() -> None:
    with pytest.raises(FormatError, match=r"x\.gguf: byte 8: ends early; wanted a file that"):
        parsed(b"GGUF\3", size=100)
