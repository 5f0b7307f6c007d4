"""The parts of ranks cover every tensor, and are those that tensor parallelism and FSDP hold."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlayout import Mesh, Sharding, port, tp
from xlayout.errors import PortError
from xlayout.port.demo.weights import make_tiny
from xlayout.port.families import FAMILIES
from xlayout.port.formats import open_source
from xlayout.port.places import Place
from xlayout.port.ranks import Held, held_by, shares_of
from xlayout.port.resume import key_of
from xlayout.port.rules import Part, Rule

DIALECTS = ["dcp", "dcp-fused", "megatron", "megatron-per-layer"]
SIZES = {
    "layer": 2, "vocab": 100, "embed": 24, "mlp": 20, "heads": 8, "kv": 4, "group": 2, "dim": 6,
    "two": 2, "half": 3, "expert": 3,
}  # fmt: skip


def places_of(name: str, dialect: str) -> list[Place]:
    return FAMILIES[name].dialects[dialect].places(SIZES)


def at(box: Any) -> tuple[slice, ...]:
    return tuple(slice(*cut) for cut in box)


def counted(held: Held, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many ranks hold each element."""
    count = np.zeros(shape, np.int64)
    for boxes in held:
        for box in boxes:
            count[at(box)] += 1
    return count


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    names = draw(st.permutations(["fsdp", "tp"]))[: draw(st.integers(1, 2))]
    most = {"fsdp": st.integers(1, 40), "tp": st.sampled_from([1, 2, 3, 4])}
    return Mesh(tuple(draw(most[name]) for name in names), names)


@given(mesh=meshes(), dialect=st.sampled_from(DIALECTS))
def test_what_ranks_hold_is_all_of_a_tensor_and_each_box_is_stored_once(
    mesh: Mesh, dialect: str
) -> None:
    places = places_of("mixtral", dialect)
    held = held_by(mesh, places, SIZES, jax=False)
    shares = shares_of(held)
    for place in places:
        shape = place.rule.target_shape(SIZES)
        count = counted(held[place.tensor], shape)
        assert count.min() >= 1
        once = counted((tuple(box for _, box in shares[place.tensor]),), shape)
        assert (once == 1).all()
        for rank, box in shares[place.tensor]:
            assert rank == min(r for r, own in enumerate(held[place.tensor]) if box in own)


@pytest.mark.parametrize("name", ["llama", "mistral", "mixtral", "qwen2", "qwen3"])
@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_heads_and_features_are_shared_as_xl_tp_shares_them(name: str, ranks: int) -> None:
    sizes = SIZES | {"mlp": 24}
    places = places_of(name, "dcp")
    shapes = {place.tensor: place.rule.target_shape(sizes) for place in places}
    config = {"model_type": name, "num_attention_heads": 8, "num_key_value_heads": 4}
    plan = tp.plan(shapes, ranks, config=config)
    held = held_by(Mesh((ranks,), ("tp",)), places, sizes, jax=False)
    cut = [tensor for tensor, placed in plan.items() if placed.axis is not None]
    assert len(cut) >= 14
    for tensor in cut:
        for rank, boxes in enumerate(held[tensor]):
            runs = plan[tensor].sharding.owned(rank, shapes[tensor])
            wanted = [tuple((r.start, r.stop) for r in box) for box in itertools.product(*runs)]
            assert list(boxes) == wanted


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 5))
def test_fsdp_cuts_what_a_rank_of_tensor_parallelism_has(mlp: int, fsdp: int, tp_: int) -> None:
    """As DTensor does it: its rule in mesh order, over the axes of a mesh in that order."""
    mesh = Mesh((fsdp, tp_), ("fsdp", "tp"))
    sharding = Sharding(Mesh((tp_, fsdp), ("tp", "fsdp")), [("tp", "fsdp")])
    held = held_by(
        mesh, [Place(Rule("up", "up", "mlp embed"))], {"mlp": mlp, "embed": 2}, jax=False
    )
    for rank, boxes in enumerate(held["up"]):
        at_fsdp, at_tp = mesh.coordinates(rank)
        runs, _ = sharding.owned(at_tp * fsdp + at_fsdp, (mlp, 2))
        assert boxes == tuple(((run.start, run.stop), (0, 2)) for run in runs)


def test_a_gate_and_an_up_projection_are_cut_each_and_fsdp_cuts_across() -> None:
    rules = [Rule(n, "fc1", "mlp embed", part=Part(("mlp", "mlp"), k)) for k, n in enumerate("gu")]
    places, sizes = [Place(rule) for rule in rules], {"mlp": 6, "embed": 1}
    rows = {
        names: [
            tuple(box[0] for box in boxes)
            for boxes in held_by(mesh, places, sizes, jax=False)["fc1"]
        ]
        for names, mesh in {
            "tp": Mesh((2,), ("tp",)),
            "fsdp": Mesh((5,), ("fsdp",)),
            "both": Mesh((2, 2), ("fsdp", "tp")),
        }.items()
    }
    assert rows == {
        "tp": [((0, 3), (6, 9)), ((3, 6), (9, 12))],
        "fsdp": [((0, 3),), ((3, 6),), ((6, 9),), ((9, 12),), ()],
        "both": [((0, 3),), ((3, 6),), ((6, 9),), ((9, 12),)],
    }


