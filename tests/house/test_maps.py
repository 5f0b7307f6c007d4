"""A package that shows what is in it shows all of it, in order, and nothing that is not there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.tree import ROOT

MAPPED = [
    "xlayout/algebra", "xlayout/bench", "xlayout/lower", "xlayout/port", "xlayout/port/formats",
    "xlayout/shard", "xlayout/tp", "xlayout/torch/parallel", "xlayout/torch/tiled",
    "backends/xlayout_jax", "backends/xlayout_torch", "backends/xlayout_triton", "bench",
    "bench/gpu",
]  # fmt: skip
OPENING = ("__init__", "__main__")


def lines(package: str) -> list[list[str]]:
    """The modules on each line of a package's map; a folder of programs has it in `__main__`."""
    start = next(p for n in OPENING if (p := ROOT / package / f"{n}.py").exists())
    tree = ast.parse(start.read_text("utf-8"))
    told = ast.get_docstring(tree, clean=False) or ""
    found = re.findall(r"^ {4}((?:\w+, )*\w+)(?:  |$)", told, re.MULTILINE)
    return [line.split(", ") for line in found]


def imported(package: str, module: str) -> Iterator[str]:
    """The modules of a package that one of them imports on import; subpackages count as modules."""
    name = package.removeprefix("backends/").replace("/", ".")
    path = ROOT / package / module
    for file in path.rglob("*.py") if path.is_dir() else (path.with_suffix(".py"),):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ImportFrom) and node.module == name:
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and f"{node.module}".startswith(f"{name}."):
                yield f"{node.module}".removeprefix(f"{name}.").partition(".")[0]


@pytest.mark.parametrize("package", MAPPED)
def test_a_map_is_complete(package: str) -> None:
    modules = {p.stem for p in (ROOT / package).glob("*.py")} - {*OPENING}
    modules |= {p.parent.name for n in OPENING for p in (ROOT / package).glob(f"*/{n}.py")}
    assert sorted(module for line in lines(package) for module in line) == sorted(modules)


@pytest.mark.parametrize("package", MAPPED)
def test_a_map_goes_from_the_bottom_up(package: str) -> None:
    below: set[str] = set()
    for line in lines(package):
        below.update(line)
        for module in line:
            assert below.issuperset(imported(package, module)), module
