"""Chunks stay whole: those that Orbax wrote are read whole, and ours are stored whole."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.port.models import MODELS, refused, same_bytes, save_llama, save_tensors, tensors
from xlayout import port
from xlayout.errors import PortError
from xlayout.port.change import Change
from xlayout.port.fit import fit
from xlayout.port.formats import TensorSpec, open_source
from xlayout.port.formats.chunk_grid import stored_bytes
from xlayout.port.formats.maxtext import MaxTextSource
from xlayout.port.formats.tensorstore_specs import write_spec
from xlayout.port.lanes import LANES
from xlayout.port.move import Move
from xlayout.port.units import show_bytes

CHUNK = 64 * 3 * 4 * 128 * 4  # bytes of the largest stack: queries of three layers in float32
HELD = 2 * CHUNK  # stored and decoded
LEAST = HELD + 128 * 64 * 4 * 2 + 128 * 64 * 2  # a head of it as read, as laid out, as rounded


@pytest.fixture(scope="module")
def tree(wide_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as Orbax saves it: each stack of layers is one chunk."""
    import orbax.checkpoint as ocp

    folder = tmp_path_factory.mktemp("orbax")
    port.run(wide_llama, folder / "ours", to="maxtext")
    with ocp.PyTreeCheckpointer() as checkpointer:
        weights = checkpointer.restore(folder / "ours" / "0" / "items")
        checkpointer.save(folder / "theirs" / "0" / "items", weights)
    shutil.copy(folder / "ours" / "config.json", folder / "theirs")
    return folder / "theirs"


def test_a_chunk_that_is_cut_is_part_of_the_bound(
    tree: Path, wide_llama: Path, tmp_path: Path
) -> None:
    text = (
        f"max_ram: {LEAST - 1:,} bytes; one slice of params/params/decoder/layers/self_attention/"
        f"query/kernel beside {HELD:,} for a chunk of params/params/decoder/layers/self_attention/"
        f"query/kernel, which is read whole, needs {LEAST:,}, which is the least that works"
    )
    refused(tree, tmp_path / "out", f"^{re.escape(text)}$", to="hf", max_ram=LEAST - 1)
    report = port.run(tree, tmp_path / "out", to="hf", max_ram=LEAST)
    assert report.plan.buffer_bytes + HELD <= LEAST
    assert same_bytes(wide_llama, tmp_path / "out")
    assert "in buffers, and 786 kB for a chunk that is read whole" in str(report.plan)


def test_a_comparison_counts_the_chunks_of_either(tree: Path, wide_llama: Path) -> None:
    for sides in ((tree, wide_llama), (wide_llama, tree)):
        with pytest.raises(
            PortError, match=r"which is read whole, needs 868,352, which is the lea"
        ):
            port.verify(*sides, max_ram=HELD)
        assert port.verify(*sides, max_ram=868_352).identical


@pytest.mark.parametrize("max_ram", [1, LEAST - HELD, HELD])
def test_the_least_that_works_is_the_same_whatever_was_given(
    tree: Path, wide_llama: Path, tmp_path: Path, max_ram: int
) -> None:
    refused(tree, tmp_path / "out", f" needs {LEAST:,}, which is", to="hf", max_ram=max_ram)
    with pytest.raises(PortError, match=r" needs 868,352, which is the least"):
        port.verify(tree, wide_llama, max_ram=max_ram)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 32, 64, 80, 100])
@pytest.mark.parametrize("change", [Change("bfloat16", "bfloat16"), Change("float32", "bfloat16")])
def test_the_least_that_works_does_and_one_byte_less_does_not(
    up: Move, rows: int, change: Change
) -> None:
    moves = [[replace(up, change=change, chunk=(rows, 64))], [replace(up, chunk=(7, 64))]]
    with pytest.raises(PortError, match="which is the least that works") as told:
        fit(moves, 1)
    least = int(str(told.value).split(" needs ")[1].split(", which")[0].replace(",", ""))
    assert fit(moves, least)
    with pytest.raises(PortError, match="which is the least that works"):
        fit(moves, least - 1)


def test_the_least_that_works_may_be_tiles_of_whole_chunks(up: Move) -> None:
    """Five rows as read and as laid out; one row, and five as stored and decoded, need more."""
    five = sum(up.buffers(5))
    text = f"^max_ram: 1 bytes; a tile of whole chunks of {up.source.tensor} needs {five:,}, which "
    with pytest.raises(PortError, match=text):
        fit([[replace(up, chunk=(5, 64))]], 1)


def test_tiles_of_whole_chunks_need_no_more(wide_llama: Path, tmp_path: Path) -> None:
    port.run(wide_llama, tmp_path / "tree", to="maxtext", max_ram="160kB")
    plan = port.plan(tmp_path / "tree", tmp_path / "out", to="hf")
    assert "read whole" not in str(plan)