def test_more_boxes_than_metadata_should_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [Place(Rule(name, name, "mlp embed")) for name in "ab"]
    monkeypatch.setattr("xlayout.port.ranks.MOST", 8)
    assert held_by(Mesh((4,), ("fsdp",)), places, SIZES, jax=False)
    text = "^mesh: fsdp=5; cuts 2 tensors into 10 boxes; wanted at most 8, of fewer ranks, or of te"
    with pytest.raises(PortError, match=text):
        held_by(Mesh((5,), ("fsdp",)), places, SIZES, jax=False)
    assert held_by(Mesh((5,), ("fsdp",)), places, SIZES | {"embed": 25}, jax=True)


def test_one_rank_holds_everything_however_its_heads_are_called() -> None:
    places = [Place(Rule("q", "q", "(kv dim) embed"))]
    sizes = {"kv": 3, "dim": 2, "embed": 4}
    assert held_by(None, places, sizes, jax=False) == {"q": ((((0, 6), (0, 4)),),)}
    with pytest.raises(PortError, match=r"^mesh: tp=3; q: config: names no heads"):
        held_by(Mesh((3,), ("tp",)), places, sizes, jax=False)


def test_jax_holds_no_parts_of_two_segments() -> None:
    places = [Place(Rule("g", "fc1", "mlp embed", part=Part(("mlp", "mlp"), 0)))]
    with pytest.raises(PortError, match=r"^mesh: tp=2; fc1: the parts of ranks would not be boxes"):
        held_by(Mesh((2,), ("tp",)), places, SIZES, jax=True)


def test_jax_holds_no_copies_of_heads() -> None:
    places = [Place(Rule("k", "key", "(kv dim) embed -> embed kv dim"))]
    mesh = Mesh((8,), ("tp",))
    assert len(set(held_by(mesh, places, SIZES, jax=False)["key"])) == 4
    text = (
        r"^mesh: tp=8; key: ranks would hold copies of 4 heads, and JAX cuts without copies; "
        r"wanted tp=4 at most$"
    )
    with pytest.raises(PortError, match=text):
        held_by(mesh, places, SIZES, jax=True)


def test_fused_groups_stay_together_and_each_layer_of_a_stack_is_a_box() -> None:
    places = places_of("mixtral", "megatron")
    held = held_by(Mesh((2, 2), ("fsdp", "tp")), places, SIZES, jax=False)
    qkv = held["decoder.layers.self_attention.linear_qkv.weight"]
    # A group is two queries, a key and a value of six rows each; FSDP cuts the axis of layers.
    assert [box for boxes in qkv for box in boxes] == [
        ((layer, layer + 1), (rows, rows + 48), (0, 24)) for layer in (0, 1) for rows in (0, 48)
    ]
    alone = held_by(None, places, SIZES, jax=False)
    fc2 = alone["decoder.layers.mlp.experts.experts.linear_fc2.weight"]
    assert fc2 == (
        tuple(
            ((layer, layer + 1), (expert, expert + 1), (0, 24), (0, 20))
            for layer in (0, 1)
            for expert in (0, 1, 2)
        ),
    )


