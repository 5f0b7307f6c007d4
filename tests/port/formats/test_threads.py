"""Several threads read sources and write sinks, and the failure of one harms no other."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xlayout.errors import PortError
from xlayout.port.formats import TensorSpec, create_sink, open_files, open_source

SPECS = {name: TensorSpec("int64", (64, 32)) for name in "abcdefgh"}
FORMATS = ["safetensors", "dcp", "maxtext"]


def values(name: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.arange(2048).reshape(64, 32) * (ord(name) - 90)


def written(path: Path, format_: str) -> Path:
    with create_sink(path, format_, SPECS, max_shard_size=40_000) as sink:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: sink.write(name, values(name)), SPECS))
        sink.commit()
    return path


@pytest.mark.parametrize("format_", FORMATS)
def test_what_several_threads_wrote_several_threads_read(
    tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "_MOST", 2)  # so that threads want files that others closed
    with open_source(written(tmp_path / "out", format_)) as source, ThreadPoolExecutor(4) as pool:
        names = [*SPECS] * 20
        for name, found in zip(names, pool.map(source.read, names), strict=True):
            assert np.array_equal(found, values(name))


@pytest.mark.parametrize("format_", ["safetensors", "dcp"])
def test_a_write_that_fails_leaves_the_others_their_files(
    tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One write is stuck in its system call while another one fails."""
    within, failed = threading.Event(), threading.Event()
    pwrite = os.pwrite

    def slow(handle: int, data: memoryview, position: int) -> int:
        if bytes(data) == values("a").tobytes():
            within.set()
            failed.wait(60)
        elif bytes(data) == values("b").tobytes():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(handle, data, position)

    def write() -> None:
        with create_sink(tmp_path / "out", format_, SPECS) as sink, ThreadPoolExecutor(1) as pool:
            monkeypatch.setattr(os, "pwrite", slow)
            other = pool.submit(sink.write, "a", values("a"))
            assert within.wait(60)
            with pytest.raises(PortError, match="the disk is full") as caught:
                sink.write("b", values("b"))
            failed.set()
            other.result()
            for again in (lambda: sink.write("c", values("c")), sink.seal, sink.commit):
                with pytest.raises(PortError, match="the disk is full") as repeated:
                    again()
                assert repeated.value is caught.value
            raise caught.value

    with pytest.raises(PortError, match="the disk is full"):
        write()
    assert not list(tmp_path.iterdir())
