"""We read what Orbax saves, and refuse what is broken."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from tests.port.formats.arrays import bits, same, save
from tests.port.formats.test_maxtext import all_same, contents, model, nested
from xlayout.errors import FormatError, ShapeError
from xlayout.port.formats import TensorSpec, create_sink, open_source
from xlayout.port.formats.maxtext import MaxTextSource
from xlayout.port.formats.tensorstore_specs import write_spec


@pytest.mark.parametrize("ocdbt", [True, False])
@pytest.mark.parametrize("zarr3", [True, False])
def test_we_read_what_orbax_saves(tmp_path: Path, ocdbt: bool, zarr3: bool) -> None:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    with ocp.Checkpointer(handler) as saver:
        saver.save(
            tmp_path / "0" / "items", nested({n: jnp.asarray(a) for n, a in model().items()})
        )
    assert all_same(contents(tmp_path), model())


def test_leaves_that_are_no_tensors_are_passed_over(tmp_path: Path) -> None:
    tree = {"a": jnp.arange(3), "step": 7, "rate": 0.5, "none": None, "empty": {}, "name": "x"}
    with ocp.PyTreeCheckpointer() as saver:
        saver.save(tmp_path / "0" / "items", {**tree, "pair": [np.int8([1]), np.int8([2])]})
    read = {name: array.tolist() for name, array in contents(tmp_path).items()}
    assert read == {"a": [0, 1, 2], "step": 7, "rate": 0.5, "pair/0": [1], "pair/1": [2]}


def test_we_read_what_a_checkpoint_manager_saves(tmp_path: Path) -> None:
    tree = nested({name: jnp.asarray(array) for name, array in model().items()})
    with ocp.CheckpointManager(tmp_path, item_names=("items",)) as manager:
        manager.save(7, args=ocp.args.Composite(items=ocp.args.StandardSave(tree)))
        manager.wait_until_finished()
        assert all_same(contents(tmp_path), model())
        manager.save(8, args=ocp.args.Composite(items=ocp.args.StandardSave(tree)))
        manager.wait_until_finished()
    with pytest.raises(FormatError, match=r"7/items, .*8/items; wanted the folder of one step"):
        open_source(tmp_path)
    assert all_same(contents(tmp_path / "8"), model())


def test_of_many_steps_the_latest_are_told(tmp_path: Path) -> None:
    save(tmp_path, "maxtext", {"x": bits("int8", (2,))})
    for step in (8, 9, 10, 11):
        shutil.copytree(tmp_path / "0", tmp_path / f"{step}")
    (tmp_path / "8" / "items").rename(tmp_path / "8" / "default")  # as Orbax calls a single item
    told = ", ".join(f"{tmp_path}/{each}" for each in ("8/default", "9/items", "10/items", "11/"))
    with pytest.raises(FormatError, match=f"^{tmp_path}: {told}items; wanted the folder of one st"):
        open_source(tmp_path)


def test_of_several_configs_the_nearest_is_taken(tmp_path: Path) -> None:
    save(tmp_path, "maxtext", {"x": bits("int8", (2,))}, config={"said": "above the steps"})
    for folder in (tmp_path, tmp_path / "0", tmp_path / "0" / "items"):
        (folder / "config.json").write_text(json.dumps({"said": folder.name}))
        with open_source(tmp_path) as source:
            assert (source.config, source.home) == ({"said": folder.name}, folder)


def test_the_chunks_are_those_that_have_to_be_read_whole(tmp_path: Path) -> None:
    """Not those that have to be written whole, which may have many of them in one file."""
    array = bits("float32", (8, 6))
    save(tmp_path / "out", "maxtext", {"x": array})
    spec = write_spec(tmp_path / "out/0/items", "x", TensorSpec("float32", (8, 6)), (4, 6))
    inner = {"chunk_shape": [2, 3], "codecs": spec["metadata"]["codecs"]}
    spec["metadata"]["codecs"] = [{"name": "sharding_indexed", "configuration": inner}]
    ts.open(spec, create=True, delete_existing=True).result().write(array).result()
    with open_source(tmp_path / "out") as source:
        assert isinstance(source, MaxTextSource)
        assert source.chunks == {"x": (2, 3)}
        assert same(source.read("x"), array)


def test_a_link_to_itself_is_no_tree(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("x")
    with pytest.raises(FormatError, match=f"^{tmp_path}/x: no _METADATA; wanted the folder of one"):
        open_source(tmp_path / "x", "maxtext")


def test_an_output_that_grows_inside_is_none_of_its_files(tmp_path: Path) -> None:
    """Else a run that was killed would not recognise its source."""
    save(tmp_path / "out", "maxtext", {"a": bits("int8", (4,))})
    items = tmp_path / "out" / "0" / "items"
    with open_source(items) as source:
        files = source.files
    with (
        create_sink(items / "hf", "safetensors", source.tensors),
        open_source(items) as source,
    ):
        assert source.files == files


def metadata(folder: Path) -> Path:
    return folder / "out" / "0" / "items" / "_METADATA"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "no tree_metadata; wanted an object of leaves"),
        ('{"tree_metadata": 3}', "no tree_metadata; wanted an object of leaves"),
        ('{"tree_metadata": {"x": 3}}', "'x': TypeError.*wanted a leaf"),
        ('{"tree_metadata": {"x": {}}}', "'x': KeyError.*wanted a leaf"),
        ('{"tree_metadata": {"x": {"key_metadata": [3]}}}', "'x': TypeError.*wanted a leaf"),
        (
            '{"tree_metadata": {"()": {"key_metadata": [], "value_metadata": {"value_type": ""}}}}',
            r"'\(\)': keys \[\]; wanted names without '/'",
        ),
        (
            '{"tree_metadata": {"x": {"key_metadata": [], "value_metadata": null}}}',
            "'x': AttributeError.*wanted a leaf",
        ),
        ('{"tree_metadata": {}, "tree_metadata": {}}', "'tree_metadata' stands twice"),
    ],
)
def test_refuses_malformed_metadata(tmp_path: Path, content: str, message: str) -> None:
    save(tmp_path / "out", "maxtext", model())
    metadata(tmp_path).write_text(content)
    with pytest.raises(FormatError, match=message):
        open_source(tmp_path / "out")


@pytest.mark.parametrize("key", ["..", "a/b", "/etc", "", "a\\b", "a\0b", 3, None])
def test_refuses_keys_that_lead_out_of_the_folder(tmp_path: Path, key: Any) -> None:
    save(tmp_path / "out", "maxtext", model())
    tree = json.loads(metadata(tmp_path).read_text())
    entry = next(iter(tree["tree_metadata"].values()))
    entry["key_metadata"] = [{"key": key, "key_type": 2}]
    metadata(tmp_path).write_text(json.dumps(tree | {"use_ocdbt": False}))
    with pytest.raises(FormatError, match="wanted names without '/'"):
        open_source(tmp_path / "out")


def test_refuses_a_leaf_without_an_array(tmp_path: Path) -> None:
    save(tmp_path / "out", "maxtext", model())
    metadata(tmp_path).write_text(metadata(tmp_path).read_text().replace('"step"', '"stop"'))
    with pytest.raises(FormatError, match="items: stop: NOT_FOUND"):
        open_source(tmp_path / "out")


def test_a_lost_chunk_is_an_error_and_not_zeros(tmp_path: Path) -> None:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
    with ocp.Checkpointer(handler) as saver:
        saver.save(tmp_path / "0" / "items", {"x": jnp.ones((4, 4))})
    (tmp_path / "0" / "items" / "x" / "0.0").unlink()
    with open_source(tmp_path) as source, pytest.raises(FormatError, match=r"x: .*missing"):
        source.read("x")
    # Earlier releases of Orbax do not write chunks of zeros, nor this key.
    without(tmp_path / "0" / "items" / "_METADATA", "store_array_data_equal_to_fill_value")
    with open_source(tmp_path) as source:
        assert source.read("x").tolist() == [[0] * 4] * 4


@pytest.mark.parametrize("ocdbt", [True, False])
def test_a_tree_that_does_not_say_how_it_is_stored_is_looked_at(
    tmp_path: Path, ocdbt: bool
) -> None:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt)
    with ocp.Checkpointer(handler) as saver:
        saver.save(tmp_path / "0" / "items", {"x": jnp.ones((4, 4))})
    without(tmp_path / "0" / "items" / "_METADATA", "use_ocdbt", "use_zarr3")
    assert contents(tmp_path)["x"].tolist() == [[1] * 4] * 4


def test_a_store_without_its_manifest_is_refused_as_one(tmp_path: Path) -> None:
    save(tmp_path / "out", "maxtext", {"x": bits("float32", (4,))})
    (tmp_path / "out" / "0" / "items" / "manifest.ocdbt").unlink()
    with pytest.raises(FormatError, match=r"x: NOT_FOUND: .* in OCDBT database at local file"):
        open_source(tmp_path / "out")


def without(path: Path, *keys: str) -> None:
    """Remove keys of a file's JSON object."""
    table = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in table.items() if key not in keys}))


