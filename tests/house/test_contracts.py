"""Each import contract holds, and is seen to fail on a planted violation."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, ROOT, attempt, relative

# contract -> (the file to add a line to, the line that breaks it)
VIOLATIONS = {
    "Imports point downwards": ("xlayout/algebra/piece.py", "import xlayout.registry"),
    "The core imports no framework": ("xlayout/lower/__init__.py", "def f():\n    import torch"),
    "The core computes without numpy": ("xlayout/errors.py", "def f():\n    import numpy"),
    "Only the registry names a backend": ("xlayout/ops/__init__.py", "import xlayout_torch"),
    "A backend imports its framework and nothing of ours": (
        "backends/xlayout_numpy/__init__.py",
        "import xlayout.errors",
    ),
    "Backends do not know one another": (
        "backends/xlayout_torch/__init__.py",
        "def f():\n    import xlayout_numpy",
    ),
    "The copy kernels need no framework": (
        "backends/xlayout_triton/__init__.py",
        "def f():\n    import torch",
    ),
    "The numpy backend needs neither torch nor JAX": (
        "backends/xlayout_numpy/__init__.py",
        "def f():\n    import jax.numpy",
    ),
    "The torch backend does not need JAX": ("backends/xlayout_torch/__init__.py", "import jax"),
    "The JAX backend does not need torch": ("backends/xlayout_jax/__init__.py", "import torch"),
}


def lint(root: Path) -> dict[str, str]:
    """Each contract's verdict on the tree at `root`, or why there is none."""
    command = Path(sys.executable).with_name("lint-imports")
    report = attempt(command, "--no-cache", cwd=root, path=(root, root / "backends")).stdout
    verdicts = re.findall(r"^(.+) (KEPT|BROKEN)", report, re.MULTILINE)
    return dict(verdicts) or {"no verdict": report.strip().splitlines()[-1]}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the tree to plant violations in."""
    for package in PACKAGES:
        shutil.copytree(
            package, tmp_path / relative(package), ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_every_contract_holds_and_has_a_violation_here(copy: Path) -> None:
    assert lint(copy) == dict.fromkeys(VIOLATIONS, "KEPT")


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_a_violation_breaks_its_contract_alone(copy: Path, contract: str) -> None:
    file, line = VIOLATIONS[contract]
    with (copy / file).open("a", encoding="utf-8") as out:
        out.write(f"\n{line}\n")
    assert lint(copy) == dict.fromkeys(VIOLATIONS, "KEPT") | {contract: "BROKEN"}


def test_a_module_without_a_place_in_the_layers_is_an_error(copy: Path) -> None:
    (copy / "xlayout" / "stray.py").write_text('"""A stray."""\n', encoding="utf-8")
    assert lint(copy)["Imports point downwards"] == "BROKEN"
