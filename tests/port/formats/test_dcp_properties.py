"""What torch writes of each tensor besides its shape: five properties, and from 2.15 on strides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.checkpoint.metadata import TensorProperties

from tests.port.formats.arrays import bits
from tests.port.formats.dcp_saves import save_dcp, to_torch
from xlayout.errors import FormatError
from xlayout.port.formats import open_source

ARRAY = bits("float32", (4, 3))

Saved = Callable[..., Path]


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Saved:
    """A save of `ARRAY` as "x" with the first five properties and others."""

    def how(*more: object) -> Path:
        usual: Any = TensorProperties.__getstate__
        monkeypatch.setattr(TensorProperties, "__getstate__", lambda x: (*usual(x)[:5], *more))
        return save_dcp(tmp_path / "d", {"x": to_torch(ARRAY)})

    return how


@pytest.mark.parametrize("more", [(), (None,), ((3, 1),)])
def test_strides_are_read_over(saved: Saved, more: tuple[object, ...]) -> None:
    with open_source(saved(*more)) as source:
        assert source.read("x").tobytes() == ARRAY.tobytes()


def test_refuses_properties_of_which_nothing_is_known(saved: Saved) -> None:
    text = r"'x': properties \(.*\); wanted dtype, layout and three or four more$"
    with pytest.raises(FormatError, match=text):
        open_source(saved(None, 4))
