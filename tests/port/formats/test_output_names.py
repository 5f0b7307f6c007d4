"""An output's name must leave room for that of the hidden folder in which it grows."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import numpy as np
import pytest

from xlayout import port
from xlayout.errors import PortError
from xlayout.port.formats import TensorSpec, create_sink

SPECS = {"a": TensorSpec("int8", (4,))}
FORMATS = ["safetensors", "maxtext", "dcp"]


@pytest.mark.parametrize("format_", FORMATS)
def test_a_name_that_leaves_no_room_is_refused_before_anything_is_made(
    tmp_path: Path, format_: str
) -> None:
    folder = tmp_path / "new"
    with create_sink(folder / ("é" * 118 + "x"), format_, SPECS) as sink:  # of 237 bytes
        sink.write("a", np.ones(4, np.int8))
        sink.commit()
    shutil.rmtree(folder)
    for name in ("é" * 119, "x" * 255, "x" * 256):
        with pytest.raises(PortError, match=r"a name of \d+ bytes; wanted at most 237, as the"):
            create_sink(folder / name, format_, SPECS)
    assert not list(tmp_path.iterdir())


def test_a_plan_says_so(wide_llama: Path, tmp_path: Path) -> None:
    plan = port.plan(wide_llama, tmp_path / ("x" * 226 + ".safetensors"), to="hf")
    assert "a name of 238 bytes; wanted at most 237" in plan.taken


def test_parents_that_were_made_for_nothing_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a filesystem that allows only shorter names than most."""

    def refuse(path: Path) -> None:
        raise OSError(errno.ENAMETOOLONG, "File name too long", str(path))

    monkeypatch.setattr("xlayout.port.formats.publish.new_stage", refuse)
    with pytest.raises(PortError, match="File name too long"):
        create_sink(tmp_path / "new" / "deep" / "out", "safetensors", SPECS)
    assert not list(tmp_path.iterdir())
