"""What every test may ask for: the frameworks, and how hard hypothesis tries."""

from __future__ import annotations

import os

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
