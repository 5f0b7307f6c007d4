"""The tokenizer and related files go along: those of the directory, as they are now, or none."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from xlayout import port
from xlayout.errors import FormatError


def refused(source: Path, out: Path, text: str) -> None:
    """Both verbs refuse with all of this text, and leave no trace."""
    verbs: tuple[Callable[..., object], ...] = (port.plan, port.run)
    for verb in verbs:
        with pytest.raises(FormatError, match=f"^{re.escape(text)}$"):
            verb(source, out, to="hf")
    assert not out.exists()


def test_the_plan_names_them_and_the_run_copies_them(own_llama: Path, tmp_path: Path) -> None:
    (own_llama / "tokenizer.json").write_text("{}")
    (own_llama / "notes.txt").write_text("mine")
    (own_llama / "generation_config.json").unlink()
    plan = port.plan(own_llama, tmp_path / "out", to="hf")
    assert dict(plan.companions) == {"tokenizer.json": own_llama / "tokenizer.json"}
    assert "copies along: tokenizer.json\n" in str(plan)
    report = port.run(own_llama, tmp_path / "out", to="hf")
    assert report.companions == ("tokenizer.json",)
    assert "copied along: tokenizer.json" in str(report)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


TOKENIZERS = (
    *("added_tokens.json", "chat_template.jinja", "chat_template.json", "merges.txt"),
    *("sentencepiece.bpe.model", "special_tokens_map.json", "spiece.model", "tekken.json"),
    *("tiktoken.model", "tokenizer.json", "tokenizer.model", "tokenizer.model.v1"),
    *("tokenizer.model.v2", "tokenizer.model.v3", "tokenizer.model.v7", "tokenizer.tiktoken"),
    *("tokenizer_config.json", "vocab.bpe", "vocab.json", "vocab.txt"),
)


@pytest.mark.parametrize("part", ["", "model.safetensors"])
def test_the_plan_tells_files_of_tokenizers_from_what_stays(
    own_llama: Path, tmp_path: Path, part: str
) -> None:
    index = ("consolidated.safetensors.index.json",) if part else ()  # of a folder, it would be
    for name in (*TOKENIZERS, *index, "README.md", ".gitattributes", "pytorch_model.bin"):
        (own_llama / name).write_text("{}")
    plan = port.plan(own_llama / part, tmp_path / "out", to="hf")
    assert {*plan.companions} == {*TOKENIZERS, "generation_config.json"}
    assert plan.strays == ("README.md", "pytorch_model.bin")
    said = "not copied from beside the config: 'README.md', 'pytorch_model.bin'"
    assert said in str(plan).splitlines()


@pytest.mark.parametrize("to", ["hf", "maxtext", "dcp", "megatron"])
def test_the_files_of_a_format_are_no_strays(own_llama: Path, tmp_path: Path, to: str) -> None:
    port.run(own_llama, tmp_path / "there", to=to)
    assert port.plan(tmp_path / "there", tmp_path / "out", to="hf").strays == ()


@pytest.mark.parametrize("to", ["hf", "maxtext", "dcp"])
def test_folders_beside_the_config_are_named_but_for_those_of_the_format(
    own_llama: Path, tmp_path: Path, to: str
) -> None:
    port.run(own_llama, tmp_path / "there", to=to)
    templates = tmp_path / "there" / "additional_chat_templates"
    templates.mkdir()
    (templates / "tool_use.jinja").write_text("{{ messages }}")
    (tmp_path / "there" / "z.txt").write_text("mine")
    plan = port.plan(tmp_path / "there", tmp_path / "out", to="hf")
    assert plan.strays == ("z.txt", "additional_chat_templates/")


def test_what_a_training_run_of_megatron_keeps_beside_its_weights_is_named(
    own_llama: Path, tmp_path: Path
) -> None:
    port.run(own_llama, tmp_path / "there", to="megatron")
    (tmp_path / "there" / "common.pt").write_bytes(b"the arguments of a run, and its iteration")
    plan = port.plan(tmp_path / "there", tmp_path / "out", to="megatron")
    assert plan.strays == ("common.pt",)
    own = (tmp_path / "there" / "metadata.json").read_bytes()
    assert json.loads(own) == {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    (tmp_path / "there" / "metadata.json").write_bytes(own[:-1] + b" ")  # as long, and another
    plan = port.plan(tmp_path / "there", tmp_path / "out", to="megatron")
    assert plan.strays == ("common.pt", "metadata.json")


def test_a_link_out_of_the_directory_is_not_followed(own_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (own_llama / "tokenizer.json").symlink_to("../secret.txt")
    text = (
        f"{own_llama}/tokenizer.json: a link to {tmp_path}/secret.txt; wanted a file in {own_llama}"
    )
    refused(own_llama, tmp_path / "out", text)


def test_one_that_a_clone_has_not_fetched_is_refused(own_llama: Path, tmp_path: Path) -> None:
    file = own_llama / "tokenizer.json"
    file.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 9\n")
    text = f"{file}: a pointer of Git LFS; wanted the file that `git lfs pull` puts in its place"
    refused(own_llama, tmp_path / "out", text)


def test_the_links_of_a_hugging_face_cache_are_followed(own_llama: Path, tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "blobs").mkdir()
    home = Path(shutil.move(own_llama, tmp_path / "snapshots" / "main"))
    (tmp_path / "blobs" / "0a1b").write_text("{}")
    (home / "tokenizer.json").symlink_to("../../blobs/0a1b")
    port.run(home, tmp_path / "out", to="hf")
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"
    assert not (tmp_path / "out" / "tokenizer.json").is_symlink()


PLAN = """
import sys
from xlayout import port

