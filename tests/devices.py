"""Eight host devices for JAX, asked for before anything imports it.

A real accelerator is used only if it is named: `JAX_PLATFORMS=cuda,cpu pytest -m gpu`.
"""

from __future__ import annotations

import os

HOST_DEVICES = 8


def request_host_devices() -> None:
    """Ask JAX for several host devices, through the environment that it reads at first use."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    flags = os.environ.get("XLA_FLAGS", "")
    if "host_platform_device_count" not in flags:
        count = f"--xla_force_host_platform_device_count={HOST_DEVICES}"
        os.environ["XLA_FLAGS"] = f"{flags} {count}".strip()
