"""Where the files of the repository are, and a way to run Python outside this process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = (
    ROOT / "xlayout",
    ROOT / "backends" / "xlayout_jax",
    ROOT / "backends" / "xlayout_native",
    ROOT / "backends" / "xlayout_numpy",
    ROOT / "backends" / "xlayout_torch",
    ROOT / "backends" / "xlayout_triton",
)

# Without bytecode, imports would take several times as long as they do for users.
UNUSUAL = {"PYTHONDONTWRITEBYTECODE"}


def sources(*folders: Path) -> list[Path]:
    """Every Python file below `folders`, sorted."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def relative(path: Path) -> str:
    """`path` relative to the root, for names of tests."""
    return path.relative_to(ROOT).as_posix()


def environment(*folders: Path, **variables: str) -> dict[str, str]:
    """This process's environment without `UNUSUAL`, with PYTHONPATH as given, and `variables`."""
    kept = {name: value for name, value in os.environ.items() if name not in UNUSUAL}
    return {**kept, "PYTHONPATH": os.pathsep.join(map(str, folders)), **variables}


def run(*command: str | Path, cwd: Path = ROOT, path: tuple[Path, ...] = ()) -> str:
    """What a command prints on both streams; if it fails, the test fails."""
    done = attempt(*command, cwd=cwd, path=path)
    assert done.returncode == 0, done.stdout
    return done.stdout


def attempt(
    *command: str | Path, cwd: Path = ROOT, path: tuple[Path, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """The outcome of a command that may fail."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment(*path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )


def python(code: str) -> str:
    """What `code` prints in a fresh interpreter that can import this tree."""
    return run(sys.executable, "-c", code, path=(ROOT, ROOT / "backends"))


def printed(code: str, *arguments: str, quiet: bool = False, **variables: str) -> str:
    """The same for standard output only; unless `quiet`, standard error may warn about a fork."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        cwd=ROOT,
        env=environment(ROOT, ROOT / "backends", **variables),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (quiet and done.stderr), done.stderr
    return done.stdout.strip()
