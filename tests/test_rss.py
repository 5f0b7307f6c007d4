"""The peak of a process is its own, whatever the process that started it held."""

from __future__ import annotations

import subprocess
import sys

from xlayout.rss import peak_rss

PARENT = """
import subprocess, sys
held = b"x" * (1 << 29)
child = "from xlayout.rss import peak_rss; print(peak_rss())"
del held
subprocess.run([sys.executable, "-c", child], check=True)
from xlayout.rss import peak_rss
print(peak_rss())
"""


def test_a_peak_is_of_this_process_alone() -> None:
    done = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True)
    child, parent = sorted(map(int, done.stdout.split()))
    assert child < 1 << 28
    assert parent > 1 << 29


def test_a_peak_takes_in_what_is_no_longer_held() -> None:
    before = peak_rss()
    held = b"x" * (before + (1 << 26))
    del held
    assert peak_rss() > before + (1 << 26)
