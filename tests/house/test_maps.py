"""A package that shows what is in it shows all of it, and nothing that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAPPED = [
    "xlayout/algebra", "xlayout/lower", "xlayout/shard",
    "backends/xlayout_jax", "backends/xlayout_torch", "backends/xlayout_triton",
]  # fmt: skip


@pytest.mark.parametrize("package", MAPPED)
def test_a_map_is_complete(package: str) -> None:
    tree = ast.parse((ROOT / package / "__init__.py").read_text("utf-8"))
    told = ast.get_docstring(tree, clean=False) or ""
    named = re.findall(r"^ {4}((?:\w+, )*\w+)  ", told, re.MULTILINE)
    modules = sorted(p.stem for p in (ROOT / package).glob("*.py") if p.stem != "__init__")
    assert sorted(", ".join(named).split(", ")) == modules
