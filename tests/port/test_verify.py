"""Comparing checkpoints in canonical form: no difference goes unseen, and none is invented."""

from __future__ import annotations

import hashlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.port.models import MODELS, edit_config, save_llama, save_tensors, tensors
from xlayout import port
from xlayout.errors import PortError
from xlayout.port.checkpoint import open_checkpoint
from xlayout.port.demo.weights import make_tiny
from xlayout.port.move import Buffers
from xlayout.port.verify import compare

K = "model.layers.1.self_attn.k_proj.weight"


def test_one_flipped_bit_is_found(own_llama: Path, tmp_path: Path) -> None:
    port.run(own_llama, tmp_path / "tree", to="maxtext")
    arrays = tensors(own_llama)
    arrays[K].view(np.uint16)[100, 33] ^= 1
    save_tensors(own_llama, arrays)
    comparison = port.verify(own_llama, tmp_path / "tree")
    assert not comparison.identical
    assert not comparison.faithful
    assert [t.name for t in comparison.tensors if not t.faithful] == [K]
    assert "1 of 16,384 elements differ" in str(comparison)
    assert comparison.summary.endswith(", 1 differ")


def test_equal_weights_have_equal_digests_in_every_format(wide_llama: Path, tmp_path: Path) -> None:
    port.run(wide_llama, tmp_path / "tree", to="maxtext-default-rope")
    tree = port.verify(tmp_path / "tree", wide_llama)
    home = port.verify(wide_llama, wide_llama)
    stored = tensors(wide_llama)
    for found in home.tensors:
        whole = hashlib.blake2b(stored[found.name].tobytes(), digest_size=16)
        assert found.digest == whole.hexdigest()
    unscaled = {t.name: t.digest for t in home.tensors if "q_proj" not in t.name}
    assert unscaled.items() <= {t.name: t.digest for t in tree.tensors}.items()


def test_digests_may_be_left_out(wide_llama: Path) -> None:
    found = port.verify(wide_llama, wide_llama, digests=False)
    assert found.identical
    assert {t.digest for t in found.tensors} == {""}
    with pytest.raises(TypeError, match=r"^digests: 'no'; wanted True or False$"):
        port.verify(wide_llama, wide_llama, digests="no")  # type: ignore[arg-type]


def test_a_config_that_is_wrong_is_named(own_llama: Path, wide_llama: Path) -> None:
    edit_config(own_llama, num_attention_heads=5)
    text = re.escape(f"{own_llama}: config: heads / kv is 2.5; wanted a")
    with pytest.raises(PortError, match=f"^{text}"):
        port.verify(wide_llama, own_llama)


def test_a_digest_does_not_depend_on_the_tiles(wide_llama: Path) -> None:
    roomy = port.verify(wide_llama, wide_llama)
    tight = port.verify(wide_llama, wide_llama, max_ram=400_000)
    assert [t.digest for t in roomy.tensors] == [t.digest for t in tight.tensors]


def test_a_nan_comes_back_as_one_and_the_plan_says_no_more(own_llama: Path, tmp_path: Path) -> None:
    arrays = tensors(own_llama)
    arrays["model.norm.weight"].view(np.uint16)[0] = 0x7F81  # a signalling NaN; casts quiet it
    save_tensors(own_llama, arrays)
    report = port.run(own_llama, tmp_path / "wide", to="hf", dtype="float32")
    note = "exact: every element comes back bit for bit"
    assert str(report.plan).splitlines()[-1] == f"{note}, NaN as NaN"
    assert report.comparison is not None
    assert report.comparison.identical
    back = port.run(tmp_path / "wide", tmp_path / "back", to="hf", dtype="bfloat16")
    assert np.isnan(tensors(tmp_path / "back")["model.norm.weight"][0])
    assert back.comparison is not None
    assert back.comparison.identical
    same = port.run(own_llama, tmp_path / "same", to="hf")
    assert str(same.plan).splitlines()[-1] == note
    assert tensors(tmp_path / "same")["model.norm.weight"].view(np.uint16)[0] == 0x7F81


def test_a_missing_output_tensor_is_named(own_llama: Path, tmp_path: Path) -> None:
    port.run(own_llama, tmp_path / "other", to="hf")
    arrays = tensors(own_llama)
    del arrays["lm_head.weight"]
    save_tensors(own_llama, arrays)
    edit_config(own_llama, tie_word_embeddings=True)
    comparison = port.verify(own_llama, tmp_path / "other")
    assert comparison.only_second == ("lm_head.weight",)
    assert not comparison.faithful
    assert {t.verdict for t in comparison.tensors} == {"identical"}
    assert comparison.summary == "30 canonical tensors, 1 differ"
    lines = port.diff(own_llama, tmp_path / "other").lines
    assert ("lm_head.weight", "absent", "bfloat16 96 × 64") in lines


def test_models_of_different_sizes_are_not_compared(wide_llama: Path, tmp_path: Path) -> None:
    other = save_llama(tmp_path / "other", **MODELS["grouped"])
    with pytest.raises(PortError, match=r"llama and llama differ in \['dim', 'half'\]"):
        port.verify(wide_llama, other)


