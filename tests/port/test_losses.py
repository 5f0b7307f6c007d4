"""Values that would not come back are stored wider or refused before a byte moves, never rounded.

Exactness is decided by the dtypes where they settle it, otherwise by the actual numbers.
"""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests.port.models import refused, same_bytes, save_llama, save_tensors, tensors
from xlayout import port
from xlayout.errors import PortError
from xlayout.port.formats import create_sink, open_source

Q = "model.layers.{}.self_attn.q_proj.weight"


def test_a_rounded_scale_is_refused_with_its_percentage(wide_llama: Path, tmp_path: Path) -> None:
    with pytest.raises(PortError, match="would lose values") as error:
        port.plan(wide_llama, tmp_path / "out", to="maxtext", dtype="bfloat16")
    text = str(error.value)
    share = re.search(r"q_proj\.weight: ([\d.]+) % of the elements do not come back", text)
    assert share
    assert float(share[1]) == pytest.approx(14.6, abs=0.5)
    assert "times 1/√dim = 0.08839 rounded to bfloat16" in text
    assert "Leave dtype out to store them in float32, which is exact" in text
    assert "k_proj" not in text
    refused(wide_llama, tmp_path / "out", "would lose values", dtype="bfloat16")


def test_rounding_is_done_when_asked_for_and_said(wide_llama: Path, tmp_path: Path) -> None:
    options = {"to": "maxtext", "dtype": "bfloat16", "exact": False}
    report = port.run(wide_llama, tmp_path / "out", **options)
    (loss,) = report.plan.losses
    assert 0.14 < loss.lost / loss.sampled < 0.155
    assert "lost, as exact=False (--lossy) allows: model.layers.{layer}." in str(report.plan)
    assert report.comparison is not None
    assert report.comparison.faithful
    assert not report.comparison.identical
    port.run(tmp_path / "out", tmp_path / "back", to="hf", exact=False)
    assert not same_bytes(wide_llama, tmp_path / "back")


def test_a_narrower_dtype_is_refused_unless_nothing_is_lost(
    own_llama: Path, tmp_path: Path
) -> None:
    port.run(own_llama, tmp_path / "wide", to="hf", dtype="float32")
    port.run(tmp_path / "wide", tmp_path / "back", to="hf", dtype="bfloat16")
    assert same_bytes(own_llama, tmp_path / "back")
    arrays = tensors(tmp_path / "wide")
    arrays["model.norm.weight"][3] += np.float32(1e-6)
    save_tensors(tmp_path / "wide", arrays)
    refused(tmp_path / "wide", tmp_path / "out", "model.norm.weight: 1.6 %", dtype="bfloat16")


@pytest.fixture
def beside_the_sample(wide_llama: Path, tmp_path: Path) -> Path:
    """In float32, with an element that is no bfloat16 in layer 2; the sample is of layer 0."""
    port.run(wide_llama, tmp_path / "wide", to="hf", dtype="float32")
    arrays = tensors(tmp_path / "wide")
    arrays[Q.format(2)][-1, -1] = np.float32(1 + 2**-20)
    save_tensors(tmp_path / "wide", arrays)
    return tmp_path / "wide"


def test_a_loss_that_the_sample_missed_stops_the_port(
    beside_the_sample: Path, tmp_path: Path
) -> None:
    port.plan(beside_the_sample, tmp_path / "out", to="hf", dtype="bfloat16")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(
        PortError, match=r"layers\.2\.self_attn\.q_proj\.weight: .* which its sample"
    ):
        port.run(beside_the_sample, tmp_path / "out", to="hf", dtype="bfloat16")
    assert sorted(tmp_path.iterdir()) == before


def test_numbers_at_the_end_of_the_range_are_stored_wider(tmp_path: Path) -> None:
    """An eighth of the least bfloat16 is not a bfloat16, though 1/8 is a power of two."""
    model = save_llama(tmp_path / "model", head_dim=64)
    arrays = tensors(model)
    arrays[Q.format(0)][0, :4] = np.array([1e-40, -1e-40, 3e38, 2.0**-126], "bfloat16")
    save_tensors(model, arrays)
    report = port.run(model, tmp_path / "tree", to="maxtext")
    assert set(report.plan.widened.values()) == {"bfloat16"}
    assert all("query" in name for name in report.plan.widened)
    assert report.comparison is not None
    assert report.comparison.identical
    port.run(tmp_path / "tree", tmp_path / "back", to="hf")
    assert same_bytes(model, tmp_path / "back")


