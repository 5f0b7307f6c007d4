"""What users install: the wheel and the editable install, where there is no torch and no JAX."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.house.tree import PACKAGES, ROOT, attempt, run

TYPING = ROOT / "tests" / "typing"
USE = "import numpy, xlayout; print(xlayout.interleave(numpy.arange(6)).tolist())"


def build(kind: str, out: Path) -> Path:
    """A wheel of this tree by the build backend's own hook, without a network."""
    code = f"import sys; from hatchling.build import build_{kind} as build; build(sys.argv[1])"
    run(sys.executable, "-c", code, out)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What users install, but for optimisations, which would take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CFLAGS", "-O0")
        return build("wheel", tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module", params=["wheel", "editable"])
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The interpreter of a new environment with xlayout and numpy and nothing else."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "editable":
        wheel = build("editable", folder)
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps")
    run(*pip, wheel)
    # Not `site.getsitepackages`, which has several folders for Debian's Python.
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(python, "-c", where).strip())
    for part in Path(np.__file__).parent.parent.glob("numpy*"):
        (packages / part.name).symlink_to(part)
    return python


def test_the_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        notes = {Path(name).name for name in archive.namelist() if ".dist-info/" in name}
    expected = {
        path.relative_to(package.parent).as_posix()
        for package in PACKAGES
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".c", ".h")
    }
    assert held == expected
    assert {f"{package.name}/py.typed" for package in PACKAGES} <= held
    assert {"LICENSE", "METADATA", "entry_points.txt"} <= notes


def test_it_runs_without_the_frameworks(installed: Path, tmp_path: Path) -> None:
    assert run(installed, "-c", USE, cwd=tmp_path).strip() == "[0, 3, 1, 4, 2, 5]"
    absent = "import importlib.util as u; print(*map(u.find_spec, ['torch', 'jax']))"
    assert run(installed, "-c", absent, cwd=tmp_path).split() == ["None", "None"]


@pytest.mark.parametrize("file", ["ok.py", "bad.py"])
def test_a_consumer_sees_the_types(installed: Path, tmp_path: Path, file: str) -> None:
    """mypy, in a separate project, finds exactly the errors that the file marks."""
    source = (TYPING / file).read_text("utf-8")
    consumer = tmp_path / "consumer.py"
    consumer.write_text(source, "utf-8")
    mypy = (sys.executable, "-m", "mypy", "--strict", "--no-incremental")
    report = attempt(*mypy, "--python-executable", installed, consumer, cwd=tmp_path).stdout
    found = re.findall(r"consumer\.py:(\d+): error", report)
    marked = [n for n, line in enumerate(source.splitlines(), 1) if "# wrong: " in line]
    assert [int(n) for n in found] == marked, report
    assert bool(marked) == (file == "bad.py")
