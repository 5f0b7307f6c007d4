"""GGUF is read as the reference reads it, and refused where the reference would never end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xlayout.errors import FormatError
from xlayout.port.formats import TensorSpec, open_source
from xlayout.port.formats.gguf_header import parse_header

QUANTISED = [Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q8_0, Kind.TQ1_0, Kind.TQ2_0]
RAW = [Kind.Q2_K, Kind.Q3_K, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K, Kind.IQ4_NL, Kind.IQ4_XS]


def weights(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(len(shape)).standard_normal(shape, dtype=np.float32)


def write(path: Path, tensors: dict[str, Any], **metadata: Any) -> None:
    """Write a GGUF file of (array, kind) pairs with the reference writer."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in metadata.items():
        match value:
            case str():
                writer.add_string(key, value)
            case int():
                writer.add_uint32(key, value)
            case float():
                writer.add_float32(key, value)
            case list():
                writer.add_array(key, value)
    for name, (array, kind) in tensors.items():
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantised() -> dict[str, Any]:
    values = weights(24, 512)
    tensors: dict[str, Any] = {kind.name: (gguf.quantize(values, kind), kind) for kind in QUANTISED}
    for kind in RAW:
        block, width = gguf.GGML_QUANT_SIZES[kind]
        raw = np.random.default_rng(kind.value).integers(
            0, 64, (24, 512 // block * width), np.uint8
        )
        tensors[kind.name] = (raw, kind)
    return tensors


def test_every_quantised_type_is_dequantised_as_the_reference_does(tmp_path: Path) -> None:
    write(tmp_path / "x.gguf", quantised())
    with open_source(tmp_path / "x.gguf") as source:
        for tensor in gguf.GGUFReader(tmp_path / "x.gguf").tensors:
            want = gguf.dequantize(tensor.data, tensor.tensor_type)
            assert source.tensors[tensor.name] == TensorSpec("float32", (24, 512))
            assert source.read(tensor.name).tobytes() == want.tobytes()


def test_a_quantised_tensor_of_one_axis_is_read_by_regions_too(tmp_path: Path) -> None:
    values = weights(96)
    write(tmp_path / "x.gguf", {"x": (gguf.quantize(values, Kind.Q8_0), Kind.Q8_0)})
    want = gguf.dequantize(gguf.quantize(values, Kind.Q8_0), Kind.Q8_0)
    with open_source(tmp_path / "x.gguf") as source:
        assert source.tensors["x"] == TensorSpec("float32", (96,))
        assert source.read("x").tobytes() == want.tobytes()
        assert source.read("x", (slice(30, 70),)).tobytes() == want[30:70].tobytes()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.tuples(st.integers(0, 24), st.integers(0, 24)),
    columns=st.tuples(st.integers(0, 512), st.integers(0, 512)),
    kind=st.sampled_from([Kind.Q4_1, Kind.Q8_0, Kind.Q6_K]),
)
def test_a_region_is_what_slicing_would_give(
    tmp_path: Path, rows: tuple[int, int], columns: tuple[int, int], kind: Kind
) -> None:
    if not (tmp_path / "x.gguf").exists():
        write(tmp_path / "x.gguf", quantised())
    region = (slice(*sorted(rows)), slice(*sorted(columns)))
    with open_source(tmp_path / "x.gguf") as source:
        want = source.read(kind.name)[region]
        assert source.read(kind.name, region).tobytes() == want.tobytes()


def test_many_axes_are_dequantised_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values, reference = weights(3, 5, 7, 64), gguf.dequantize
    write(tmp_path / "x.gguf", {"x": (gguf.quantize(values, Kind.Q8_0), Kind.Q8_0)})
    rows: list[int] = []

    def dequantize(raw: Any, kind: Kind) -> Any:
        rows.append(len(raw))
        return reference(raw, kind)

    monkeypatch.setattr(gguf, "dequantize", dequantize)
    with open_source(tmp_path / "x.gguf") as source:
        whole = source.read("x")
        for block, each, half in ((1, 1, 1), (64, 1, 2), (500, 7, 14), (3000, 35, 70)):
            monkeypatch.setattr("xlayout.port.formats.gguf._BLOCK", block)
            region = (slice(1, 3), slice(0, 5), slice(2, 6), slice(40, 64))
            assert source.read("x", region).tobytes() == whole[region].tobytes()
            rows.clear()
            assert source.read("x").tobytes() == whole.tobytes()
            assert rows[:-1] == [each] * (len(rows) - 1)
            assert (rows[0], sum(rows)) == (each, 105)
            rows.clear()  # of the second half of each row, at least as many fit
            source.read("x", (*[slice(None)] * 3, slice(40, 64)))
            assert (rows[0], sum(rows)) == (half, 105)


def test_an_infinite_scale_makes_no_number_without_a_warning(tmp_path: Path) -> None:
    raw = np.zeros((1, 34), np.uint8)
    raw[0, :3] = 0, 0x7C, 1  # float16's infinity, times 1 and 31 times 0
    write(tmp_path / "x.gguf", {"x": (raw, Kind.Q8_0)})
    with open_source(tmp_path / "x.gguf") as source:
        values = source.read("x")[0]
    assert values[0] == np.inf
    assert np.isnan(values[1:]).all()