@pytest.mark.parametrize("file", ["manifest.ocdbt", "d/*"])
def test_a_truncated_file_is_an_error(tmp_path: Path, file: str) -> None:
    save(tmp_path / "out", "maxtext", {"x": bits("float32", (64, 64))})
    paths = (tmp_path / "out" / "0" / "items").glob(file)
    largest = max(paths, key=lambda path: path.stat().st_size)
    content = largest.read_bytes()
    for length in (0, 10, 100, len(content) - 1):
        largest.write_bytes(content[:length])
        with pytest.raises(FormatError, match=r"out.*: x: [A-Z_]+: ") as caught:
            contents(tmp_path / "out")
        assert "tensorstore_spec" not in str(caught.value)


def test_refuses_regions_that_do_not_fit(tmp_path: Path) -> None:
    save(tmp_path / "out", "maxtext", {"x": bits("float32", (4, 3))})
    with open_source(tmp_path / "out") as source:
        with pytest.raises(ShapeError, match="on axis 1; 0 <= start <= stop <= 3"):
            source.read("x", (slice(0, 4), slice(0, 4)))
        with pytest.raises(KeyError, match="y"):
            source.read("y")


def test_a_link_into_the_void_is_passed_over(tmp_path: Path) -> None:
    save(tmp_path / "out", "maxtext", model())
    (tmp_path / "out" / "0" / "items" / "note").symlink_to("gone")
    with open_source(tmp_path / "out") as source:
        assert "0/items/_METADATA" in source.files
        assert "0/items/note" not in source.files