def test_a_tree_without_its_origin_is_stored_wider_and_the_plan_says_so(tmp_path: Path) -> None:
    """Times √128, bfloat16 queries take float32; only the greatest numbers would take float64."""
    source = save_llama(tmp_path / "hf", head_dim=128)
    port.run(source, tmp_path / "tree", to="maxtext", dtype="bfloat16", exact=False)
    plan = port.run(tmp_path / "tree", tmp_path / "back", to="hf").plan
    queries = {name for name in plan.specs if "q_proj" in name}
    assert dict(plan.widened) == dict.fromkeys(queries, "bfloat16")
    assert {spec.dtype for name, spec in plan.specs.items() if name in queries} == {"float32"}
    assert "self_attn.q_proj.weight is stored wider than its origin" in str(plan)
    port.run(tmp_path / "back", tmp_path / "again", to="maxtext", dtype="bfloat16")
    assert_same_trees(tmp_path / "tree", tmp_path / "again")
    with_greatest = save_tree(tmp_path / "tree", tmp_path / "great", greatest=3e38)
    wide = port.run(with_greatest, tmp_path / "wide", to="hf").plan
    assert {spec.dtype for name, spec in wide.specs.items() if name in queries} == {"float64"}


def save_tree(source: Path, out: Path, /, *, greatest: float) -> Path:
    """Save a MaxText tree again, with one element of each query replaced."""
    with (
        open_source(source) as tree,
        create_sink(out, "maxtext", tree.tensors, config=tree.config) as sink,
    ):
        for name in tree.tensors:
            values = tree.read(name)
            if "query" in name:
                values.flat[0] = greatest
            sink.write(name, values)
        sink.commit()
    return out


def assert_same_trees(one: Path, other: Path, /) -> None:
    """Check that two MaxText trees hold the same bytes."""
    with open_source(one) as a, open_source(other) as b:
        assert a.tensors == b.tensors
        for name in a.tensors:
            assert a.read(name).tobytes() == b.read(name).tobytes(), name


def test_a_part_that_needs_more_room_than_the_others_is_refused_in_the_plan(
    tmp_path: Path,
) -> None:
    source = save_llama(tmp_path / "hf", num_key_value_heads=2)
    port.run(source, tmp_path / "tree", to="maxtext")
    save_tree(tmp_path / "tree", tmp_path / "big", greatest=3e38)  # four times that is no bfloat16
    text = "linear_qkv.weight: its parts are float64 and bfloat16; a tensor has one dtype"
    refused(tmp_path / "big", tmp_path / "out", text, to="megatron")
    port.run(tmp_path / "big", tmp_path / "out", to="megatron", dtype="float64")


def test_layers_of_several_dtypes_are_each_measured_and_stored_wider_on_their_own(
    tmp_path: Path,
) -> None:
    model = save_llama(tmp_path / "model", head_dim=64)
    arrays = tensors(model)
    arrays[Q.format(0)][0, 0] = np.array(1e-40, "bfloat16")
    for layer in (1, 2):
        arrays[Q.format(layer)] = arrays[Q.format(layer)] * np.float32(1 + 2**-20)
    save_tensors(model, arrays)
    report = port.run(model, tmp_path / "tree", to="maxtext-unscanned")
    (wide,) = report.plan.widened
    assert "layers_0" in wide
    assert report.comparison is not None
    assert report.comparison.identical
    port.run(tmp_path / "tree", tmp_path / "back", to="hf")
    assert same_bytes(model, tmp_path / "back")
    lossy = port.plan(model, tmp_path / "x", to="hf", dtype="float16", exact=False)
    assert [loss.change.source for loss in lossy.losses if "q_proj" in loss.tensor] == [
        "bfloat16",
        "float32",
    ]
    rows = [line for line in str(lossy).splitlines() if "q_proj" in line][:2]
    assert "layers.0.self_attn" in rows[0]
    assert "bfloat16 → float16" in rows[0]
    assert "layers.{1..2}.self_attn" in rows[1]
    assert "float32 → float16" in rows[1]


def test_a_number_at_the_end_of_the_range_that_the_sample_missed_is_named_with_its_dtype(
    tmp_path: Path,
) -> None:
    model = save_llama(tmp_path / "model", head_dim=64)
    arrays = tensors(model)
    arrays[Q.format(2)][0, 0] = np.array(1e-40, "bfloat16")
    save_tensors(model, arrays)
    with pytest.raises(PortError, match="did not show; dtype='float32' holds them"):
        port.run(model, tmp_path / "tree", to="maxtext")
    assert port.run(model, tmp_path / "tree", to="maxtext", dtype="float32").comparison.identical


