"""On an accelerator, every promise holds; each is asked in a process of its own."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch")

if not torch.cuda.is_available():
    pytest.skip("torch sees no accelerator", allow_module_level=True)

from bench.gpu import kernel, promises  # noqa: E402 -- importing them asks for the device
from bench.gpu.ask import SECONDS, ask  # noqa: E402
from bench.gpu.case import CASES  # noqa: E402
from bench.gpu.here import ON_CUDA  # noqa: E402

MODULES = (promises.__name__, kernel.__name__)
PROMISES = {name: case for name, case in CASES.items() if case.ask.__module__ in MODULES}


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROMISES)
def test_promise(name: str) -> None:
    case = PROMISES[name]
    if case.devices > torch.cuda.device_count():
        pytest.skip(f"needs {case.devices} devices")
    end = time.monotonic() + 2 * SECONDS
    ((_, answer),) = ask(case.ask.__module__, [name], ON_CUDA | case.environment, end)
    assert answer["verdict"] == "ok", answer["finding"]
