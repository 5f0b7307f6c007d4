"""Beside the tensors lie a config that people can read, and companions with names of their own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from tests.port.formats.arrays import save
from xlayout.errors import FormatError
from xlayout.port.formats import open_source

OWN = {
    "safetensors": ["model-00001-of-00002.safetensors", "model.safetensors.index.json"],
    "maxtext": ["0"],
    "dcp": ["__0_1.distcp", ".metadata"],
}


def written(out: Path, format_: str, **options: Any) -> None:
    save(out, format_, {name: np.ones(4, np.int8) for name in "ab"}, max_shard_size=4, **options)


@pytest.mark.parametrize("format_", OWN)
def test_a_config_is_stored_as_text_in_its_own_order(tmp_path: Path, format_: str) -> None:
    config = MappingProxyType({"name": "é", "a": [1, 2.5, None]})
    written(tmp_path / "out", format_, config=config)
    text = (tmp_path / "out" / "config.json").read_text("utf-8")
    assert text.startswith('{\n  "name": "é",\n  "a": [\n    1,\n')
    assert text.endswith("]\n}\n")
    with open_source(tmp_path / "out") as source:
        assert source.config == config


@pytest.mark.parametrize("format_", OWN)
@pytest.mark.parametrize("config", [None, {}])
def test_without_a_config_none_is_stored(
    tmp_path: Path, format_: str, config: dict[str, Any] | None
) -> None:
    written(tmp_path / "out", format_, config=config)
    assert not (tmp_path / "out" / "config.json").exists()
    with open_source(tmp_path / "out") as source:
        assert (source.config, source.home) == ({}, None)


@pytest.mark.parametrize("format_", OWN)
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, format_: str) -> None:
    written(tmp_path / "out", format_, config={"a": 1})
    path = tmp_path / "out" / "config.json"
    path.write_text(f'"{99 * "x"}"')
    with pytest.raises(FormatError, match=f"^{path}: '{79 * 'x'}; wanted an object$"):
        open_source(tmp_path / "out")


@pytest.mark.parametrize("format_", OWN)
@pytest.mark.parametrize("value", [float("nan"), "\ud800", {1, 2}])
def test_a_config_that_json_cannot_hold_is_refused(
    tmp_path: Path, format_: str, value: Any
) -> None:
    with pytest.raises(FormatError, match=r"^config: .*; wanted values that JSON can hold$"):
        written(tmp_path / "out", format_, config={"a": value})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("format_", OWN)
def test_a_companion_takes_no_file_of_the_format_and_leads_nowhere_else(
    tmp_path: Path, format_: str
) -> None:
    (tmp_path / "mine").write_text("mine")
    for name in (*OWN[format_], "config.json", "../../mine", "a/b", "..", ""):
        text = f"beside: {name!r}; wanted the plain name of a file that the format does not write"
        with pytest.raises(FormatError, match=f"^{re.escape(text)} itself$"):
            written(tmp_path / "out", format_, config={"a": 1}, beside={name: b"other"})
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("format_", OWN)
def test_a_companion_has_any_name_that_a_file_may_have(tmp_path: Path, format_: str) -> None:
    names = [os.fsdecode(b"odd\xff"), "é" * 127 + "x", "a\nb", "...x"]
    written(tmp_path / "out", format_, beside=dict.fromkeys(names, b"mine"))
    assert all((tmp_path / "out" / name).read_text() == "mine" for name in names)
    for name in ("é" * 128, "\ud800", "\udfff"):
        with pytest.raises(FormatError, match=r"^beside: .*; wanted the plain name of a file that"):
            written(tmp_path / "other", format_, beside={name: b"mine"})


@pytest.mark.parametrize("format_", OWN)
def test_a_config_may_be_a_companion(tmp_path: Path, format_: str) -> None:
    written(tmp_path / "out", format_, beside={"config.json": b'{"a": 2}'})
    with open_source(tmp_path / "out") as source:
        assert source.config == {"a": 2}