def test_weights_trained_further_in_float32_name_the_dtype_they_need(
    own_llama: Path, tmp_path: Path
) -> None:
    port.run(own_llama, tmp_path / "tree", to="maxtext-unscanned")
    with open_source(tmp_path / "tree") as source:
        specs, config = source.tensors, source.config
        with create_sink(tmp_path / "new", "maxtext", specs, config=config) as sink:
            for name in specs:
                array = source.read(name)
                sink.write(name, array + array.dtype.type(2**-12) if "query" in name else array)
            sink.commit()
    refused(
        tmp_path / "new",
        tmp_path / "out",
        "Name dtype='float64' .--dtype., which is exact",
        to="hf",
    )
    assert port.run(tmp_path / "new", tmp_path / "out", to="hf", dtype="float64").comparison


def test_a_sample_that_lost_nothing_proves_nothing_of_the_rest(
    beside_the_sample: Path, wide_llama: Path, tmp_path: Path
) -> None:
    options = {"to": "hf", "dtype": "bfloat16", "exact": False}
    report = port.run(beside_the_sample, tmp_path / "out", **options)
    assert not report.plan.exact
    assert "exact: every element" not in str(report.plan)
    assert str(report.plan).splitlines()[-1] == (
        "a sample of each rule's first tensor lost nothing; the rest was not looked at, and the "
        "comparison after the run tells"
    )
    assert report.comparison is not None
    assert not report.comparison.identical
    proven = port.plan(wide_llama, tmp_path / "x", to="hf", dtype="float32", exact=False)
    assert str(proven).splitlines()[-1].startswith("exact: every element comes back bit for bit")


def test_what_overflows_is_not_called_rounded(own_llama: Path, tmp_path: Path) -> None:
    arrays = tensors(own_llama)
    arrays[Q.format(0)][...] = np.array(1.0, "bfloat16")
    arrays[Q.format(0)][:256] = np.array(1e6, "bfloat16")  # float16 ends at 65,504
    arrays["model.norm.weight"][:3] = np.array([np.inf, -np.inf, np.nan], "bfloat16")
    save_tensors(own_llama, arrays)
    options = {"to": "hf", "dtype": "float16", "exact": False}
    report = port.run(own_llama, tmp_path / "out", **options)
    (loss,) = (loss for loss in report.plan.losses if "q_proj" in loss.tensor)
    assert (loss.lost, loss.overflowed) == (16_384, 16_384)
    assert str(loss).endswith("to float16), of these 100.0 % overflow to infinity")
    assert report.comparison is not None
    assert report.comparison.summary.endswith("each rounded; 16,384 elements overflowed")
    assert "second rounded: 50.0 % do not come back, 16,384 overflowed" in str(report.comparison)
    back = port.verify(tmp_path / "out", own_llama)
    assert "first rounded from second, 16,384 overflowed" in str(back)
    norms = next(t for t in report.comparison.tensors if t.name == "model.norm.weight")
    assert norms.overflowed == 0


def test_a_few_of_many_are_not_none(own_llama: Path, tmp_path: Path) -> None:
    arrays = {name: np.ones_like(array) for name, array in tensors(own_llama).items()}
    arrays["model.embed_tokens.weight"][0, 0] = np.array(2.0**-30, "bfloat16")
    save_tensors(own_llama, arrays)
    text = r"model\.embed_tokens\.weight: under 0\.1 % of the elements do not come back"
    refused(own_llama, tmp_path / "out", text, to="hf", dtype="float16")
    plan = port.plan(own_llama, tmp_path / "out", to="hf", dtype="float16", exact=False)
    assert "under 0.1 %" in str(plan)


def test_a_sample_takes_no_more_memory_than_was_allowed(tmp_path: Path) -> None:
    rule = port.Rule("a", "a", "h w")
    dialects = {"hf": port.Dialect("safetensors", (rule,))}
    family = port.Family("own", (), {"h": "2048", "w": "1024"}, dialects)
    (tmp_path / "config.json").write_text('{"dtype": "float32"}')
    values = np.random.default_rng(0).normal(size=(2048, 1024)).astype(np.float32)
    values[1023, 3] = 1e6  # the sample's last row, at the end of a piece
    save_tensors(tmp_path, {"a": values})

    def planned(max_ram: int) -> port.PortPlan:
        options = {"family": family, "dtype": "float16", "exact": False, "max_ram": max_ram}
        return port.plan(tmp_path, tmp_path / "out", to="hf", **options)  # type: ignore[arg-type]

    roomy, _ = planned(1 << 29), planned(1 << 20)  # which has loaded what it needs
    tracemalloc.start()
    try:
        tight = planned(1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (loss,) = roomy.losses
    assert (loss.sampled, loss.overflowed) == (1 << 20, 1)
    assert tight.losses == roomy.losses
    assert peak < 2 << 20
