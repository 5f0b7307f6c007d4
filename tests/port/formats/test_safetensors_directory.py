"""A directory is what its index says it is, and nothing outside it is touched."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
import torch

from tests.port.formats.arrays import Array, bits, same, save
from tests.port.formats.test_midway import handles
from xlayout.errors import FormatError
from xlayout.port.formats import open_source


def sharded(folder: Path) -> dict[str, Array]:
    arrays = {f"layers.{i}.w": bits("bfloat16", (8, 4), i) for i in range(12)}
    save(
        folder,
        "safetensors",
        arrays,
        max_shard_size=200,
        config={"model_type": "llama", "vocab_size": 8},
    )
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


def test_files_that_a_file_system_hides_beside_others_are_none_of_them(tmp_path: Path) -> None:
    """On volumes without attributes macOS writes `._x` beside each file `x`."""
    arrays = sharded(tmp_path)
    (tmp_path / "model.safetensors.index.json").rename(tmp_path / "x.safetensors.index.json")
    for file in list(tmp_path.iterdir()):
        (tmp_path / f"._{file.name}").write_bytes(b"\0\5\x16\7")
    with open_source(tmp_path) as source:
        assert list(source.tensors) == list(arrays)


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
        save(tmp_path / "ours", "safetensors", arrays, config=source.config, max_shard_size="2KB")
    loaded, report = LlamaForCausalLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True, local_files_only=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    for name, tensor in model.state_dict().items():
        assert loaded.state_dict()[name].equal(tensor)


@pytest.mark.parametrize(
    "file",
    [
        "../x.safetensors",
        "/etc/x.safetensors",
        "a/b.safetensors",
        "..\\x.safetensors",
        "x.bin",
        "",
        f"{'é' * 122}.safetensors",
    ],
    ids=lambda file: f"{file:.20}",
)
def test_refuses_an_index_that_leaves_the_directory(tmp_path: Path, file: str) -> None:
    sharded(tmp_path / "out")
    edit_index(tmp_path / "out", **{"layers.0.w": file})
    with pytest.raises(FormatError, match=r"'layers\.0\.w': .*the plain name of a"):
        open_source(tmp_path / "out")


def test_refuses_a_link_that_leaves_the_directory(tmp_path: Path) -> None:
    """Where it leads is allowed for a folder named "snapshots", in a cache."""
    out, blobs = tmp_path / "models" / "out", tmp_path / "blobs"
    sharded(out)
    blobs.mkdir()
    shard = out / "model-00001-of-00004.safetensors"
    shard.rename(blobs / "elsewhere.safetensors")
    shard.symlink_to(blobs / "elsewhere.safetensors")
    with pytest.raises(FormatError, match=r"a link to .*elsewhere.safetensors; wanted a file in"):
        open_source(out)


def test_refuses_a_link_to_what_is_beside_the_blobs_of_a_cache(tmp_path: Path) -> None:
    out, other = tmp_path / "snapshots" / "main", tmp_path / "snapshots" / "other"
    sharded(out)
    other.mkdir()
    shard = out / "model-00001-of-00004.safetensors"
    shard.rename(other / shard.name)
    shard.symlink_to(Path("../other") / shard.name)
    text = f"{shard}: a link to {other / shard.name}; wanted a file in {out}"
    with pytest.raises(FormatError, match=f"^{re.escape(text)}$"):
        open_source(out)


def test_refuses_a_shard_that_is_a_link_to_itself(tmp_path: Path) -> None:
    sharded(tmp_path)
    shard = tmp_path / "model-00001-of-00004.safetensors"
    shard.unlink()
    shard.symlink_to(shard.name)
    with pytest.raises(
        FormatError, match=r"00001-of-00004\.safetensors: no such file; wanted a regular"
    ):
        open_source(tmp_path)


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
    assert not handles(tmp_path)
    sharded(tmp_path / "gone")
    (tmp_path / "gone" / "model-00002-of-00004.safetensors").unlink()
    with pytest.raises(FormatError, match="no such file; wanted a regular file"):
        open_source(tmp_path / "gone")


def test_a_shard_that_is_cut_short_later_is_named(tmp_path: Path) -> None:
    sharded(tmp_path)
    with open_source(tmp_path) as source:
        shard = tmp_path / "model-00002-of-00004.safetensors"
        os.truncate(shard, shard.stat().st_size - 1)
        text = rf"^{shard}: 'layers\.5\.w': no byte at \d+; the file was cut short$"
        with pytest.raises(FormatError, match=text):
            source.read("layers.5.w")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "no weight_map"),
        ('{"weight_map": []}', "no weight_map"),
        ('{"weight_map": {"x": 3}}', "'x': 3; wanted the plain name"),
        ('{"weight_map": {"x": "a.safetensors", "x": "b.safetensors"}}', "'x' stands twice"),
        ("{", "not valid JSON"),
    ],
)
def test_refuses_a_malformed_index(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(FormatError, match=message):
        open_source(tmp_path)


def test_a_pipe_that_is_named_like_an_index_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors.index.json")
    with pytest.raises(FormatError, match=r"index\.json: not a file; wanted a regular file"):
        open_source(tmp_path)


def test_refuses_a_directory_of_files_that_no_index_joins(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(tmp_path / f"{name}.safetensors", "safetensors", {name: bits("int8", (1,))})
    with pytest.raises(
        FormatError,
        match=r"a\.safetensors, b\.safetensors; wanted one file, or one index .* the shards$",
    ):
        open_source(tmp_path)
    for name in ("a", "b"):
        file = f"shard-0000{1 + (name == 'b')}-model-00001-of-00001.safetensors"
        (tmp_path / f"{name}.safetensors").rename(tmp_path / file)
    text = r"the shards; what torch's ranks saved apart, .* puts together with enable_consolidation"
    with pytest.raises(FormatError, match=text):
        open_source(tmp_path)
    (tmp_path / "none").mkdir()
    with pytest.raises(FormatError, match=r"a directory with nothing; wanted \*\.safetensors"):
        open_source(tmp_path / "none")
    with pytest.raises(FormatError, match=r"none: no safetensors file; wanted one file, or one"):
        open_source(tmp_path / "none", "safetensors")


@pytest.mark.parametrize("indexed", [False, True])
def test_of_several_the_usual_name_is_taken_and_another_one_alone(
    tmp_path: Path, indexed: bool
) -> None:
    for name in ("consolidated", "model"):
        file = f"{name}{'-1' if indexed else ''}.safetensors"
        save(tmp_path / file, "safetensors", {name: bits("int8", (1,))})
        if indexed:
            index = {"weight_map": {name: file}}
            (tmp_path / f"{name}.safetensors.index.json").write_text(json.dumps(index))
        with open_source(tmp_path) as source:
            assert list(source.files) == [file]


def test_refuses_a_single_file_beside_the_index_of_others(tmp_path: Path) -> None:
    arrays = sharded(tmp_path)
    with open_source(tmp_path) as source:
        assert source.tensors.keys() == arrays.keys()
    save(tmp_path / "one", "safetensors", arrays)
    (tmp_path / "one" / "model.safetensors").rename(tmp_path / "model.safetensors")
    text = (
        f"{tmp_path}: model.safetensors beside model.safetensors.index.json, which names other "
        "files; wanted one of the two, as readers differ in which they take"
    )
    with pytest.raises(FormatError, match=f"^{re.escape(text)}$"):
        open_source(tmp_path)
    edit_index(tmp_path, **dict.fromkeys(arrays, "model.safetensors"))
    with open_source(tmp_path) as source:
        assert list(source.files) == ["model.safetensors"]


@pytest.mark.parametrize("content", ["[]", "{", '{"a": 1, "a": 2}'])
def test_refuses_a_malformed_config(tmp_path: Path, content: str) -> None:
    sharded(tmp_path / "out")
    (tmp_path / "out" / "config.json").write_text(content)
    with pytest.raises(FormatError, match=r"config\.json: "):
        open_source(tmp_path / "out")


def test_refuses_json_that_is_absurdly_large(tmp_path: Path) -> None:
    sharded(tmp_path / "out")
    with (tmp_path / "out" / "config.json").open("r+b") as file:
        file.truncate(100_000_001)
    with pytest.raises(FormatError, match=r"config\.json: 100,000,001 bytes; 100,000,000 at most"):
        open_source(tmp_path / "out")
