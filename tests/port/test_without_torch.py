"""With JAX and no torch, the checkpoints of torch and Megatron-core are ported all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path

for module in ("torch", "transformers", "megatron"):
    sys.modules[module] = None  # importing it is an ImportError

from xlayout import port
from xlayout.port.demo.weights import make_tiny

here = Path(sys.argv[1])
gguf = make_tiny(here / "tiny.gguf")
for to in ("dcp", "megatron"):
    port.run(gguf, here / to, to=to)
    port.run(here / to, here / f"{to}-tree", to="maxtext")
    assert port.verify(gguf, here / f"{to}-tree").identical
"""


def test_dcp_is_written_and_read_without_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
