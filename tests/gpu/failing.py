"""Failing: tests for a run to report, which are collected only by name."""

from __future__ import annotations

import warnings

import pytest


def test_it_fails() -> None:
    pytest.fail("on purpose")


def test_a_warning_is_no_error() -> None:
    warnings.warn("old", DeprecationWarning, stacklevel=1)


def test_it_fails_too() -> None:
    pytest.fail("on purpose")
