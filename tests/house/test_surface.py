"""The public names are exactly those of `xlayout.__all__`, each one explained by an example."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

import xlayout
from xlayout.errors import __all__ as errors

NAMES = tuple(xlayout.__all__)
FUNCTIONS = [name for name in NAMES if inspect.isroutine(getattr(xlayout, name))]


def test_names_are_sorted_and_unique() -> None:
    assert list(NAMES) == sorted(set(NAMES))


def test_names_are_complete() -> None:
    public = {
        name
        for name, value in vars(xlayout).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - {"annotations"} == set(NAMES) - {"__version__"}


def test_every_error_is_public() -> None:
    assert set(errors) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_resolves_and_is_explained(name: str) -> None:
    assert inspect.getdoc(getattr(xlayout, name))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_shows_an_example(name: str) -> None:
    assert ">>> " in inspect.getdoc(getattr(xlayout, name))


@pytest.mark.parametrize(
    "name", [name for name, value in vars(xlayout.Layout).items() if not name.startswith("_")]
)
def test_a_member_of_layout_is_explained(name: str) -> None:
    assert inspect.getdoc(getattr(xlayout.Layout, name))