@pytest.fixture(scope="module")
def narrow_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with heads so small that every tensor except norms may have to go in tiles."""
    return save_llama(tmp_path_factory.mktemp("hf") / "narrow", **MODELS["grouped"])


@pytest.mark.parametrize("to", ["maxtext", "maxtext-unscanned"])
def test_tiles_are_even_whatever_the_memory(narrow_llama: Path, tmp_path: Path, to: str) -> None:
    uneven = set()
    for max_ram in range(9_000, 30_000, 300):
        plan = port.plan(narrow_llama, tmp_path / "out", to=to, max_ram=max_ram)
        assert plan.buffer_bytes <= max_ram
        for name, spec in plan.specs.items():
            stored = stored_bytes(spec, plan.chunks[name])
            assert spec.nbytes <= stored <= spec.nbytes * 4 / 3
            uneven.add(stored > spec.nbytes)
        for move in plan.moves:
            leads, tiles = move.sizes[move.source.rule.lead], len(list(move.tiles()))
            assert move.lead * tiles < leads + tiles
    assert uneven == {False, True}


@pytest.mark.parametrize("max_ram", [10_000, 16_000])
def test_the_plan_says_what_is_stored(narrow_llama: Path, tmp_path: Path, max_ram: int) -> None:
    plan = port.run(narrow_llama, tmp_path / "out", to="maxtext", max_ram=max_ram).plan
    with open_source(tmp_path / "out") as written:
        assert isinstance(written, MaxTextSource)
        whole = [
            math.prod(-(-n // c) * c for n, c in zip(spec.shape, written.chunks[name], strict=True))
            * spec.itemsize
            for name, spec in written.tensors.items()
        ]
    assert plan.files == {"0/items": sum(whole)}
    assert sum(whole) > plan.write_bytes
    assert f"files: 0/items {show_bytes(sum(whole))}" in str(plan)


@pytest.fixture
def up(narrow_llama: Path, tmp_path: Path) -> Move:
    """The move of a tensor of 80 rows."""
    plan = port.plan(narrow_llama, tmp_path, to="maxtext")
    (move,) = (m for m in plan.moves if m.source.name == "model.layers.0.mlp.up_proj.weight")
    return move


def test_even_tiles_cut_no_chunk_that_longer_ones_do_not(up: Move) -> None:
    """Of 80 rows in chunks of 32 two chunks fit, while 40 rows would cut one."""
    cut, alone = replace(up, chunk=(32, 64)), replace(up, chunk=())
    room = LANES * sum(up.buffers(64))
    ((longest,),) = fit([[cut]], room)
    ((even,),) = fit([[alone]], room)
    assert (longest.lead, longest.held, even.lead) == (64, 0, 40)


@pytest.mark.parametrize(("chunk", "lead"), [((), 8), ((32, 64), 32)])
def test_tiles_leave_room_for_others_where_they_cut_no_chunk(
    up: Move, chunk: tuple[int, ...], lead: int
) -> None:
    """Of 80 rows 64 fit: tiles of an eighth of them, or of half where chunks are as long."""
    ((fitted,),) = fit([[replace(up, chunk=chunk)]], sum(up.buffers(64)))
    assert fitted.lead == lead


@pytest.mark.parametrize("to", ["maxtext", "maxtext-unscanned", "hf"])
@pytest.mark.parametrize("max_ram", ["16kB", "30kB", "100kB"])
def test_layers_of_several_dtypes_fill_the_same_chunks_of_their_stack(
    narrow_llama: Path, tmp_path: Path, to: str, max_ram: str
) -> None:
    arrays = tensors(narrow_llama)
    mixed = {n: x.astype("float32") if ".layers.1." in n else x for n, x in arrays.items()}
    shutil.copytree(narrow_llama, tmp_path / "mixed")
    save_tensors(tmp_path / "mixed", mixed)
    for dtype in ("float32", "bfloat16"):
        port.run(tmp_path / "mixed", tmp_path / dtype, to=to, max_ram=max_ram, dtype=dtype)
        port.run(tmp_path / dtype, tmp_path / "back", to="hf", dtype=dtype)
        back = tensors(tmp_path / "back")
        assert back.keys() == arrays.keys()
        assert all(
            (back[name].astype("float32") == x.astype("float32")).all()
            for name, x in arrays.items()
        )
        shutil.rmtree(tmp_path / "back")


def test_tiles_that_fill_the_same_chunks_are_equally_long(up: Move) -> None:
    """Where 80 rows fit once and 40 twice as wide, both are 40; alone, the narrow ones are 80."""
    wide = replace(up, change=Change("float32", "float32"))
    room = LANES * sum(up.buffers(80))
    (narrow,), (other,) = fit([[up], [wide]], room)
    assert (narrow.lead, other.lead) == (80, 40)
    (narrow,), (other,) = fit([[up], [wide]], room, ties=["a stack", "a stack"])
    assert (narrow.lead, other.lead) == (40, 40)
    (narrow,), (other,) = fit([[up], [wide]], room, ties=["a", "another"])
    assert (narrow.lead, other.lead) == (80, 40)


def test_tiles_are_no_longer_than_pays(up: Move) -> None:
    large = replace(up, sizes={**up.sizes, up.source.rule.lead: 1 << 20})
    ((fitted,),) = fit([[large]], 1 << 34)
    assert 31 << 20 < sum(fitted.buffers(fitted.lead)) <= 32 << 20


def test_no_chunk_is_read_before_it_is_known_to_fit(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object) -> None:
        raise AssertionError("a chunk was read")

    monkeypatch.setattr(MaxTextSource, "read", read)
    refused(tree, tmp_path / "out", "which is the least that works", to="hf", max_ram=LEAST - 1)


def test_a_chunk_that_is_larger_than_its_array_is_read_whole_too(
    wide_llama: Path, tmp_path: Path
) -> None:
    import tensorstore as ts

    tree, name = tmp_path / "tree", "params/params/decoder/decoder_norm/scale"
    port.run(wide_llama, tree, to="maxtext")
    with open_source(tree) as source:
        values = source.read(name)
    spec = write_spec(tree / "0" / "items", name, TensorSpec("bfloat16", (64,)), (1 << 24,))
    spec["metadata"]["codecs"].append({"name": "zstd", "configuration": {"level": 1}})
    ts.open(spec, create=True, delete_existing=True).result().write(values).result()
    text = f"beside {2 << 25:,} for a chunk of {name}, which is read whole"
    refused(tree, tmp_path / "out", text, to="hf", max_ram="48MiB")
    port.run(tree, tmp_path / "out", to="hf", max_ram="128MiB")
    assert same_bytes(wide_llama, tmp_path / "out")
