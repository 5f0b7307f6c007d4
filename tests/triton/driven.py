"""Starts plans through Triton's own launcher, on a driver that only writes down what it is told.

    python -m tests.triton.driven LIBCUDA

It prints what was to be launched, and what the driver was asked about pointers.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

import torch
from triton.backends.nvidia.driver import CudaDriver
from triton.runtime import driver

from tests.triton.stands import kinds
from xlayout_torch import launches

FIRST, SECOND = (1 << 40, 1 << 41), (3 << 40, 5 << 40)
"""Addresses for two starts."""


class Launch(ctypes.Structure):
    """As the driver writes it down."""

    _fields_ = [
        *[(name, ctypes.c_uint64) for name in ("stream", "programs", "threads", "early")],
        ("parameters", ctypes.c_uint64 * 7),
    ]


def use_driver() -> None:
    """Have Triton compile for a Hopper GPU that is not there, and launch on it."""
    stands: Any = CudaDriver()
    stands.get_current_device = lambda: 0
    stands.set_current_device = stands.get_current_stream = lambda _device: 0
    stands.get_device_capability = lambda *_device: (9, 0)
    driver.set_active(stands)
    launches._chains = lambda _device: True  # type: ignore[assignment]
    launches.stream = lambda _device: 7


def main() -> None:
    """Start a plan of two launches twice."""
    sys.setdlopenflags(os.RTLD_LAZY)  # what the driver lacks is missed only where it is called
    library = ctypes.CDLL(sys.argv[1])
    use_driver()
    made = kinds("run", "turned")
    table = launches.words_of(made.words)
    ends = torch.zeros(2 * len(made.places), dtype=torch.int64)
    start = launches.started(made, table, ends)
    start(*FIRST)
    start(*SECOND)
    found = (Launch * ctypes.c_int.in_dll(library, "launches").value).in_dll(library, "launched")
    seen = [
        {name: getattr(one, name) for name, _ in Launch._fields_[:4]}
        | {"parameters": list(one.parameters)}
        for one in found
    ]
    asked = ctypes.c_int.in_dll(library, "asked").value
    wanted = [
        {
            "stream": 7,
            "programs": one.programs,
            "threads": 32 * one.tile.warps,
            "early": 1,
            "parameters": [
                table.data_ptr(), ends.data_ptr(), *where, one.first, one.jobs or 0, one.group
            ],
        }
        for where in (FIRST, SECOND)
        for one in made.launches
    ]  # fmt: skip
    sys.stdout.write(json.dumps({"launched": seen, "wanted": wanted, "asked": asked}))


if __name__ == "__main__":
    main()
