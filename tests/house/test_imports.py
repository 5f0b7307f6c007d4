"""`import xlayout` is light, and one framework does not need another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.tree import python
from xlayout.port.demo.weights import make_tiny

HEAVY = {
    "numpy",
    "torch",
    "jax",
    "jaxlib",
    "flax",
    "ml_dtypes",
    "safetensors",
    "gguf",
    "tensorstore",
    "rich",
}

NEEDS = {"xlayout.cli": "typer", "xlayout.jax": "jax", "xlayout.torch": "torch"}
"""What parts of the package cannot be imported without."""

LOADED = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"

# Simulates a machine on which these modules are not installed.
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
    """The top-level modules that an interpreter has loaded after `code`."""
    return set(python(f"{code}\n{LOADED}").split())


def skip_without_needs(module: str) -> None:
    if module in NEEDS:
        pytest.importorskip(NEEDS[module])


def test_import_loads_no_framework() -> None:
    assert not loaded_by("import xlayout") & HEAVY


def test_the_probe_can_fail() -> None:
    assert loaded_by("import xlayout, numpy") & HEAVY == {"numpy"}


def test_ops_on_numpy_load_no_other_framework() -> None:
    code = "import numpy, xlayout; xlayout.interleave(numpy.arange(4))"
    assert not loaded_by(code) & {"torch", "jax", "jaxlib"}


@pytest.mark.parametrize("module", ["xlayout.port", "xlayout.cli"])
def test_files_and_the_terminal_wait_for_the_frameworks(module: str) -> None:
    skip_without_needs(module)
    assert not loaded_by(f"import {module}") & {"torch", "jax", "jaxlib", "transformers"}


def test_import_is_light() -> None:
    """From the standard library, nothing beyond what any typed dataclass needs.

    Modules are counted because a count holds on any machine, and a time only on a quiet one.
    """
    light = "__future__, contextvars, dataclasses, inspect, json, math, re, typing, weakref"
    light += ", warnings"  # which older versions of Python load by themselves
    more = loaded_by("import xlayout") - loaded_by(f"import {light}")
    assert more == {"xlayout", "xlayout_native"}


@pytest.mark.parametrize("part", ["bench", "cli", "draw", "jax", "port", "shard", "torch"])
def test_parts_wait_until_they_are_asked_for(part: str) -> None:
    skip_without_needs(f"xlayout.{part}")
    parts = "import sys; print(*(name for name in sys.modules if name.startswith('xlayout.')))"
    assert f"xlayout.{part}" not in python(f"import xlayout\n{parts}").split()
    assert f"xlayout.{part}" in python(f"import xlayout.{part}\n{parts}").split()


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


def test_a_table_of_positions_says_which_extra_it_needs() -> None:
    """The guide's first example, with only the core installed."""
    code = """
import xlayout
try:
    xlayout.Layout.parse("(g n) -> (n g)", (6,), g=2).index()
except ModuleNotFoundError as error:
    print(error.name, error)
"""
    told = "numpy index: No module named 'numpy'; pip install 'xlayout-arrays[numpy]'\n"
    assert python(without("numpy") + code) == told


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("twice", "_are_equal(None, None, None, None)"),  # `inspect`, where embeddings are tied
        ("losses", "measure(None, [])"),  # `plan` and `run`
        ("formats.base", "numpy_dtype('int8')"),  # `plan` with a dtype
        ("move", "Buffers(1)"),  # `verify`
    ],
)
def test_checkpoints_without_numpy_say_which_extra_it_is_of(module: str, call: str) -> None:
    code = f"""
import xlayout.port.{module} as module
try:
    module.{call}
except ModuleNotFoundError as error:
    print(error)
"""
    told = "numpy: not installed; pip install 'xlayout-arrays[port]' brings it\n"
    block = without("numpy") + "sys.modules['ml_dtypes'] = sys\n"  # which itself needs numpy
    assert python(block + code) == told


@pytest.mark.parametrize("numbers", [True, False])
def test_a_gguf_file_without_numpy_says_which_extra_it_is_of(tmp_path: Path, numbers: bool) -> None:
    gguf, np = pytest.importorskip("gguf"), pytest.importorskip("numpy")
    model = tmp_path / "tiny.gguf"
    if numbers:
        make_tiny(model)
    else:  # no number in its metadata, only a tensor
        writer = gguf.GGUFWriter(model, "llama")
        writer.add_tensor("x", np.zeros(4, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    code = f"""
from xlayout import port
try:
    port.inspect({str(model)!r})
except ModuleNotFoundError as error:
    print(error)
"""
    told = "numpy: not installed; pip install 'xlayout-arrays[port]' brings it\n"
    assert python(without("numpy") + code) == told


def test_a_state_dict_where_there_is_no_jax_is_told_what_runs_a_model() -> None:
    code = """
import xlayout
try:
    xlayout.tp.parallelize({"up_proj.weight": None}, None)
except ImportError as error:
    print(error)
"""
    told = "and jax is not installed; pip install 'xlayout-arrays[jax]'; of torch, give the module"
    printed = python(without("jax", "jaxlib") + code)
    assert printed == f"model: nested dicts run in JAX, {told} itself\n"


def test_a_framework_that_is_broken_is_not_said_to_be_absent() -> None:
    code = """
import sys
import numpy, xlayout
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ImportError("libc10.so: cannot open shared object file")
sys.meta_path.insert(0, Broken())
try:
    xlayout.to_torch(numpy.arange(4))
except ImportError as error:
    print(error)
"""
    told = "torch cannot be imported (libc10.so: cannot open shared object file)"
    assert python(code) == f"{told}; pip install 'xlayout-arrays[torch]'\n"


def test_flax_waits_for_the_layer_that_is_made_of_it() -> None:
    pytest.importorskip("jax")
    assert "flax" not in loaded_by("import xlayout.jax")
    code = """
import xlayout.jax
print(sorted(set(xlayout.jax.__all__) - set(dir(xlayout.jax))))
try:
    xlayout.jax.TiledLinear
except ImportError as error:
    print(error)
"""
    told = python(without("flax") + code)
    assert told.startswith("[]\nxlayout.jax.TiledLinear needs flax (No module named 'flax")
    assert told.endswith("); pip install 'xlayout-arrays[flax]'\n")


def test_jax_that_is_kept_out_is_not_asked_for() -> None:
    code = "import numpy, sys, xlayout as xl; sys.modules['jax'] = None  # as `import` reads it"
    crosses = "with xl.native(False): print(xl.to_numpy({'w': numpy.arange(2)})['w'].tolist())"
    assert python(f"{code}\n{crosses}").strip() == "[0, 1]"
