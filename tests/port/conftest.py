"""Tiny models, made once per session and never written to; and pools of ranks."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.port.models import MODELS, save_llama
from tests.tp.conftest import four as four
from tests.tp.conftest import two as two


@pytest.fixture(scope="session", params=MODELS, ids=lambda name: name.replace(", ", "-"))
def any_llama(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each tiny model in turn, in bfloat16."""
    return save_llama(tmp_path_factory.mktemp("hf") / "model", **MODELS[request.param])


@pytest.fixture(scope="session")
def wide_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with head_dim 128, whose query scale cannot be undone in bfloat16."""
    return save_llama(tmp_path_factory.mktemp("hf") / "wide", **MODELS["wide heads"])


@pytest.fixture
def own_llama(wide_llama: Path, tmp_path: Path) -> Path:
    """A copy of `wide_llama` that a test may damage."""
    return Path(shutil.copytree(wide_llama, tmp_path / "own"))


@pytest.fixture
def no_more_threads() -> Iterator[Callable[[], int]]:
    """Call it, and no thread can be started any more: there is no room for so large a stack."""
    usual = threading.stack_size()
    yield partial(threading.stack_size, 1 << 50)
    threading.stack_size(usual)
