"""Programs that a test runs in processes of their own."""

from __future__ import annotations

import sys
import textwrap

__all__ = ["script"]


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
