"""Reading and writing hold one region in memory, however large the checkpoint is."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

MIB = 1 << 20
ROWS, COLUMNS, STEP = 4096, 25_600, 128  # 200 MiB of bfloat16 in tiles of 6 MiB


PROGRAM = textwrap.dedent(
    """
    import re, sys
    from pathlib import Path
    import numpy as np
    from xlayout.port.formats import TensorSpec, create_sink, numpy_dtype, open_source

    path, kind, rows, columns, step = *sys.argv[1:3], *map(int, sys.argv[3:])
    tile = np.empty((step, columns), numpy_dtype("bfloat16"))

    def peak():
        status = Path("/proc/self/status").read_text()
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) << 10

    def cycle(rows):
        specs = {"x": TensorSpec("bfloat16", (rows, columns))}
        with create_sink(path + str(rows), kind, specs, chunks={"x": tile.shape}) as sink:
            for i in range(0, rows, step):
                tile.view(np.uint16)[...] = i
                sink.write("x", tile, (slice(i, i + step), slice(0, columns)))
            sink.commit()
        with open_source(path + str(rows)) as source:
            for i in range(0, rows, step):
                source.read("x", (slice(i, i + step), slice(0, columns)), tile)
                assert (tile.view(np.uint16) == i).all()

    cycle(step)  # the libraries are loaded and the buffers are there
    before = peak()
    cycle(rows)
    print(peak() - before)
    """
)


@pytest.mark.parametrize(
    ("kind", "limit"), [("safetensors", 16 * MIB), ("dcp", 16 * MIB), ("maxtext", 48 * MIB)]
)
def test_a_checkpoint_passes_through_in_tiles(tmp_path: Path, kind: str, limit: int) -> None:
    """The checkpoint has 200 MiB; tensorstore may hold a few tiles of its own."""
    arguments = [tmp_path / "out", kind, ROWS, COLUMNS, STEP]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < limit
