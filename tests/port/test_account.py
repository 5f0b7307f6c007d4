"""What does not fit is told in bounded time, whatever it is called and however much there is."""

from __future__ import annotations

import difflib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.port.models import edit_config, refused, save_tensors, tensors
from xlayout import port
from xlayout.errors import PortError
from xlayout.port.account import _matches, account
from xlayout.port.families.llama import LLAMA
from xlayout.port.families.qwen import QWEN3_MOE
from xlayout.port.fold import fold
from xlayout.port.formats import TensorSpec
from xlayout.port.formats.file_names import natural_key

SIZES = LLAMA.model_sizes(
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 96,
        "intermediate_size": 80,
    }
)


def test_a_name_may_be_a_number_too_long_for_python() -> None:
    long = f"x.{'1' * 5000}.y"
    there = {long: TensorSpec("int8", (0,))}
    with pytest.raises(PortError, match=r"unexpected \(1\): x\.1"):
        account(there, LLAMA.dialects["hf"], LLAMA, SIZES, absent=(), where="here")
    assert sorted([long, "x.2.y"], key=natural_key) == ["x.2.y", long]


def test_only_what_is_shown_gets_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    near = difflib.get_close_matches

    def count(word: str, *arguments: object, **options: object) -> list[str]:
        asked.append(word)
        return near(word, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(difflib, "get_close_matches", count)
    there = {f"model.norm.weigh{'x' * n}": TensorSpec("int8", (1,)) for n in range(100)}
    with pytest.raises(PortError, match=r"unexpected \(100\): .*; and 88 more") as error:
        account(there, LLAMA.dialects["hf"], LLAMA, SIZES, absent=(), where="here")
    assert str(error.value).count("did you mean model.norm.weight?") == len(asked) == 12


def test_a_hint_is_looked_for_among_few(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    near = difflib.get_close_matches

    def count(word: str, among: list[str], **options: object) -> list[str]:
        looked.append(len(among))
        return near(word, among, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(difflib, "get_close_matches", count)
    sizes = {**SIZES, "layer": 8, "expert": 100, "active": 2}
    there = {
        f"model.layers.{layer}.mlp.experts.{expert}.gate_prj.weight": TensorSpec("int8", (1,))
        for layer in range(8)
        for expert in range(100)
    }
    with pytest.raises(PortError, match=r"unexpected \(800\)") as error:
        account(there, QWEN3_MOE.dialects["hf"], QWEN3_MOE, sizes, absent=(), where="here")
    experts = "model.layers.7.mlp.experts.99.gate_prj.weight (did you mean "
    assert f"{experts}{experts.replace('prj', 'proj')[:-15]}?)" in str(error.value)
    assert max(looked) < 30


def test_a_name_may_have_more_numbers_than_python_calls() -> None:
    long = "x" + ".1" * 5000 + ".y"
    assert fold([long, long.replace("x.1", "x.2")]) == [f"x.{{1..2}}{long[3:]}"]


def test_names_whose_numbers_are_written_otherwise_stay_apart() -> None:
    names = ["x.1.y", "x.01.y", "x.\N{ARABIC-INDIC DIGIT ONE}.y", "x.2.y", "x.0.y"]
    assert fold(names) == ["x.{0..2}.y", *names[1:3]]


def test_only_so_many_shapes_are_told_and_a_missing_axis_is_one() -> None:
    sizes = {**SIZES, "layer": 14}
    norm = "model.layers.{}.input_layernorm.weight"
    there = {norm.format(n): TensorSpec("int8", (65 + n,)) for n in range(14)}
    there["model.embed_tokens.weight"] = TensorSpec("int8", (96,))
    with pytest.raises(PortError, match=r"and 3 more shapes$") as error:
        account(there, LLAMA.dialects["hf"], LLAMA, sizes, absent=(), where="here")
    assert "embed_tokens.weight: shape (96,); wanted (96, 64) = (vocab)" in str(error.value)
    assert str(error.value).count("wanted (64,) = (embed), by the config") == 11
    for n in (11, 12, 13):
        del there[norm.format(n)]
    with pytest.raises(PortError, match=r"shape \(75,\); [^\n]*, by the config$"):
        account(there, LLAMA.dialects["hf"], LLAMA, sizes, absent=(), where="here")


def test_as_many_names_as_are_shown_leave_none_to_count() -> None:
    more = {f"z{'y' * n}": (1,) for n in range(12)}
    assert told(complete(SIZES, **more)) == f"unexpected (12): {'; '.join(more)}"
    assert told(complete(SIZES, **more, a=(1,))).endswith("; and 1 more")


def complete(sizes: dict[str, int], **more: tuple[int, ...]) -> dict[str, TensorSpec]:
    """All tensors of a model that is not tied, and more, or some of them in other shapes."""
    places = LLAMA.dialects["hf"].places(sizes)
    there = {place.tensor: place.rule.target_shape(sizes) for place in places}
    return {name: TensorSpec("int8", shape) for name, shape in (there | more).items()}


def told(there: dict[str, TensorSpec]) -> str:
    """What is told to be wrong with it."""
    with pytest.raises(PortError, match=r"^here: the tensors are not what the rules say:") as error:
        account(there, LLAMA.dialects["hf"], LLAMA, SIZES, absent=(), where="here")
    return str(error.value).partition("\n  ")[2]


def test_a_vocabulary_that_is_larger_than_stated_is_told_how_to_be_ported() -> None:
    embedding = "model.embed_tokens.weight"
    wanted = "wanted (96, 64) = (vocab) (embed), by the config"
    assert told(complete(SIZES, **{embedding: (128, 64)})) == (
        f"{embedding}: shape (128, 64); {wanted}; a vocabulary that was padded is ported with "
        "vocab_size: 128 in the config, and cut afterwards, as resize_token_embeddings of "
        "transformers does"
    )
    for shape in ((80, 64), (96, 65), (128, 65)):
        assert (
            told(complete(SIZES, **{embedding: shape})) == f"{embedding}: shape {shape}; {wanted}"
        )


def test_one_tensor_too_many_is_hinted_at_by_those_that_are_there() -> None:
    near = "model.norm.weights (did you mean model.norm.weight?)"
    assert told(complete(SIZES, **{"model.norm.weights": (64,)})) == f"unexpected (1): {near}"
    assert told(complete(SIZES, **{"x.9.y": (64,)})) == "unexpected (1): x.9.y"


def test_what_is_missing_and_no_head_is_only_named() -> None:
    there = complete(SIZES)
    del there["model.norm.weight"]
    with pytest.raises(PortError, match=r"missing \(1\): model\.norm\.weight$"):
        account(there, LLAMA.dialects["hf"], LLAMA, SIZES, absent=(), where="here")


def test_what_is_ignored_is_not_called_unported() -> None:
    dialect = replace(LLAMA.dialects["hf"], ignored=("x.*",), other=("x.y", "z"))
    there = complete(SIZES, **{"x.y": (), "z": ()})
    _, ignored, others = account(there, dialect, LLAMA, SIZES, absent=(), where="here")
    assert (ignored, others) == (("x.y",), ("z",))


def test_a_weight_is_neither_ignored_nor_unported_whatever_else_is() -> None:
    for more in ({"ignored": ("*",)}, {"other": ("*",)}):
        dialect = replace(LLAMA.dialects["hf"], **more)
        there = complete(SIZES, x=())
        _, *both = account(there, dialect, LLAMA, SIZES, absent=(), where="here")
        assert sorted(both) == [(), ("x",)]


def test_a_star_is_any_text() -> None:
    assert _matches("optimizer.a\nb", ["optimizer.*"])
    assert _matches("chained_" + "." * 100_000 + "\n", ["chained_*.*"])
    assert not _matches("chained_" + "x" * 100_000, ["chained_*.*"])


@pytest.mark.parametrize(
    ("to", "name"),
    [("hf", "lm_head.weight"), ("maxtext", "params/params/decoder/logits_dense/kernel")],
)
def test_a_missing_head_may_be_one_that_is_tied(
    own_llama: Path, tmp_path: Path, to: str, name: str
) -> None:
    edit_config(own_llama, tie_word_embeddings=True)
    arrays = tensors(own_llama)
    del arrays["lm_head.weight"]
    save_tensors(own_llama, arrays)
    port.run(own_llama, tmp_path / "tied", to=to)
    edit_config(tmp_path / "tied", tie_word_embeddings=None)
    text = f"missing (1): {name} (or tie_word_embeddings: true in the config)"
    refused(tmp_path / "tied", tmp_path / "out", f"{re.escape(text)}$")
