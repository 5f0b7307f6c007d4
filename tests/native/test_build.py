"""The build: compiled where there is a compiler, whole without one, and never stale."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import ROOT

PARTS = ("xlayout", "backends", "hatch_build.py", "pyproject.toml", "README.md", "LICENSE")
STATUS = "import xlayout_native as n; print(n.available, n.status())"

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no cc here")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the tree to build in, with nothing compiled."""
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, tmp_path / part, ignore=ignore)
        else:
            shutil.copy(source, tmp_path / part)
    return tmp_path


def python(tree: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python in the copy, with these variables set."""
    ours = ("CC", "CFLAGS", "XLAYOUT_NATIVE", "XLAYOUT_FFI")
    kept = {k: v for k, v in os.environ.items() if k not in ours}
    return subprocess.run(
        [sys.executable, *args],
        cwd=tree,
        env={**kept, "PYTHONPATH": str(tree / "backends"), **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def built(tree: Path) -> list[str]:
    """The shared objects in the package."""
    return sorted(path.name for path in (tree / "backends" / "xlayout_native").glob("*.so"))


@needs_compiler
def test_with_a_compiler_it_is_compiled_in_place_and_without_a_warning(tree: Path) -> None:
    done = python(tree, "hatch_build.py", XLAYOUT_NATIVE="require", CFLAGS="-O1 -Werror")
    assert (done.returncode, done.stderr) == (0, "")
    assert built(tree) == ["_copy.abi3.so"]
    assert python(tree, "-c", STATUS).stdout.startswith("True compiled, ")


@needs_compiler
@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ("off", ""),
        ("/nowhere", "XLAYOUT_FFI: '/nowhere' has no xla/ffi/api/c_api.h; going on without\n"),
    ],
)
def test_without_the_headers_of_xla_the_rest_is_there(tree: Path, headers: str, said: str) -> None:
    done = python(tree, "hatch_build.py", CFLAGS="-O0 -Werror", XLAYOUT_FFI=headers)
    assert (done.returncode, done.stderr) == (0, said)
    code = "import xlayout_native as n; print(n.available, n.ffi_handler(), n.status())"
    printed = python(tree, "-c", code).stdout
    assert printed.startswith("True None compiled, ")
    assert "for XLA too" not in printed


@needs_compiler
def test_headers_of_xla_that_do_not_fit_cost_no_more_than_its_calls(tree: Path) -> None:
    folder = tree / "headers" / "xla" / "ffi" / "api"
    folder.mkdir(parents=True)
    (folder / "c_api.h").write_text("#error of another time\n", "utf-8")
    done = python(tree, "hatch_build.py", CFLAGS="-O0", XLAYOUT_FFI=str(tree / "headers"))
    assert done.returncode == 0
    assert "xlayout_native: once more, without XLA's headers" in done.stderr
    printed = python(tree, "-c", "import xlayout_native as n; print(n.ffi_handler())").stdout
    assert printed == "None\n"


@pytest.mark.parametrize("compiler", ["/bin/false", "/bin/true", "/nowhere/cc", 'cc "'])
def test_without_a_compiler_the_package_is_there_and_says_so(tree: Path, compiler: str) -> None:
    stale = tree / "backends" / "xlayout_native" / "_copy.abi3.so"
    stale.write_bytes(b"stale")
    done = python(tree, "hatch_build.py", CC=compiler)
    assert done.returncode == 1
    assert "xlayout_native: pure Python, " in done.stderr
    assert built(tree) == []
    said = python(tree, "-c", STATUS).stdout
    assert said.startswith("False not in use: not compiled, for which installation needs a C comp")


def test_require_makes_a_failed_compile_an_error(tree: Path) -> None:
    done = python(tree, "hatch_build.py", CC="/bin/false", XLAYOUT_NATIVE="require")
    assert done.returncode == 1
    assert "xlayout_native: not compiled, " in done.stderr


def test_off_does_not_ask_for_a_compiler(tree: Path) -> None:
    done = python(tree, "hatch_build.py", XLAYOUT_NATIVE="off")
    assert done.returncode == 1
    assert "switched off by XLAYOUT_NATIVE=off" in done.stderr


def test_a_mode_that_is_empty_is_as_if_unset(tree: Path) -> None:
    done = python(tree, "hatch_build.py", CC="/bin/false", XLAYOUT_NATIVE="")
    assert "xlayout_native: pure Python, Command" in done.stderr


def test_an_unknown_mode_is_refused(tree: Path) -> None:
    done = python(tree, "hatch_build.py", XLAYOUT_NATIVE="on")
    assert "XLAYOUT_NATIVE: 'on'; wanted one of auto, require, off" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "compiler", [pytest.param("cc", marks=needs_compiler), "/bin/false"], ids=["cc", "none"]
)
def test_a_wheel_is_tagged_for_what_it_holds(tree: Path, compiler: str) -> None:
    build = "from hatchling.build import build_wheel; print(build_wheel('dist'))"
    in_use = tree / "backends" / "xlayout_native" / "_copy.abi3.so"
    in_use.write_bytes(b"of an editable install")
    scratch = tree / "scratch"
    scratch.mkdir()
    done = python(tree, "-c", build, CC=compiler, TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    assert in_use.read_bytes() == b"of an editable install"
    assert list(scratch.iterdir()) == []
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as held:
        names = [name for name in held.namelist() if name.startswith("xlayout_native/")]
        sizes = {Path(name).name: held.getinfo(name).file_size for name in names}
    modules = ("__init__", "keys", "overlap", "strided", "switch")
    files = {*(f"{name}.py" for name in modules), "_copy.pyi", "py.typed"}
    if compiler == "cc":
        assert "-cp311-abi3-" in wheel.name
        files.add("_copy.abi3.so")
        assert sizes["_copy.abi3.so"] > 100_000
    else:
        assert wheel.name.endswith("-py3-none-any.whl")
    assert {Path(name).name for name in names} == files
