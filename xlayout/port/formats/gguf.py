"""GGUF as a source: plain tensors keep every bit, quantised ones are dequantised as they are read.

Shapes are in numpy's order, outermost first (GGUF writes them innermost first). A tensor stored in
F32, F16, BF16, F64 or an integer type is read as stored, a quantised one in float32, bit for bit
as the reference formulas give it. Names and the order of rows are GGUF's own: llama.cpp permutes
the q and k rows for its rope, and that is not undone here.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlayout.errors import FormatError
from xlayout.port.formats.base import (
    Bounds,
    Region,
    Source,
    TensorSpec,
    check_out,
    require,
    resolve,
)
from xlayout.port.formats.boxes import extent, volume, within
from xlayout.port.formats.file_names import require_file
from xlayout.port.formats.gguf_header import Header, Record, parse_header
from xlayout.port.formats.runs import read_box, reading
from xlayout.port.formats.system_errors import closed, named

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["MODELS", "GGUFSource", "single"]

_PLAIN = {
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F64": "float64",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
}
_BLOCK = 1 << 20  # elements dequantised at a time
_ROPE_BASE = 10_000.0  # llama.cpp's, for all architectures

_CONFIG: Mapping[str, tuple[str, type]] = {
    "attention.head_count": ("num_attention_heads", int),
    "attention.head_count_kv": ("num_key_value_heads", int),
    "attention.key_length": ("head_dim", int),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps", float),
    "block_count": ("num_hidden_layers", int),
    "context_length": ("max_position_embeddings", int),
    "embedding_length": ("hidden_size", int),
    "expert_count": ("num_experts", int),
    "expert_feed_forward_length": ("moe_intermediate_size", int),
    "expert_used_count": ("num_experts_per_tok", int),
    "feed_forward_length": ("intermediate_size", int),
    "rope.dimension_count": ("head_dim", int),
    "rope.freq_base": ("rope_theta", float),
}
_TOKENS = (("bos", "bos"), ("eos", "eos"), ("padding", "pad"))
MODELS: Mapping[tuple[str, bool], dict[str, Any]] = {  # by GGUF's name, and whether it has experts
    ("llama", False): {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    ("llama", True): {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]},
    ("qwen2", False): {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]},
    ("qwen3", False): {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]},
    ("qwen3moe", True): {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "norm_topk_prob": True,  # hard-coded in llama.cpp
    },
}


class GGUFSource(Source):
    """A GGUF file.

    Args:
        path: The file.

    Attributes:
        metadata: What the header says, under GGUF's own keys.

    Raises:
        FormatError: The file is cut short, inconsistent, or holds a type that cannot be read.
    """

    format = "gguf"

    def __init__(self, path: str | os.PathLike[str], /) -> None:
        self.path = Path(path)
        require_file(self.path)
        size = self.path.stat().st_size
        with self.path.open("rb") as file, named(self.path):
            header = parse_header(file, size=size, name=str(path))
        self._kinds = _kinds(header.records, str(path))
        self._places: dict[str, tuple[int, TensorSpec]] = {}
        tensors = {}
        for name, record in header.records.items():
            kind = self._kinds[name]
            stored = _stored(name, record, kind, str(path))
            offset = header.data + record.offset
            if offset + stored.nbytes > size:
                raise FormatError(
                    f"{path}: {name!r}: bytes {offset}:{offset + stored.nbytes}; the file has "
                    f"{size}, it may be cut short"
                )
            self._places[name] = (offset, stored)
            tensors[name] = TensorSpec(_PLAIN.get(kind.name, "float32"), record.shape)
        spare = _spare(self._places, header, size, str(path))
        self.tensors: Mapping[str, TensorSpec] = tensors
        self.metadata = header.metadata
        self.config: Mapping[str, Any] = _config(header.metadata, tensors, str(path))
        read = {f"tokenizer.ggml.{key}_token_id" for key, _ in _TOKENS}
        tokenizer = any(key.startswith("tokenizer.") and key not in read for key in self.metadata)
        notes = ["tokenizer.*"] if tokenizer else []
        if spare:
            notes.append(f"{spare:,} bytes of no tensor")
        self.notes = tuple(notes)
        self.files: Mapping[str, int] = {self.path.name: size}
        self._handle = os.open(self.path, os.O_RDONLY)

    def read(self, name: str, region: Region | None = None, out: Array | None = None) -> Array:
        """Read one region of one tensor; see `Source.read`."""
        spec = self.tensors[name]
        if self._handle < 0:
            raise closed(self.path)
        box = resolve(region, spec.shape)
        out = check_out(out, spec.dtype, box)
        offset, stored = self._places[name]
        with reading(self.path, name):
            if self._kinds[name].name in _PLAIN:
                read_box(self._handle, offset, stored, box, out)
            elif out.size:
                self._dequantize(name, box, out)
        return out

    def close(self) -> None:
        """Close the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _dequantize(self, name: str, box: Bounds, out: Array) -> None:
        import numpy as np

        gguf = require("gguf")
        kind = self._kinds[name]
        block, width = gguf.GGML_QUANT_SIZES[kind]
        offset, stored = self._places[name]
        start, stop = box[-1]
        first, last = start // block, -(-stop // block)  # whole blocks around the columns
        rows = max(_BLOCK // ((last - first) * block), 1)
        for part in _row_parts(box[:-1], rows):
            raw = np.empty((*extent(part), (last - first) * width), np.uint8)
            read_box(self._handle, offset, stored, (*part, (first * width, last * width)), raw)
            with np.errstate(invalid="ignore", over="ignore"):  # a scale may be infinity
                values = gguf.dequantize(raw.reshape(-1, raw.shape[-1]), kind)
            values = values.reshape(*raw.shape[:-1], -1)
            values = values[..., start - first * block : stop - first * block]
            out[tuple(starmap(slice, within(part, box[:-1])))] = values


def _row_parts(box: Bounds, rows: int) -> list[Bounds]:
    """Cut the outer axes of a box into parts of at most `rows` rows, uncut if they fit."""
    if not box:
        return [()]
    (start, stop), inner = box[0], box[1:]
    each = volume(inner)
    if each > rows:
        return [((i, i + 1), *rest) for i in range(start, stop) for rest in _row_parts(inner, rows)]
    step = rows // each
    return [((i, min(i + step, stop)), *inner) for i in range(start, stop, step)]


def _kinds(records: Mapping[str, Record], file: str) -> dict[str, Any]:
    """Return the type of every tensor, refusing those that we cannot dequantise."""
    np, gguf = require("numpy"), require("gguf")
    kinds = {}
    for code in {record.kind for record in records.values()}:
        try:
            kinds[code] = kind = gguf.GGMLQuantizationType(code)
            if kind.name not in _PLAIN:
                gguf.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
        except (ValueError, NotImplementedError) as error:  # unknown, or one that gguf cannot undo
            names = [name for name, record in records.items() if record.kind == code]
            raise FormatError(f"{file}: {names[0]!r}: type {code}; {error}") from error
    return {name: kinds[record.kind] for name, record in records.items()}


def _stored(name: str, record: Record, kind: Any, file: str) -> TensorSpec:
    """Return the tensor as it lies in the file: for a quantised one, rows of bytes."""
    if kind.name in _PLAIN:
        return TensorSpec(_PLAIN[kind.name], record.shape)
    block, width = require("gguf").GGML_QUANT_SIZES[kind]
    if not record.shape or record.shape[-1] % block:
        raise FormatError(
            f"{file}: {name!r}: shape {record.shape} in {kind.name}; wanted rows of a multiple of "
            f"{block} elements"
        )
    return TensorSpec("uint8", (*record.shape[:-1], record.shape[-1] // block * width))


def _spare(
    places: Mapping[str, tuple[int, TensorSpec]], header: Header, size: int, file: str
) -> int:
    """Return how many bytes after the header are neither a tensor's nor padding before one."""
    unit = header.metadata.get("general.alignment", 32)
    position, gaps = header.data, []
    for name, (offset, stored) in sorted(places.items(), key=lambda item: item[1][0]):
        if offset < position:
            raise FormatError(
                f"{file}: {name!r}: begins at byte {offset}, inside the tensor before it, which "
                f"ends at {position}"
            )
        gaps.append(offset - position)
        position = offset + stored.nbytes
    return sum(gap for gap in (*gaps, size - position) if gap >= unit)


def single(value: Any, /) -> Any:
    """Return the value that a list repeats for every layer; any other value as it is."""
    alike = isinstance(value, list) and value and value.count(value[0]) == len(value)
    return value[0] if alike else value


def _config(
    metadata: Mapping[str, Any], tensors: Mapping[str, TensorSpec], file: str
) -> dict[str, Any]:
    """Return the model's config in Hugging Face keys, as far as GGUF's metadata contains it.

    Raises:
        FormatError: A value has the wrong type, is not a number, or differs from layer to layer.
    """
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str):
        return {}
    experts = metadata.get(f"{arch}.expert_count") not in (None, 0)
    config = dict(MODELS.get((arch, experts), {"model_type": arch}))
    keys = {f"{arch}.{key}": target for key, target in _CONFIG.items()}
    keys |= {f"tokenizer.ggml.{key}_token_id": (f"{name}_token_id", int) for key, name in _TOKENS}
    for key, (target, kind) in keys.items():
        if key not in metadata or (not experts and target.startswith("num_experts")):
            continue
        value = single(metadata[key])
        if type(value) is not kind:
            raise FormatError(f"{file}: {key}: {value!r:.80}; wanted one {kind.__name__}")
        if isinstance(value, float) and not math.isfinite(value):
            raise FormatError(f"{file}: {key}: {value!r}; wanted a finite number")
        config.setdefault(target, value)
    config.setdefault("rope_theta", _ROPE_BASE)  # transformers has other defaults for some
    if config["model_type"] == "mixtral":  # which has another key for it
        config["num_local_experts"] = config.pop("num_experts")
    if "num_attention_heads" in config:
        config.setdefault("num_key_value_heads", config["num_attention_heads"])
    if (embedding := tensors.get("token_embd.weight")) and len(embedding.shape) == 2:
        config["vocab_size"] = embedding.shape[0]
        config["tie_word_embeddings"] = "output.weight" not in tensors
    return config
