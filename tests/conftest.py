"""What every test may ask for: the frameworks, and how hard hypothesis tries."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

import pytest
from hypothesis import settings

from tests.devices import request_host_devices
from tests.frameworks import FRAMEWORKS, Framework, missing

request_host_devices()

# HYPOTHESIS_PROFILE=dev while writing, thorough before a release.
settings.register_profile("ci", deadline=None, max_examples=60, print_blob=True)
settings.register_profile("dev", parent=settings.get_profile("ci"), max_examples=20)
settings.register_profile("thorough", parent=settings.get_profile("ci"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Read by type checkers, never run.
collect_ignore = ["typing"]


@pytest.fixture(params=FRAMEWORKS, ids=lambda framework: framework.name)
def backend(request: pytest.FixtureRequest) -> Framework:
    """Each framework in turn; `.array`, `.numpy` and `.call` are all a test needs of it."""
    framework: Framework = request.param
    if module := missing(framework):
        pytest.skip(f"{module} is not installed")
    return framework


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the files that cannot be imported where a framework is missing."""
    if collection_path.suffix != ".py":
        return None
    absent = [name for name in ("torch", "jax") if importlib.util.find_spec(name) is None]
    if not absent:
        return None
    needs = re.findall(
        r"^(?:import|from) (?:xlayout_)?(\w+)", collection_path.read_text(), re.MULTILINE
    )
    return True if set(absent) & set(needs) else None
