"""What every test may ask for: the frameworks, and how thorough hypothesis is."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
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

# Only type checkers read these files; they are never run.
collect_ignore = ["typing"]


@pytest.fixture(params=FRAMEWORKS, ids=lambda framework: framework.name)
def backend(request: pytest.FixtureRequest) -> Framework:
    """Each framework in turn; `.array`, `.numpy` and `.call` are all that a test needs from it."""
    framework: Framework = request.param
    if module := missing(framework):
        pytest.skip(f"{module} is not installed")
    return framework


@pytest.fixture
def no_graph_of_another_test() -> Iterator[None]:
    """What torch.compile has made for other tests is forgotten, as is what it makes here."""
    import torch

    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore the files that cannot be imported because a framework is missing."""
    absent = {name for name in ("torch", "jax") if importlib.util.find_spec(name) is None}
    if collection_path.suffix != ".py" or not absent:
        return None
    return True if absent & _imported(collection_path) else None


def _imported(path: Path, seen: frozenset[Path] = frozenset()) -> set[str]:
    """The frameworks that a file imports on import, directly or through other test files."""
    text = path.read_text()
    names = set(re.findall(r"^(?:import|from) (?:xlayout_)?(\w+)", text, re.MULTILINE))
    for module, first in re.findall(r"^from (tests[\w.]*) import (\w+)", text, re.MULTILINE):
        base = Path(__file__).parents[1].joinpath(*module.split("."))
        for other in (base.with_suffix(".py"), base / f"{first}.py"):  # a name in it, or a module
            if other.exists() and other not in seen:
                names |= _imported(other, seen | {path})
    return names