def test_plain_types_keep_every_bit_and_their_shape(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 256, (6, 32), np.uint8)
    plain = {
        "F32": "f4",
        "F16": "f2",
        "F64": "f8",
        "I8": "i1",
        "I16": "i2",
        "I32": "i4",
        "I64": "i8",
    }
    tensors = {name: (bits.view(dtype), Kind[name]) for name, dtype in plain.items()}
    tensors["BF16"] = (bits, Kind.BF16)
    write(tmp_path / "x.gguf", tensors)
    with open_source(tmp_path / "x.gguf") as source:
        assert {str(spec.dtype) for spec in source.tensors.values()} == {
            "float32", "float16", "float64", "int8", "int16", "int32", "int64", "bfloat16",
        }  # fmt: skip
        for name, spec in source.tensors.items():
            assert spec.shape == (6, 32 // spec.itemsize)
            assert source.read(name).tobytes() == bits.tobytes()
            assert source.read(name, (slice(2, 4), slice(1, 3))).tobytes() == (
                source.read(name)[2:4, 1:3].tobytes()
            )


LLAMA = {
    "llama.embedding_length": 16,
    "llama.block_count": 2,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.rope.dimension_count": 4,
    "llama.rope.freq_base": 10000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.context_length": 64,
    "llama.feed_forward_length": 24,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.tokens": ["token"] * 5000,
}


def test_metadata_becomes_a_config_in_hugging_face_keys(tmp_path: Path) -> None:
    embedding = {"token_embd.weight": (weights(32, 16), Kind.F32)}
    write(tmp_path / "tied.gguf", embedding, **LLAMA)
    write(
        tmp_path / "untied.gguf",
        {**embedding, "output.weight": (weights(32, 16), Kind.F32)},
        **{**LLAMA, "llama.attention.key_length": 8, "llama.attention.head_count_kv": [2, 2]},
    )
    want = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-05,
        "max_position_embeddings": 64,
        "intermediate_size": 24,
        "vocab_size": 32,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    with open_source(tmp_path / "tied.gguf") as source:
        assert source.config == want
        assert source.files == {"tied.gguf": (tmp_path / "tied.gguf").stat().st_size}
    with open_source(tmp_path / "untied.gguf") as source:
        assert source.config == want | {"tie_word_embeddings": False, "head_dim": 8}


def test_any_float_of_the_metadata_is_read(tmp_path: Path) -> None:
    """Even the largest, whose decimal form exceeds it when cut to few digits."""
    largest = float(np.finfo(np.float32).max)
    shortest = float(str(np.finfo(np.float32).max))
    metadata = {"llama.far": largest, "llama.both": [-largest, largest], "llama.not": float("nan")}
    write(tmp_path / "x.gguf", {"x": (weights(8), Kind.F32)}, **metadata)
    with (tmp_path / "x.gguf").open("rb") as file:
        header = parse_header(file, size=(tmp_path / "x.gguf").stat().st_size, name="x.gguf")
    assert header.metadata["llama.far"] == shortest
    assert header.metadata["llama.both"] == [-shortest, shortest]
    assert np.isnan(header.metadata["llama.not"])


def test_a_count_of_no_experts_says_nothing(tmp_path: Path) -> None:
    configs = []
    for number, more in enumerate(({}, {"llama.expert_count": 0, "llama.expert_used_count": 0})):
        path = tmp_path / f"{number}.gguf"
        write(path, {"x": (weights(8), Kind.F32)}, **{**LLAMA, **more})
        with open_source(path) as source:
            configs.append(source.config)
    assert configs[0] == configs[1]


@pytest.mark.parametrize("key", ["rope.freq_base", "attention.layer_norm_rms_epsilon"])
@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_refuses_a_config_of_what_is_no_number(tmp_path: Path, key: str, value: str) -> None:
    path = tmp_path / "x.gguf"
    write(path, {"x": (weights(8), Kind.F32)}, **{f"llama.{key}": float(value)})
    text = f"{path}: llama.{key}: {value}; wanted a finite number"
    with pytest.raises(FormatError, match=f"^{re.escape(text)}$"):
        open_source(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("llama.attention.head_count_kv", [2, 4], r"head_count_kv: \[2, 4\]; wanted one int"),
        ("llama.block_count", "two", r"block_count: 'two'; wanted one int"),
        ("llama.rope.freq_base", 3, r"freq_base: 3; wanted one float"),
        ("general.alignment", [32], r"general\.alignment is \[32\]; wanted a power of two"),
        ("general.alignment", 3, r"general\.alignment is 3; wanted a power of two"),
        ("general.alignment", 0, r"general\.alignment is 0; wanted a power of two"),
    ],
)
def test_refuses_metadata_of_another_kind(
    tmp_path: Path, key: str, value: Any, message: str
) -> None:
    write(tmp_path / "x.gguf", {"x": (weights(8), Kind.F32)}, **{key: value})
    with pytest.raises(FormatError, match=message):
        open_source(tmp_path / "x.gguf")


def test_bytes_that_are_no_tensors_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    write(path, {name: (weights(3, 5), Kind.F32) for name in "ab"})
    with open_source(path) as source:
        assert source.notes == ()
    raw = path.read_bytes()
    path.write_bytes(raw + bytes(1000))
    with open_source(path) as source:
        (note,) = source.notes
        behind = int(note.removesuffix(" bytes of no tensor").replace(",", ""))
        assert 1000 <= behind < 1032  # with the padding behind the last one
        assert (source.read("b") == weights(3, 5)).all()
