"""`import xlayout` is light, and one framework does not need another."""

from __future__ import annotations

import re
import sys

import pytest

from tests.house.tree import ROOT, python, run

HEAVY = {
    "numpy",
    "torch",
    "jax",
    "jaxlib",
    "ml_dtypes",
    "safetensors",
    "gguf",
    "tensorstore",
    "rich",
}
BUDGET_MS = 60

LOADED = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"

# Stands in for a machine where these were never installed.
BLOCK = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
"""


def without(*blocked: str) -> str:
    """Code that makes `blocked` look uninstalled."""
    return BLOCK.format(blocked=blocked)


def loaded_by(code: str) -> set[str]:
    """The top-level modules that an interpreter holds after `code`."""
    return set(python(f"{code}\n{LOADED}").split())


def test_import_loads_no_framework() -> None:
    assert not loaded_by("import xlayout") & HEAVY


def test_the_probe_can_fail() -> None:
    assert loaded_by("import xlayout, numpy") & HEAVY == {"numpy"}


def test_ops_on_numpy_load_no_other_framework() -> None:
    code = "import numpy, xlayout; xlayout.interleave(numpy.arange(4))"
    assert not loaded_by(code) & {"torch", "jax", "jaxlib"}


@pytest.mark.parametrize("module", ["xlayout.port", "xlayout.cli"])
def test_files_and_the_terminal_wait_for_the_frameworks(module: str) -> None:
    assert not loaded_by(f"import {module}") & {"torch", "jax", "jaxlib", "transformers"}


def test_import_is_quick() -> None:
    # The best of several is what the import costs; the rest is what else the machine was doing.
    assert any(import_ms() < BUDGET_MS for _ in range(20))


def import_ms() -> float:
    """Cumulative milliseconds of `import xlayout` in a fresh interpreter."""
    code = ("-X", "importtime", "-c", "import xlayout")
    report = run(sys.executable, *code, path=(ROOT, ROOT / "backends"))
    found = re.search(r"\| +(\d+) \| xlayout$", report, re.MULTILINE)
    assert found, report
    return int(found[1]) / 1000


def test_torch_s_compiler_waits_until_it_is_asked_for() -> None:
    pytest.importorskip("torch")
    code = "import torch, xlayout as xl; xl.interleave(torch.ones(4)); xl.stack([torch.ones(1)])"
    assert "torch._dynamo" not in loaded_by(code)


@pytest.mark.parametrize(
    ("module", "absent"), [("numpy", "torch"), ("numpy", "jax"), ("torch", "jax"), ("jax", "torch")]
)
def test_ops_on_one_framework_work_without_the_other(module: str, absent: str) -> None:
    pytest.importorskip(module)
    array = {"numpy": "numpy.arange(4)", "torch": "torch.arange(4)", "jax": "jax.numpy.arange(4)"}
    code = f"import {module}, xlayout; print(xlayout.interleave({array[module]}).tolist())"
    assert python(without(absent, f"{absent}lib") + code).strip() == "[0, 2, 1, 3]"


@pytest.mark.parametrize("absent", ["torch", "jax"])
def test_exchange_says_which_extra_is_missing(absent: str) -> None:
    code = f"""
import numpy, xlayout
try:
    xlayout.to_{absent}(numpy.arange(4))
except ImportError as error:
    print(error)
"""
    assert f"xlayout-arrays[{absent}]" in python(without(absent, f"{absent}lib") + code)
