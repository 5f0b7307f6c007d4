"""What we write, plain Orbax restores; what Orbax saves, we read, region by region."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xlayout.errors import FormatError, ShapeError
from xlayout.port.formats import TensorSpec, create_sink, numpy_dtype, open_source
from xlayout.port.formats.base import DTYPES
from xlayout.port.formats.maxtext import MaxTextSink, MaxTextSource, chunk_shape

QUERY = "params/params/decoder/layers/self_attention/query/kernel"
Arrays = dict[str, np.ndarray[Any, Any]]


def bits(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    raw = np.random.default_rng(seed).integers(0, 256, TensorSpec(dtype, shape).nbytes, np.uint8)
    raw = raw & 1 if dtype == "bool" else raw
    return raw.view(numpy_dtype(dtype)).reshape(shape)


def model() -> Arrays:
    return {
        "params/params/decoder/decoder_norm/scale": bits("float32", (16,)),
        QUERY: bits("bfloat16", (16, 3, 2, 8)),
        "params/params/token_embedder/embedding": bits("bfloat16", (32, 16)),
        "step": bits("int32", ()),
    }


def save(path: Path, arrays: Arrays, **options: Any) -> None:
    specs = {name: TensorSpec(str(a.dtype), a.shape) for name, a in arrays.items()}
    with create_sink(path, "maxtext", specs, **options) as sink:
        for name, array in arrays.items():
            sink.write(name, array)
        sink.commit()


def nested(arrays: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for name, array in arrays.items():
        *folders, leaf = name.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = array
    return tree


def flat(tree: Any) -> dict[str, Any]:
    return {
        "/".join(key.key for key in path): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }


def same(got: dict[str, Any], want: Arrays) -> bool:
    return got.keys() == want.keys() and all(
        np.asarray(got[name]).dtype == array.dtype
        and got[name].shape == array.shape
        and np.asarray(got[name]).tobytes() == array.tobytes()
        for name, array in want.items()
    )


def contents(path: Path) -> dict[str, Any]:
    with open_source(path) as source:
        return {name: source.read(name) for name in source.tensors}


# --- what we write --------------------------------------------------------------------------------


@pytest.mark.parametrize("checkpointer", [ocp.StandardCheckpointer, ocp.PyTreeCheckpointer])
def test_orbax_restores_what_we_write(tmp_path: Path, checkpointer: Any) -> None:
    save(tmp_path / "out", model())
    with checkpointer() as restorer:
        assert same(flat(restorer.restore(tmp_path / "out" / "0" / "items")), model())


def test_orbax_restores_what_we_write_onto_a_sharding(tmp_path: Path) -> None:
    save(tmp_path / "out", model())
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    target = nested(
        {n: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=everywhere) for n, a in model().items()}
    )
    with ocp.StandardCheckpointer() as restorer:
        restored = flat(restorer.restore(tmp_path / "out" / "0" / "items", target))
    assert all(array.sharding == everywhere for array in restored.values())
    assert same(restored, model())


def test_a_checkpoint_manager_finds_what_we_write(tmp_path: Path) -> None:
    save(tmp_path / "out", model(), config={"hidden_size": 16})
    with ocp.CheckpointManager(tmp_path / "out", item_names=("items",)) as manager:
        assert manager.latest_step() == 0
        restored = manager.restore(0, args=ocp.args.Composite(items=ocp.args.StandardRestore()))
    assert same(flat(restored["items"]), model())


def test_orbax_restores_every_dtype_that_we_write(tmp_path: Path) -> None:
    arrays = {f"a/{dtype}": bits(dtype, (3, 5)) for dtype in DTYPES}
    save(tmp_path / "out", arrays)
    assert same(contents(tmp_path / "out"), arrays)
    with ocp.StandardCheckpointer() as restorer:
        assert same(flat(restorer.restore(tmp_path / "out" / "0" / "items")), arrays)


def test_a_stacked_kernel_is_written_and_read_a_layer_at_a_time(tmp_path: Path) -> None:
    kernel = bits("bfloat16", (16, 3, 2, 8))
    sink = MaxTextSink(tmp_path / "out", {QUERY: TensorSpec("bfloat16", kernel.shape)})
    layers = [(slice(0, 16), slice(i, i + 1), slice(0, 2), slice(0, 8)) for i in range(3)]
    with sink:
        assert sink.chunks[QUERY] == (16, 1, 2, 8)
        for layer in reversed(layers):
            sink.write(QUERY, kernel[layer], layer)
        sink.commit()
    with MaxTextSource(tmp_path / "out") as source:
        assert source.chunks == {QUERY: (16, 1, 2, 8)}
        for layer in layers:
            assert source.read(QUERY, layer).tobytes() == kernel[layer].tobytes()


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    columns=st.tuples(st.integers(0, 7), st.integers(0, 7)),
)
def test_a_region_is_what_slicing_would_give(
    tmp_path: Path, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    array = bits("float32", (9, 7))
    if not (tmp_path / "out").exists():
        save(tmp_path / "out", {"x": array}, chunks={"x": (2, 3)})
    region = (slice(*sorted(rows)), slice(*sorted(columns)))
    with open_source(tmp_path / "out") as source:
        out = np.empty(array[region].shape, np.float32)
        assert source.read("x", region, out) is out
        assert out.tobytes() == array[region].tobytes()


def test_regions_come_in_any_order_on_the_grid_of_their_extent(tmp_path: Path) -> None:
    array = bits("float32", (9, 7))
    sink = MaxTextSink(tmp_path / "out", {"x": TensorSpec("float32", (9, 7))}, chunks={"x": (4, 3)})
    with sink:
        for row, column in [(8, 3), (0, 0), (4, 6), (0, 3), (8, 0), (4, 0), (0, 6), (4, 3), (8, 6)]:
            region = (slice(row, min(row + 4, 9)), slice(column, min(column + 3, 7)))
            sink.write("x", np.asfortranarray(array[region]), region)
        sink.commit()
    assert same(contents(tmp_path / "out"), {"x": array})


def test_a_buffer_may_be_used_again_once_it_is_written(tmp_path: Path) -> None:
    tile = np.empty((4, 1000), np.int32)
    sink = MaxTextSink(
        tmp_path / "out", {"x": TensorSpec("int32", (40, 1000))}, chunks={"x": (4, 1000)}
    )
    with sink:
        for start in range(0, 40, 4):
            tile[...] = start
            sink.write("x", tile, (slice(start, start + 4), slice(0, 1000)))
        tile[...] = -1
        sink.commit()
    assert contents(tmp_path / "out")["x"][:, 0].tolist() == [n // 4 * 4 for n in range(40)]


def test_refuses_a_region_that_cuts_a_chunk(tmp_path: Path) -> None:
    specs = {"x": TensorSpec("int8", (9, 7))}
    with create_sink(tmp_path / "out", "maxtext", specs, chunks={"x": (4, 7)}) as sink:
        for start, stop in [(0, 2), (2, 9), (4, 7)]:
            with pytest.raises(
                ShapeError, match=r"cuts chunks of \(4, 7\); regions of whole chunks"
            ):
                sink.write(
                    "x", np.zeros((stop - start, 7), np.int8), (slice(start, stop), slice(0, 7))
                )


@given(
    extent=st.lists(st.integers(1, 5000), max_size=3).map(tuple), itemsize=st.sampled_from([1, 4])
)
def test_chunks_divide_the_extent_of_regions(extent: tuple[int, ...], itemsize: int) -> None:
    chunk = chunk_shape(extent, itemsize)
    assert all(n % c == 0 for n, c in zip(extent, chunk, strict=True))
    if math.prod(extent) * itemsize <= 32 << 20:
        assert chunk == extent


@pytest.mark.parametrize(
    ("extent", "chunk"),
    [
        ((2**18, 4096), (4096, 4096)),
        ((128_256, 8192), (2004, 8192)),
        ((16_411, 4096), (16_411, 512)),
        ((), ()),
    ],
)
def test_chunks_are_of_moderate_size(extent: tuple[int, ...], chunk: tuple[int, ...]) -> None:
    assert chunk_shape(extent, 2) == chunk


def test_the_config_is_published_beside_the_steps(tmp_path: Path) -> None:
    save(tmp_path / "out", model(), config={"hidden_size": 16, "rope_theta": 1e6})
    for path in ("out", "out/0", "out/0/items"):
        with open_source(tmp_path / path) as source:
            assert source.config == {"hidden_size": 16, "rope_theta": 1e6}
            assert source.format == "maxtext"
    with open_source(tmp_path / "out") as source:
        assert {"config.json", "0/items/_METADATA", "0/items/manifest.ocdbt"} <= set(source.files)


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ({"a": TensorSpec("int8", (2, 0))}, r"a: shape \(2, 0\); Orbax holds no tensor of zero"),
        ({"a.b": TensorSpec("int8", (1,))}, r"a\.b: keys with '\.' are ambiguous"),
        ({"a//b": TensorSpec("int8", (1,))}, "a//b: keys .* names without '/'"),
        ({"../b": TensorSpec("int8", (1,))}, r"\.\./b: keys .* names without '/'"),
        ({"": TensorSpec("int8", (1,))}, "keys .* names without '/'"),
        (
            {"a/b": TensorSpec("int8", (1,)), "a": TensorSpec("int8", (1,))},
            "a/b: lies inside a, which is a tensor",
        ),
    ],
)
def test_refuses_what_is_no_tree(
    tmp_path: Path, specs: dict[str, TensorSpec], message: str
) -> None:
    with pytest.raises(FormatError, match=message):
        create_sink(tmp_path / "out", "maxtext", specs)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("chunk", [(2,), (2, 4), (0, 1)])
def test_refuses_chunks_that_do_not_fit(tmp_path: Path, chunk: tuple[int, ...]) -> None:
    specs = {"a": TensorSpec("int8", (2, 3))}
    with pytest.raises(ShapeError, match=r"chunks: .* for a; from 1 to \(2, 3\) is wanted"):
        create_sink(tmp_path / "out", "maxtext", specs, chunks={"a": chunk})


# --- what Orbax saves -----------------------------------------------------------------------------


@pytest.mark.parametrize("ocdbt", [True, False])
@pytest.mark.parametrize("zarr3", [True, False])
def test_we_read_what_orbax_saves(tmp_path: Path, ocdbt: bool, zarr3: bool) -> None:
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=ocdbt, use_zarr3=zarr3)
    with ocp.Checkpointer(handler) as saver:
        saver.save(
            tmp_path / "0" / "items", nested({n: jnp.asarray(a) for n, a in model().items()})
        )
    assert same(contents(tmp_path), model())


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
        assert same(contents(tmp_path), model())
        manager.save(8, args=ocp.args.Composite(items=ocp.args.StandardSave(tree)))
        manager.wait_until_finished()
    with pytest.raises(FormatError, match=r"7/items, .*8/items; the folder of one step"):
        open_source(tmp_path)
    assert same(contents(tmp_path / "8"), model())


# --- what is broken -------------------------------------------------------------------------------


def metadata(folder: Path) -> Path:
    return folder / "out" / "0" / "items" / "_METADATA"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "no tree_metadata; an object of leaves"),
        ('{"tree_metadata": 3}', "no tree_metadata; an object of leaves"),
        ('{"tree_metadata": {"x": 3}}', "'x': TypeError.*a leaf is wanted"),
        ('{"tree_metadata": {"x": {}}}', "'x': KeyError.*a leaf is wanted"),
        ('{"tree_metadata": {"x": {"key_metadata": [3]}}}', "'x': TypeError.*a leaf is wanted"),
        ('{"tree_metadata": {}, "tree_metadata": {}}', "'tree_metadata' stands twice"),
    ],
)
def test_refuses_malformed_metadata(tmp_path: Path, content: str, message: str) -> None:
    save(tmp_path / "out", model())
    metadata(tmp_path).write_text(content)
    with pytest.raises(FormatError, match=message):
        open_source(tmp_path / "out")


@pytest.mark.parametrize("key", ["..", "a/b", "/etc", "", 3, None])
def test_refuses_keys_that_lead_out_of_the_folder(tmp_path: Path, key: Any) -> None:
    save(tmp_path / "out", model())
    tree = json.loads(metadata(tmp_path).read_text())
    entry = next(iter(tree["tree_metadata"].values()))
    entry["key_metadata"] = [{"key": key, "key_type": 2}]
    metadata(tmp_path).write_text(json.dumps(tree | {"use_ocdbt": False}))
    with pytest.raises(FormatError, match="names without '/' are wanted"):
        open_source(tmp_path / "out")


def test_refuses_a_leaf_without_an_array(tmp_path: Path) -> None:
    save(tmp_path / "out", model())
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


@pytest.mark.parametrize("file", ["manifest.ocdbt", "d/*"])
def test_a_truncated_file_is_an_error(tmp_path: Path, file: str) -> None:
    save(tmp_path / "out", {"x": bits("float32", (64, 64))})
    paths = (tmp_path / "out" / "0" / "items").glob(file)
    largest = max(paths, key=lambda path: path.stat().st_size)
    content = largest.read_bytes()
    for length in (0, 10, 100, len(content) - 1):
        largest.write_bytes(content[:length])
        with pytest.raises(FormatError, match=r"out.*: x: [A-Z_]+: ") as caught:
            contents(tmp_path / "out")
        assert "tensorstore_spec" not in str(caught.value)


def test_refuses_regions_that_do_not_fit(tmp_path: Path) -> None:
    save(tmp_path / "out", {"x": bits("float32", (4, 3))})
    with open_source(tmp_path / "out") as source:
        with pytest.raises(ShapeError, match="on axis 1; 0 <= start <= stop <= 3"):
            source.read("x", (slice(0, 4), slice(0, 4)))
        with pytest.raises(KeyError, match="y"):
            source.read("y")
