"""An argument of a wrong type is a TypeError, a wrong value a PortError."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xlayout import port
from xlayout.port.formats import create_sink, open_source, sniff

READ = ["safetensors", "gguf", "maxtext", "dcp"]
WRITTEN = ["safetensors", "maxtext", "dcp"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"to": ["hf"]}, r"to: \['hf'\]; hf, maxtext, maxtext-unscanned"),
        ({"to": None}, "to: None; hf, maxtext, maxtext-unscanned"),
        ({"family": ["llama"]}, r"family: \['llama'\]; known: llama, .*; or give a Family"),
        ({"dtype": np.float32}, r"dtype: <class .*>; float8_.*, float64 can be written$"),
        ({"max_ram": True}, "max_ram: True; wanted bytes, or text such as '512MiB' or '2GB'"),
        ({"max_ram": None}, "max_ram: None; wanted bytes, or text such as '512MiB' or '2GB'"),
    ],
)
def test_an_option_of_a_wrong_type_is_a_type_error(
    wide_llama: Path, tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    for verb in (port.plan, port.run):
        with pytest.raises(TypeError, match=text):
            verb(wide_llama, tmp_path / "out", **{"to": "maxtext", **options})
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", [3, None, b"model", ["model"], True])
def test_a_path_of_a_wrong_type_is_named(wide_llama: Path, tmp_path: Path, path: Any) -> None:
    source, output = "a checkpoint file or directory", "where the output will appear"
    calls: list[tuple[str, str, Callable[[], object]]] = [
        ("src", source, lambda: port.plan(path, tmp_path / "out", to="hf")),
        ("src", source, lambda: port.run(path, tmp_path / "out", to="hf")),
        ("dst", f"{output}: absent, or an empty f", lambda: port.plan(wide_llama, path, to="hf")),
        ("dst", f"{output}: absent, or an empty f", lambda: port.run(wide_llama, path, to="hf")),
        ("a", source, lambda: port.verify(path, wide_llama)),
        ("b", source, lambda: port.verify(wide_llama, path)),
        ("a", source, lambda: port.diff(path, wide_llama)),
        ("b", source, lambda: port.diff(wide_llama, path)),
        ("path", source, lambda: port.inspect(path)),
        ("path", source, lambda: sniff(path)),
        *(("path", source, lambda to=to: open_source(path, to)) for to in READ),
        *(("path", output, lambda to=to: create_sink(path, to, {})) for to in WRITTEN),
    ]
    for name, wanted, call in calls:
        with pytest.raises(TypeError, match=f"^{name}: {re.escape(repr(path))}; wanted {wanted}"):
            call()
    assert not list(tmp_path.iterdir())
