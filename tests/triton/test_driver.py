"""Triton's own launcher gives a driver what a launch was given, and asks it nothing meanwhile."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.triton.conftest import INTERPRETED, TRITON

HERE = Path(__file__).parent
COMPILER = shutil.which("cc")
HEADER = Path(sysconfig.get_path("include"), "Python.h")
pytestmark = [
    pytest.mark.skipif(not TRITON or INTERPRETED, reason="Triton does not compile here"),
    pytest.mark.skipif(not (COMPILER and HEADER.exists()), reason="nothing compiles C here"),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the driver was told."""
    import triton

    folder = tmp_path_factory.mktemp("driver")
    library = folder / "libcuda.so.1"
    headers = Path(triton.__file__).parent / "backends/nvidia/include"
    build = COMPILER, "-shared", "-fPIC", f"-I{headers}", str(HERE / "driver.c"), "-o", str(library)
    subprocess.run([str(word) for word in build], check=True, timeout=60)
    places = {"TRITON_LIBCUDA_PATH": str(folder), "LD_LIBRARY_PATH": str(folder)}
    run = subprocess.run(
        [sys.executable, "-m", "tests.triton.driven", str(library)],
        env=os.environ | places | {"TRITON_CACHE_DIR": str(folder / "cache")},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_it_is_told_where_to_copy_from_and_to(told: dict[str, Any]) -> None:
    assert len(told["launched"]) == 4
    assert told["launched"] == told["wanted"]


def test_it_is_asked_nothing_about_pointers(told: dict[str, Any]) -> None:
    """For each tensor Triton would ask it each time where the memory is."""
    assert told["asked"] == 0
