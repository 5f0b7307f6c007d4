"""What holds for all examples: those of the packages, and those of the guide."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).with_name("tests")


@pytest.fixture(autouse=True, scope="module")
def tidied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Examples make temporary folders as users do; here they lie where pytest removes them.

    Tests have `tmp_path`, and compilers that they start keep the usual folder between runs.
    """
    if request.path.is_relative_to(TESTS):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("examples")))
        yield
