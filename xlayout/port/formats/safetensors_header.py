"""The safetensors header, treated as hostile: nothing may contradict the file's size.

The format is 8 bytes of little-endian length, that many bytes of JSON, then the tensors' bytes.
Beyond what the reference implementation checks, a repeated name or key is refused, because two
readers could then see two different models in one file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from xlayout.errors import FormatError
from xlayout.port.formats.base import TensorSpec
from xlayout.port.formats.strict_json import parse_json

__all__ = ["CODES", "MAX_HEADER", "STANDARD", "Entry", "parse_header", "render_header"]

MAX_HEADER = 100_000_000
"""The most bytes of JSON that the format allows."""

STANDARD: Mapping[str, str] = {"format": "pt"}
"""The metadata that we write, because some readers ask for it."""

CODES: Mapping[str, str] = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
"""The format's dtype codes, and our names for them; sub-byte dtypes are not supported."""

_ALIGNMENT = 64  # a cache line, so that a mapped tensor is aligned for every instruction set


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor, and the byte in the file where it begins."""

    spec: TensorSpec
    offset: int


def parse_header(
    raw: bytes, /, *, data_size: int, file: str
) -> tuple[dict[str, Entry], dict[str, str]]:
    """Return the tensors and the metadata of a header, checked against the data that follows it.

    Args:
        raw: The JSON, without the 8 bytes of length.
        data_size: Bytes of the file after the header.
        file: The name to use in errors.

    Raises:
        FormatError: A name, dtype, shape or offset is malformed, or the tensors do not tile the
            data exactly: without holes, overlaps or a remainder.
    """
    if raw[:1] != b"{":
        raise FormatError(f"{file}: the header begins with {raw[:1]!r}; wanted '{{'")
    table = parse_json(raw, file=file)
    metadata = table.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FormatError(f"{file}: __metadata__: {metadata!r:.80}; wanted text under every key")
    spans = {name: _span(entry, where=f"{file}: {name!r:.200}") for name, entry in table.items()}
    tensors = {}
    position = 0
    for name, (spec, start, stop) in sorted(spans.items(), key=lambda item: item[1][1:]):
        if start != position:
            fault = "a hole before it" if start > position else "an overlap with the one before"
            raise FormatError(
                f"{file}: {name!r}: begins at byte {start}, {fault}; wanted byte {position}"
            )
        if stop > data_size:
            raise FormatError(
                f"{file}: {name!r}: ends at byte {stop}; the data has {data_size}, "
                "the file may be cut short"
            )
        tensors[name] = Entry(spec, 8 + len(raw) + start)
        position = stop
    if position != data_size:
        raise FormatError(
            f"{file}: {data_size} bytes of data, of which the tensors cover "
            f"{position}; all must be covered"
        )
    return {name: tensors[name] for name in table}, metadata


def render_header(entries: Mapping[str, tuple[TensorSpec, int]], /) -> bytes:
    """Return the length and JSON for tensors at offsets into the data, padded to a cache line.

    Raises:
        FormatError: A dtype or name cannot be stored, or the header would be too long.

    >>> render_header({"x": (TensorSpec("int8", (2,)), 0)})[8:75]
    b'{"__metadata__":{"format":"pt"},"x":{"dtype":"I8","shape":[2],"data'
    """
    codes = {name: code for code, name in CODES.items()}
    table: dict[str, Any] = {"__metadata__": dict(STANDARD)}
    for name, (spec, offset) in entries.items():
        if name == "__metadata__":
            raise FormatError("name: '__metadata__' is reserved in safetensors; rename the tensor")
        if spec.dtype not in codes:
            raise FormatError(f"{name}: {spec.dtype}; safetensors can hold {', '.join(codes)}")
        table[name] = {
            "dtype": codes[spec.dtype],
            "shape": list(spec.shape),
            "data_offsets": [offset, offset + spec.nbytes],
        }
    raw = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    raw += b" " * (-(8 + len(raw)) % _ALIGNMENT)
    if len(raw) > MAX_HEADER:
        raise FormatError(f"header: {len(raw):,} bytes; {MAX_HEADER:,} at most, so more files")
    return len(raw).to_bytes(8, "little") + raw


def _span(entry: Any, *, where: str) -> tuple[TensorSpec, int, int]:
    def refuse(what: str, wanted: str) -> NoReturn:
        raise FormatError(f"{where}: {what}; wanted {wanted}")

    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        refuse(f"{entry!r:.80}", "an object of dtype, shape and data_offsets")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(code, str) or code not in CODES:
        refuse(f"dtype {code!r:.80}", f"one of {', '.join(CODES)}")
    if not _counts(shape):
        refuse(f"shape {shape!r:.80}", "a list of integers from 0")
    if not _counts(offsets) or len(offsets) != 2:
        refuse(f"data_offsets {offsets!r:.80}", "a list of two integers from 0")
    spec = TensorSpec(CODES[code], tuple(shape))
    if not spec.fits:
        refuse(f"shape {shape!r:.80}", "64 axes at most, and less than 2^63 bytes")
    start, stop = offsets
    if stop - start != spec.nbytes:
        refuse(f"bytes {start}:{stop}", f"a span of {spec.nbytes} for {code} of shape {shape}")
    return spec, start, stop


def _counts(value: Any) -> bool:
    """Whether a value is a list of integers from 0."""
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