try:
    port.plan(*sys.argv[1:], to="hf")
except Exception as error:
    print(type(error).__name__, error)
"""


def test_one_that_cannot_be_read_is_found_out_by_the_plan(own_llama: Path, tmp_path: Path) -> None:
    """In a namespace in which file modes apply to root too."""
    bound = ["unshare", "--user"]
    if shutil.which("unshare") is None or subprocess.run([*bound, "true"]).returncode:
        pytest.skip("needs a user namespace, which this system does not allow")
    (own_llama / "tokenizer.json").write_text("{}")
    (own_llama / "tokenizer.json").chmod(0)
    done = subprocess.run(
        [*bound, sys.executable, "-c", PLAN, own_llama, tmp_path / "out"],
        capture_output=True,
        text=True,
    )
    file = own_llama / "tokenizer.json"
    wanted = f"FormatError {file}: Permission denied; wanted a readable file\n"
    assert done.stdout == wanted, done.stderr


def test_one_file_has_no_place_for_them_and_the_plan_says_so(
    own_llama: Path, tmp_path: Path
) -> None:
    (own_llama / "tokenizer.json").write_text("{}")
    (own_llama / "generation_config.json").unlink()
    plan = port.plan(own_llama, tmp_path / "x.safetensors", to="hf")
    assert plan.companions == {}
    assert plan.unplaced == ("config.json", "tokenizer.json")
    assert (
        "lost, as one file has no place for it: config.json, tokenizer.json; a directory, a name "
        "that does not end in .safetensors, keeps it"
    ) in str(plan).splitlines()
    assert port.plan(own_llama, tmp_path / "x", to="hf").unplaced == ()
    assert port.run(own_llama, tmp_path / "x.safetensors", to="hf").plan == plan


@pytest.mark.parametrize("part", ["", "0", "0/items"])
def test_they_are_found_where_the_config_is(own_llama: Path, tmp_path: Path, part: str) -> None:
    for name in ("tokenizer.json", "spiece.model", "vocab.txt", "chat_template.json"):
        (own_llama / name).write_text("{}")
    port.run(own_llama, tmp_path / "tree", to="maxtext")
    found = port.run(tmp_path / "tree" / part, tmp_path / "out", to="hf").companions
    names = {"tokenizer.json", "spiece.model", "vocab.txt", "chat_template.json"}
    assert set(found) == names | {"generation_config.json"}


def test_they_are_found_beside_a_file(own_llama: Path, tmp_path: Path) -> None:
    (own_llama / "tokenizer.json").write_text("{}")
    found = port.run(own_llama / "model.safetensors", tmp_path / "out", to="hf").companions
    assert found == ("generation_config.json", "tokenizer.json")
    (tmp_path / "secret.txt").write_text("secret")
    (own_llama / "vocab.txt").symlink_to("../secret.txt")
    with pytest.raises(FormatError, match=r"vocab\.txt: a link to .*secret\.txt; wanted a file in"):
        port.plan(own_llama / "model.safetensors", tmp_path / "more", to="hf")


@pytest.mark.parametrize("form", ["hf", "dcp", "maxtext"])
def test_a_process_may_go_elsewhere_while_it_ports(
    own_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    (own_llama / "tokenizer.json").write_text("[1]")
    port.run(own_llama, tmp_path / "here" / "model", to=form)
    decoy = tmp_path / "there" / "model"
    decoy.mkdir(parents=True)
    (decoy / "tokenizer.json").write_text("[2]")
    monkeypatch.chdir(tmp_path / "here")
    port.run("model", "out", to="dcp", progress=lambda _: os.chdir(tmp_path / "there"))
    assert (tmp_path / "here" / "out" / "tokenizer.json").read_text() == "[1]"
    assert port.verify(own_llama, tmp_path / "here" / "out").identical