def test_what_is_neither_heads_nor_features_is_whole_on_ranks_of_tensor_parallelism() -> None:
    parts = [
        Rule("a", "ab", "embed half", part=Part(("embed", "embed"), 0)),
        Rule("b", "ab", "embed half", part=Part(("embed", "embed"), 1)),
        Rule("c", "c", "(embed heads) half"),
        Rule("d", "de", "mlp half", part=Part(("mlp", "embed"), 0)),
        Rule("e", "de", "embed half", part=Part(("mlp", "embed"), 1)),
        Rule("f", "fg", "(embed dim) half", part=Part(("dim", "half"), 0)),
        Rule("h", "hi", "(mlp two) half", part=Part(("mlp", "mlp"), 0)),
    ]
    held = held_by(Mesh((2,), ("tp",)), map(Place, parts), SIZES, jax=False)
    assert held == {
        "ab": ((((0, 24), (0, 3)), ((24, 48), (0, 3))),) * 2,
        "c": ((((0, 192), (0, 3)),),) * 2,
        "de": ((((0, 20), (0, 3)), ((20, 44), (0, 3))),) * 2,
        "fg": ((((0, 216), (0, 3)),),) * 2,
        "hi": ((((0, 80), (0, 3)),),) * 2,
    }


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six heads, with two for keys and values."""
    return make_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.mark.parametrize(
    ("mesh", "to", "text"),
    [
        (
            Mesh((2,), ("tp",)),
            "hf",
            "mesh: tp=2; 'hf' stores tensors of which ranks of any mesh can read their parts, so "
            "leave it out; cut for ranks are maxtext, maxtext-unscanned, maxtext-default-rope, "
            "maxtext-default-rope-unscanned, dcp, dcp-model, megatron, megatron-per-layer",
        ),
        (
            Mesh((2, 2), ("dp", "tp")),
            "dcp",
            "mesh: axis 'dp'; wanted 'fsdp' and 'tp' alone, as ranks along any other axis load the "
            "same files",
        ),
        (
            Mesh((4,), ("tp",)),
            "dcp",
            "mesh: tp=4; model.layers.0.self_attn.q_proj.weight: 6 heads with 2 for keys and "
            "values cannot be shared by 4 ranks. Numbers of ranks that can: 1 to 2, 6",
        ),
        (
            Mesh((10**9, 1001), ("fsdp", "tp")),
            "dcp",
            "mesh: fsdp=1000000000 tp=1001; 1,001,000,000,000 ranks; wanted at most 1,000,000",
        ),
        (
            Mesh((7,), ("fsdp",)),
            "maxtext",
            "mesh: fsdp=7; params/params/token_embedder/embedding: the parts of ranks would not be "
            "boxes of one shape, as JAX cuts; wanted numbers of ranks that divide (320, 96) evenly",
        ),
    ],
)
def test_refuses_ranks_that_cannot_be(
    tiny: Path, tmp_path: Path, mesh: Mesh, to: str, text: str
) -> None:
    for verb in (port.plan, port.run):
        with pytest.raises(PortError, match=f"^{re.escape(text)}$"):
            verb(tiny, tmp_path / "out", to=to, mesh=mesh)
    assert not list(tmp_path.iterdir())


def test_refuses_what_is_no_mesh(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"mesh: an int; wanted an xlayout.Mesh, or None"):
        port.plan(tiny, tmp_path / "out", to="dcp", mesh=8)  # type: ignore[arg-type]


@pytest.mark.parametrize("to", ["dcp", "megatron", "megatron-per-layer"])
@pytest.mark.parametrize("max_ram", ["100kB", "512MiB"])
@pytest.mark.parametrize(
    "mesh", [Mesh((2,), ("tp",)), Mesh((7,), ("fsdp",)), Mesh((3, 2), ("fsdp", "tp"))], ids=str
)
def test_a_port_stored_by_ranks_is_the_same_port(
    tiny: Path, tmp_path: Path, mesh: Mesh, to: str, max_ram: str
) -> None:
    report = port.run(tiny, tmp_path / "out", to=to, mesh=mesh, max_ram=max_ram)
    plan = report.plan
    assert report.comparison is not None
    assert report.comparison.identical
    assert sum(plan.files.values()) == plan.write_bytes
    assert list(plan.files) == [f"__{rank}_0.distcp" for rank in range(mesh.size)]
    for file, nbytes in plan.files.items():
        # Around each chunk there are two kilobytes of archive.
        assert nbytes < (tmp_path / "out" / file).stat().st_size < nbytes + 2048 * len(plan.held)
    assert sum(plan.rank_bytes) >= plan.write_bytes
    port.run(tiny, tmp_path / "whole", to=to)
    with open_source(tmp_path / "out") as parts, open_source(tmp_path / "whole") as whole:
        assert parts.tensors == whole.tensors
        for name in whole.tensors:
            assert parts.read(name).tobytes() == whole.read(name).tobytes()


def test_the_table_says_who_reads_how_much(tiny: Path, tmp_path: Path) -> None:
    mesh = Mesh((2,), ("tp",))
    plan = port.plan(tiny, tmp_path / "out", to="dcp", mesh=mesh)
    assert plan.rank_bytes == (640_896, 640_896)
    assert "cut for 2 ranks (tp=2); each reads 641 kB\n" in str(plan)
    uneven = port.plan(tiny, tmp_path / "out", to="dcp", mesh=Mesh((3,), ("fsdp",)))
    assert "cut for 3 ranks (fsdp=3); each reads 423 kB to 428 kB\n" in str(uneven)
    assert port.plan(tiny, tmp_path / "out", to="dcp").rank_bytes == ()
    assert "stored by" not in str(port.plan(tiny, tmp_path / "out", to="dcp"))


def test_other_ranks_are_another_port(tiny: Path, tmp_path: Path) -> None:
    plan = port.plan(tiny, tmp_path / "out", to="dcp", mesh=Mesh((2, 2), ("fsdp", "tp")))
    other = replace(plan, mesh=Mesh((2, 2), ("tp", "fsdp")))  # whose files may be as long
    with open_source(tiny) as source:
        assert key_of(plan, source) != key_of(other, source)
