"""A picture says what `index()` says: every cell of the output names the input it comes from."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

import xlayout as xl
from xlayout import Layout

LAYOUTS = [
    xl.interleave.layout((12,), block=2),
    xl.fuse_qkv.layout((8,), (4,), (4,), heads=4, kv_heads=2),
    xl.split_qkv.layout((16, 3), heads=4, kv_heads=2),
    xl.matrix_transpose.layout((3, 4)),
    xl.pad.layout((4, 3), to=6),
    Layout.identity(()),
    Layout.identity((0, 3)),
]


def tips(layout: Layout) -> list[str]:
    """The texts of the cells, inputs first."""
    root = ET.fromstring(layout.draw())
    return [title.text or "" for title in root.findall(".//{*}rect/{*}title")]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_output_names_its_input(layout: Layout) -> None:
    unit = re.search(r"one cell = (\d+) elements", layout.draw())
    width = int(unit.group(1)) if unit else 1
    wanted = ["hole" if i < 0 else f"input {i // width}" for i in layout.index()[::width].tolist()]
    found = [tip.partition(": ")[2] for tip in tips(layout)]
    assert found[layout.in_size // width :] == wanted


def test_a_large_layout_is_drawn_in_part_and_says_so() -> None:
    layout = xl.interleave.layout((1 << 20, 64))
    assert len(tips(layout)) == 1024
    assert "more cells" in layout.draw()
    assert len(layout.draw()) < 400_000


def test_no_layout_is_too_large_to_draw() -> None:
    picture = Layout.permute((2**31, 2**31), (1, 0)).draw()
    width = int(ET.fromstring(picture).attrib["width"])
    assert picture.count("<rect") == 1024
    assert f"... {2**62 - 512} more cells" in picture
    assert width < 20_000  # all cells shown, in one row


def test_a_notebook_shows_the_picture() -> None:
    layout = xl.interleave.layout((6,))
    assert layout._repr_svg_() == layout.draw()
