"""An argument of a wrong type is a TypeError, a wrong value a PortError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xlayout import port


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
