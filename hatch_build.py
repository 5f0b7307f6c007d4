"""Compile xlayout_native._copy; without a working compiler the wheel is pure Python.

CC, CFLAGS, LDFLAGS   the compiler (default: cc), and flags placed after the defaults
XLAYOUT_NATIVE        auto (default) | require (a failed compile is an error) | off
XLAYOUT_FFI           folder with xla/ffi/api/c_api.h (default: an installed jaxlib's) | off

`python hatch_build.py` rebuilds in place, without pip.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    BuildHookInterface = Any
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    except ImportError:  # run as a script, without hatchling
        BuildHookInterface = object

PACKAGE = Path(__file__).resolve().parent / "backends" / "xlayout_native"
BUILT = PACKAGE / "_copy.abi3.so"
MODES = ("auto", "require", "off")


def flags(name: str) -> list[str]:
    """An environment variable, split into words."""
    return shlex.split(os.environ.get(name, ""))


def ffi() -> list[str]:
    """Flags that also build the kernel as a custom call of XLA, if jaxlib's headers are found."""
    # Under pip's build isolation only sysconfig still names the environment being installed into.
    folders = [f"{p}/jaxlib/include" for p in (*sys.path, sysconfig.get_path("platlib"))]
    given, header = os.environ.get("XLAYOUT_FFI"), "xla/ffi/api/c_api.h"
    if given == "off":
        return []
    for folder in [given] if given else folders:
        if Path(folder, header).is_file():
            return ["-DXLAYOUT_FFI", "-isystem", folder]
    if given:
        print(f"XLAYOUT_FFI: {given!r} has no {header}; going on without", file=sys.stderr)
    return []


def command(out: Path, more: list[str]) -> list[str]:
    """The command that compiles the C file into `out`, for Python's stable ABI from 3.11 on."""
    shared = (
        ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    )
    return [
        *(flags("CC") or ["cc"]),
        *("-O3", "-std=c11", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-pthread"),
        # Without these, a line added far from a loop may make it take half as long again.
        *("-falign-functions=64", "-falign-loops=32"),
        *shared,
        *("-DPy_LIMITED_API=0x030B0000", "-I", sysconfig.get_path("include")),
        *more,
        *flags("CFLAGS"),
        str(PACKAGE / "_copy.c"),
        *("-o", str(out)),
        *flags("LDFLAGS"),
    ]


def compile_native(built: Path) -> Path | None:
    """The compiled module, put at `built`; None if it cannot or should not be compiled."""
    mode = os.environ.get("XLAYOUT_NATIVE") or "auto"
    if mode not in MODES:
        raise SystemExit(f"XLAYOUT_NATIVE: {mode!r}; wanted one of {', '.join(MODES)}")
    new = built.with_name(f"_copy.{os.getpid()}.so")
    try:
        if mode == "off":
            raise OSError("switched off by XLAYOUT_NATIVE=off")
        headers = ffi()
        try:
            subprocess.run(command(new, headers), check=True)
        except subprocess.CalledProcessError:
            if not headers:
                raise
            print("xlayout_native: once more, without XLA's headers", file=sys.stderr)
            subprocess.run(command(new, []), check=True)
        return new.replace(built)  # atomic: a process that has mapped the old file keeps it
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        with suppress(OSError):  # the tree may be read-only, or missing
            built.unlink(missing_ok=True)  # a stale one must not be shipped or loaded
        if mode == "require":
            raise SystemExit(f"xlayout_native: not compiled, {error}") from error
        print(f"xlayout_native: pure Python, {error}", file=sys.stderr)
        return None


class CustomBuildHook(BuildHookInterface):  # type: ignore[misc,unused-ignore]
    """The hook that hatchling calls before and after collecting a wheel's files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a wheel that contains the result is tagged for its platform."""
        # A wheel's is built outside the source tree, where an editable install may use another.
        self.folder = None if version == "editable" else tempfile.TemporaryDirectory()
        built = Path(self.folder.name, BUILT.name) if self.folder else BUILT
        if not compile_native(built):
            return
        platform = self.build_config.builder.get_best_matching_tag().split("-", 2)[2]
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["pure_python"] = False
        if self.folder:
            build_data["force_include"][str(built)] = f"{PACKAGE.name}/{built.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the temporary folder, if there is one."""
        if self.folder:
            self.folder.cleanup()


if __name__ == "__main__":
    sys.exit(compile_native(BUILT) is None)
