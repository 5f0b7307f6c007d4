"""Between processes, gloo on both sides: a DTensor becomes a jax.Array and back in one memory."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT, environment

TIMEOUT = 90


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


@pytest.mark.distributed
def test_a_dtensor_and_a_jax_array_are_one_memory_in_every_process() -> None:
    ports = free_port(), free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("rank.py"), str(rank), *map(str, ports)],
            env=environment(ROOT, ROOT / "backends", XLA_FLAGS="", JAX_PLATFORMS="cpu"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for process in ranks:
            out, err = process.communicate(timeout=TIMEOUT)
            assert process.returncode == 0, err[-3000:]
            assert out.splitlines()[-1].endswith("every case holds")
    finally:
        for process in ranks:
            process.kill()
            process.wait()
