"""The kernel with small tiles: a copy of its sources in which sizes are a few kilobytes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from tests.house.tree import ROOT, environment

SMALL: Mapping[str, int] = {
    "CARRY_LINES": 1 << 10,
    "COMPOUND": 1 << 12,
    "COMPOUND_COLUMN": 128,
    "COMPOUND_IN": 64,
    "COMPOUND_LEAST": 1 << 10,
    "COMPOUND_ROW": 256,
    "BYTES": 128,
    "FEWER_ROWS": 128,
    "FEW_LONG": 1 << 13,
    "L1_SHARE": 1 << 11,
    "MORE_BYTES": 128,
    "MOST_BLOCKS": 1 << 11,
    "MOST_EDGY": 1 << 13,
    "PIECES": 1 << 11,
    "ROW": 256,
    "ROWS": 256,
    "RUN": 1 << 11,
    "SEVERAL_TILE": 1 << 12,
    "SIDE": 1 << 9,
    "SMALL": 1 << 12,
    "STAGE": 1 << 17,
    "STAGED": 1 << 11,
    "TILE": 1 << 13,
    "WIDE_BYTES": 512,
    "WIDE_ROWS": 64,
    "WINDOW": 1 << 14,
    "WINDOW_IN": 128,
}
"""Constants of the C files, and what to build them with: mostly a half to a sixteenth."""


def build(folder: Path, sizes: Mapping[str, int] = SMALL) -> ModuleType:
    """The kernel, compiled in the folder with these sizes.

    Raises:
        AssertionError: if a constant is not defined exactly once, or does not compile.
    """
    package = folder / "backends" / "xlayout_native"
    shutil.copytree(
        ROOT / "backends" / "xlayout_native", package, ignore=shutil.ignore_patterns("*.so")
    )
    shutil.copy(ROOT / "hatch_build.py", folder)
    files = sorted(package.glob("_*.h"))
    texts = {file: file.read_text("utf-8") for file in files}
    for name, value in sizes.items():
        start, end = rf"^((?:enum {{|   ) {name} = )", r"(?=,| }| /\*|$)"
        defined = re.compile(rf"{start}[^,/}}]+?{end}", re.MULTILINE)
        found = [file for file in files for _ in defined.finditer(texts[file])]
        assert len(found) == 1, f"{name} is defined {len(found)} times"
        texts[found[0]] = defined.sub(rf"\g<1>{value}", texts[found[0]])
    for file in files:
        file.write_text(texts[file], "utf-8")
    subprocess.run(
        [sys.executable, "hatch_build.py"],
        cwd=folder,
        env=environment(XLAYOUT_NATIVE="require", XLAYOUT_FFI="off", CFLAGS="-O1"),
        check=True,
    )
    path = package / "_copy.abi3.so"
    loader = ExtensionFileLoader("_copy", str(path))
    spec = spec_from_file_location("_copy", path, loader=loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