def test_models_of_two_families_are_compared_as_the_one_that_is_named(
    wide_llama: Path, own_llama: Path
) -> None:
    edit_config(own_llama, architectures=["MistralForCausalLM"])
    text = r"llama and mistral; wanted one family: if both follow it, name it with family="
    with pytest.raises(PortError, match=text):
        port.verify(wide_llama, own_llama)
    assert port.verify(wide_llama, own_llama, family="llama").identical


def test_a_port_that_wrote_something_else_is_found_out(
    wide_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from xlayout.port import stream

    real = stream.read_tile

    def careless(*arguments: object) -> object:
        tile = real(*arguments)  # type: ignore[arg-type]
        if tile.ndim == 1:
            tile[0] = 0
        return tile

    monkeypatch.setattr(stream, "read_tile", careless)
    with pytest.raises(PortError, match="out: not what was written") as error:
        port.run(wide_llama, tmp_path / "out", to="maxtext")
    assert "1 of 64 elements differ" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_diff_reads_headers_and_config_only(own_llama: Path, tmp_path: Path) -> None:
    port.run(own_llama, tmp_path / "tree", to="maxtext")
    edit_config(own_llama, rms_norm_eps=1e-3, zeta=0, alpha="a", kappa=[1], omega=2.5)
    found = port.diff(own_llama, tmp_path / "tree")
    assert found.lines == (
        ("config: alpha", "'a'", "absent"),
        ("config: kappa", "[1]", "absent"),
        ("config: omega", "2.5", "absent"),
        ("config: rms_norm_eps", "0.001", "1e-06"),
        ("config: zeta", "0", "absent"),
        ("model.layers.{0..2}.self_attn.q_proj.weight", "bfloat16 512 × 64", "float32 512 × 64"),
    )
    alike = "no difference in names, shapes, dtypes or config"
    assert alike not in str(found)
    same = port.diff(own_llama, own_llama)
    assert not same.lines
    assert alike in str(same)


def test_inspect_says_what_is_there_whatever_it_is(own_llama: Path) -> None:
    shown = " ".join(str(port.inspect(own_llama)).split())
    assert "model.layers.{0..2}.self_attn.q_proj.weight bfloat16 512 × 64" in shown
    assert "family llama, hf: every tensor accounted for" in shown
    edit_config(own_llama, architectures=["Unknown"])
    stranger = port.inspect(own_llama)
    assert len(stranger.tensors) == 30
    said = f"no family: {own_llama}: config: architectures is ['Unknown']; known are Llama"
    assert said in str(stranger)


def test_an_output_from_which_the_source_could_be_made_is_not_yet_what_was_written(
    wide_llama: Path, tmp_path: Path
) -> None:
    seen: list[int] = []

    def damage(nbytes: int) -> None:
        """At the end, flip the last bit of a float32, which rounding to bfloat16 hides again."""
        seen.append(nbytes)
        if len(seen) == 30:
            (file,) = tmp_path.glob(".out.*/output/model.safetensors")
            content = bytearray(file.read_bytes())
            content[-4] ^= 1
            file.write_bytes(content)

    with pytest.raises(PortError, match="out: not what was written") as error:
        port.run(wide_llama, tmp_path / "out", to="hf", dtype="float32", progress=damage)
    assert "first rounded from second" in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_summary_says_which_side_was_rounded(wide_llama: Path, tmp_path: Path) -> None:
    options = {"to": "maxtext", "dtype": "bfloat16", "exact": False}
    port.run(wide_llama, tmp_path / "out", **options)
    forth = port.verify(wide_llama, tmp_path / "out")
    assert forth.summary == "30 canonical tensors, 3 of them rounded in the second"
    back = port.verify(tmp_path / "out", wide_llama)
    assert back.faithful
    assert not back.ported
    assert back.summary.endswith(", 3 of them rounded on one side or the other")
    port.run(wide_llama, tmp_path / "all", to="hf", dtype="float8_e5m2", exact=False)
    every = port.verify(wide_llama, tmp_path / "all")
    assert every.summary == "30 canonical tensors, each rounded in the second"


def test_both_sides_together_stay_within_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the embedding each takes half; for queries that GGUF permuted, one takes two thirds."""
    gguf, out = make_tiny(tmp_path / "tiny.gguf"), tmp_path / "hf"
    taken: list[int] = []
    port.run(gguf, out, to="hf")

    class Counted(Buffers):
        def __init__(self, nbytes: int, /) -> None:
            taken.append(nbytes)
            super().__init__(nbytes)

    monkeypatch.setattr(sys.modules["xlayout.port.lanes"], "Buffers", Counted)
    for sides in ((gguf, out), (out, gguf)):
        taken.clear()
        assert port.verify(*sides, max_ram=160_000).identical
        assert 140_000 < sum(taken) <= 160_000


def test_no_name_is_looked_for_among_all_others(wide_llama: Path) -> None:
    """A model of experts has tens of thousands of them."""
    asked: list[str] = []

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            asked.append(self)
            return str.__eq__(self, other)

    with open_checkpoint(wide_llama) as opened:
        places: Any = [(Counted(name), place) for name, place in opened.places.items()]
        one, other = (replace(opened, places=dict(each)) for each in (places, places[:-1]))
        found = compare(one, other, max_ram=1 << 29, digests=False)
    assert found.only_first == (places[-1][0],)
    assert len(asked) < 3 * len(places)
