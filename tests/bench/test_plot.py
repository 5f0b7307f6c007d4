"""The pictures name every op and every mark, and show memcpy as the line at 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.plot import figures, plot
from bench.record import save
from tests.bench.made import MB, results, row

pytest.importorskip("matplotlib")

ROWS = [
    row(xlayout_fresh=2.0, eager_fresh=8.0, xlayout_reused=1.1, eager_reused=4.0),
    row(dtype="uint8", xlayout_fresh=3.0, eager_fresh=30.0),
    row("transpose", family="transposes", xlayout_fresh=2.5, eager_fresh=12.0),
    row(framework="jax", xlayout_fresh=9.0, compiled_fresh=8.0),
    row(framework="numpy", xlayout_fresh=9.0, eager_fresh=8.0),
    row("stack", size=1024, family="small calls", unit=1e-7, xlayout_fresh=20.0, eager_fresh=10.0),
]


def test_a_picture_names_its_ops_and_marks() -> None:
    drawn = figures(results(ROWS))
    assert set(drawn) == {"", "-calls"}
    axes = drawn[""].axes
    assert [on.get_title(loc="left") for on in axes] == [
        "torch, into out=",
        "torch, fresh",
        "JAX, fresh",
        "numpy, into out=",
        "numpy, fresh",
    ]
    assert [label.get_text() for label in axes[0].get_yticklabels()] == ["zip", "transpose"]
    fresh = {text.get_text().strip() for text in axes[1].texts}
    assert fresh == {"memcpy", "xlayout", "eager"}
    assert {text.get_text() for text in drawn["-calls"].axes[1].texts} == {"xlayout", "eager"}


def test_marks_stand_at_their_figures_and_memcpy_at_one() -> None:
    on = figures(results(ROWS))[""].axes[1]
    drawn = [(str(line.get_marker()), sorted(np.array(line.get_xdata()))) for line in on.lines]
    assert sorted(x for marker, (x, *_) in drawn if marker != "None") == [2.0, 2.5, 8.0, 12.0]
    spans = [x for marker, x in drawn if marker == "None"]
    assert [1.0, 1.0] in spans
    assert [2.0, 3.0] in spans
    assert [8.0, 30.0] in spans


def test_a_framework_without_rows_has_no_panel() -> None:
    drawn = figures(results(one for one in ROWS if one.framework == "numpy"))
    assert [on.get_title(loc="left") for on in drawn[""].axes] == [
        "numpy, into out=",
        "numpy, fresh",
    ]


def test_pictures_lie_beside_the_results(tmp_path: Path) -> None:
    save(results(ROWS), tmp_path / "grid.json")
    drawn = plot(tmp_path / "grid.json")
    assert [path.name for path in drawn] == ["grid.png", "grid-calls.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_no_rows_no_picture(tmp_path: Path) -> None:
    save(results([row(size=4 * MB, xlayout_fresh=2.0)]), tmp_path / "grid.json")
    assert plot(tmp_path / "grid.json") == []