def test_what_a_port_into_it_left_unfinished_is_no_part_of_a_tree(tmp_path: Path) -> None:
    tree = tmp_path / ".tree.0123abcd.partial"  # in such a folder itself, all the same
    save(tree, "maxtext", {"a": np.zeros(3, np.float32)})
    with open_source(tree) as source:
        before = dict(source.files)
    (tree / ".out.0123abcd.partial").mkdir()
    (tree / ".out.0123abcd.partial" / "model.safetensors").write_bytes(b"half")
    with open_source(tree) as source:
        assert dict(source.files) == before
        assert "0/items/_METADATA" in before


@pytest.mark.parametrize("name", ["manifest.ocdbt", "d"])
def test_a_pipe_where_a_file_is_wanted_is_not_waited_at(tmp_path: Path, name: str) -> None:
    save(tmp_path / "out", "maxtext", model())
    items = tmp_path / "out" / "0" / "items"
    file = items / name if name != "d" else next((items / name).iterdir())
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(FormatError, match=rf"{file.name}: not a file; wanted a regular file"):
        open_source(tmp_path / "out")


@pytest.mark.parametrize("name", ["manifest.ocdbt", "d"])
def test_a_link_to_itself_where_a_file_is_wanted_is_refused(tmp_path: Path, name: str) -> None:
    save(tmp_path / "out", "maxtext", {"x": bits("int8", (4,))})
    items = tmp_path / "out" / "0" / "items"
    file = items / name if name != "d" else next((items / name).iterdir())
    file.unlink()
    file.symlink_to(file.name)
    with pytest.raises(FormatError, match=r"x: UNKNOWN: .* Too many levels of symbolic links"):
        open_source(tmp_path / "out")
