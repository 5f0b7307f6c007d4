"""Plain Orbax restores what we write, and we read what Orbax saves, region by region."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.port.formats.arrays import Array, bits, same, save
from xlayout.errors import FormatError, ShapeError
from xlayout.port.formats import TensorSpec, create_sink, open_source
from xlayout.port.formats.base import DTYPES
from xlayout.port.formats.maxtext import MaxTextSink, MaxTextSource, chunk_shape

QUERY = "params/params/decoder/layers/self_attention/query/kernel"
MIB = 1 << 20
Arrays = dict[str, Array]


def model() -> Arrays:
    return {
        "params/params/decoder/decoder_norm/scale": bits("float32", (16,)),
        QUERY: bits("bfloat16", (16, 3, 2, 8)),
        "params/params/token_embedder/embedding": bits("bfloat16", (32, 16)),
        "step": bits("int32", ()),
    }


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


def all_same(got: dict[str, Any], want: Arrays) -> bool:
    return got.keys() == want.keys() and all(
        same(np.asarray(got[name]), array) for name, array in want.items()
    )


def contents(path: Path) -> dict[str, Any]:
    with open_source(path) as source:
        return {name: source.read(name) for name in source.tensors}


@pytest.mark.parametrize("checkpointer", [ocp.StandardCheckpointer, ocp.PyTreeCheckpointer])
def test_orbax_restores_what_we_write(tmp_path: Path, checkpointer: Any) -> None:
    save(tmp_path / "out", "maxtext", model())
    with checkpointer() as restorer:
        assert all_same(flat(restorer.restore(tmp_path / "out" / "0" / "items")), model())


def test_orbax_restores_what_we_write_onto_a_sharding(tmp_path: Path) -> None:
    save(tmp_path / "out", "maxtext", model())
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("x",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    target = nested(
        {n: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=everywhere) for n, a in model().items()}
    )
    with ocp.StandardCheckpointer() as restorer:
        restored = flat(restorer.restore(tmp_path / "out" / "0" / "items", target))
    assert all(array.sharding == everywhere for array in restored.values())
    assert all_same(restored, model())


@pytest.mark.parametrize("said", [{"scan_layers": True}, {"scan_layers": False}, {}])
def test_orbax_finds_the_step_and_how_it_is_laid_out(tmp_path: Path, said: dict[str, bool]) -> None:
    from orbax.checkpoint import v1

    save(tmp_path / "out", "maxtext", model(), config={"hidden_size": 16, "maxtext": said})
    with ocp.CheckpointManager(tmp_path / "out", item_names=("items",)) as manager:
        assert manager.latest_step() == 0
        assert manager.metadata(0).custom_metadata == said
        restored = manager.restore(0, args=ocp.args.Composite(items=ocp.args.StandardRestore()))
    assert all_same(flat(restored["items"]), model())
    step = tmp_path / "out" / "0"
    assert v1.checkpointables_metadata(step).custom_metadata == said
    assert all_same(flat(v1.load(step, checkpointable_name="items")), model())


def test_orbax_restores_every_dtype_that_we_write(tmp_path: Path) -> None:
    arrays = {f"a/{dtype}": bits(dtype, (3, 5)) for dtype in DTYPES}
    save(tmp_path / "out", "maxtext", arrays)
    assert all_same(contents(tmp_path / "out"), arrays)
    with ocp.StandardCheckpointer() as restorer:
        assert all_same(flat(restorer.restore(tmp_path / "out" / "0" / "items")), arrays)


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
        save(tmp_path / "out", "maxtext", {"x": array}, chunks={"x": (2, 3)})
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
    assert all_same(contents(tmp_path / "out"), {"x": array})


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
                ShapeError, match=r"cuts chunks of \(4, 7\); wanted regions of whole chunks"
            ):
                sink.write(
                    "x", np.zeros((stop - start, 7), np.int8), (slice(start, stop), slice(0, 7))
                )


@pytest.mark.parametrize(("rows", "chunk"), [(5, 4), (8, 4), (9, 9)])
def test_room_is_needed_for_whole_chunks(tmp_path: Path, rows: int, chunk: int) -> None:
    specs = {"x": TensorSpec("int8", (rows, MIB))}
    with MaxTextSink(tmp_path / "out", specs, chunks={"x": (chunk, MIB)}) as sink:
        for start in range(0, rows, chunk):
            stop = min(start + chunk, rows)
            sink.write("x", np.ones((stop - start, MIB), np.int8), (slice(start, stop), slice(MIB)))
        needed = sink._staging.needed
        sink.commit()
    files = (tmp_path / "out").rglob("*")
    stored = sum(file.stat().st_size for file in files if file.is_file())
    assert -(-rows // chunk) * chunk * MIB < stored < needed < stored + 5 * 4096


def test_the_books_of_many_arrays_fit_in_that_room(tmp_path: Path) -> None:
    specs = {
        f"layers_{n}/self_attention/query/kernel": TensorSpec("int8", (300,)) for n in range(500)
    }
    with MaxTextSink(tmp_path / "out", specs) as sink:
        for name in specs:
            sink.write(name, np.ones(300, np.int8))
        needed = sink._staging.needed
        sink.commit()
    stored = [file.stat().st_size for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert sum(stored) < needed / 2


def test_a_config_and_long_names_need_room_too(tmp_path: Path) -> None:
    specs = {"x" * 9000: TensorSpec("int8", ())}
    with MaxTextSink(tmp_path / "out", specs, config={"a": "x" * 20_000}) as sink:
        sink.write(*specs, np.ones((), np.int8))
        needed = sink._staging.needed
        sink.commit()
    stored = [file.stat().st_size for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert 38_000 < sum(stored) < needed


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


@pytest.mark.parametrize(
    ("name", "shape", "chunk"),
    [
        ("decoder/layers/x", (4, 3, 2), (4, 1, 2)),
        ("decoder/dense_layers/x", (4, 3), (4, 1)),
        ("decoder/moe_layers/x", (4, 3, 2), (4, 1, 2)),
        ("decoder/layers/x", (4,), (4,)),
        ("decoder/layers/x", (), ()),
        ("decoder/layers_0/x", (4, 3), (4, 3)),
    ],
)
def test_what_maxtext_stacks_is_cut_into_layers(
    tmp_path: Path, name: str, shape: tuple[int, ...], chunk: tuple[int, ...]
) -> None:
    with MaxTextSink(tmp_path / "out", {name: TensorSpec("int8", shape)}) as sink:
        assert sink.chunks == {name: chunk}


def test_the_config_is_published_beside_the_steps(tmp_path: Path) -> None:
    save(tmp_path / "out", "maxtext", model(), config={"hidden_size": 16, "rope_theta": 1e6})
    for path in ("out", "out/0", "out/0/items"):
        with open_source(tmp_path / path) as source:
            assert source.config == {"hidden_size": 16, "rope_theta": 1e6}
            assert source.format == "maxtext"
    with open_source(tmp_path / "out") as source:
        assert {"0/items/_METADATA", "0/items/manifest.ocdbt"} <= set(source.files)
        assert all(file.startswith("0/items/") for file in source.files)


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        ({"a": TensorSpec("int8", (2, 0))}, r"a: shape \(2, 0\); Orbax holds no tensor of zero"),
        ({"a.b": TensorSpec("int8", (1,))}, r"a\.b: keys with '\.' are ambiguous"),
        ({"a/b.c": TensorSpec("int8", (1,))}, r"a/b\.c: keys with '\.' are ambiguous"),
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
    with pytest.raises(ShapeError, match=r"chunks: .* for a; wanted from 1 to \(2, 3\)"):
        create_sink(tmp_path / "out", "maxtext", specs, chunks={"a": chunk})
    with pytest.raises(ShapeError, match=r"^chunks: 'b'; wanted the name of a tensor in specs$"):
        create_sink(tmp_path / "out", "maxtext", specs, chunks={"b": chunk})
