"""Programs that a test runs in processes of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

__all__ = ["script", "with_mount"]


def script(text: str, *args: object) -> list[str]:
    """Return the command line of a program with the formats imported."""
    head = """
        import os, shutil, sys, time
        from pathlib import Path
        import numpy as np
        from xlayout.errors import PortError
        from xlayout.port.formats import TensorSpec, create_sink, open_source
        """
    code = textwrap.dedent(head) + textwrap.dedent(text)
    return [sys.executable, "-c", code, *map(str, args)]


def with_mount(place: Path, option: str) -> list[str]:
    """Return what a command line begins with to have a tmpfs of its own at a place, or skip."""
    mount = f'mount -t tmpfs -o {option} none {place} && exec "$@"'
    private = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*private, "true"]).returncode:
        pytest.skip("needs a private mount namespace, which this system does not allow")
    return private
