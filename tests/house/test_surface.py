"""The public names are those of `xlayout.__all__`, each explained by an example that runs."""

from __future__ import annotations

import importlib
import inspect
import pickle
import re
import subprocess
import sys
from dataclasses import fields
from doctest import DocTestFinder

import pytest

import xlayout
from xlayout.errors import __all__ as errors

NAMES = tuple(xlayout.__all__)
VALUES = {name: getattr(xlayout, name) for name in NAMES}
FUNCTIONS = [
    name for name, value in VALUES.items() if callable(value) and not inspect.isclass(value)
]
FIELDS = {field.name for field in fields(xlayout.Layout)}
MEMBERS = [name for name in vars(xlayout.Layout) if name not in FIELDS and name[0] != "_"]


def test_names_are_sorted_and_unique() -> None:
    assert list(NAMES) == sorted(set(NAMES))


def test_names_are_complete() -> None:
    ours = {
        name
        for name, value in vars(xlayout).items()
        if name[0] != "_" and getattr(value, "__module__", "").startswith("xlayout")
    }
    assert ours <= set(NAMES)


def test_every_error_is_public() -> None:
    assert set(errors) <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_explained(name: str) -> None:
    assert inspect.getdoc(VALUES[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_an_example_that_runs(name: str) -> None:
    """There is a doctest, and the test run collects it: a wrapped function can hide its own."""
    value = VALUES[name]
    module = importlib.import_module(value.__module__)
    found = {test.name for test in DocTestFinder(exclude_empty=True).find(module) if test.examples}
    assert f"{module.__name__}.{name}" in found


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_of_layout_is_explained(name: str) -> None:
    assert inspect.getdoc(getattr(xlayout.Layout, name))


RUN = ["out", "copy", "donate", "comm", "out_sharding", "in_sharding"]
OPS = [name for name in FUNCTIONS if hasattr(VALUES[name], "layout")]


def test_ops_are_found() -> None:
    assert {"interleave", "stack", "rearrange", "fuse_qkv", "to_tiles", "from_tiles"} <= set(OPS)


@pytest.mark.parametrize("name", OPS)
def test_an_op_and_its_layout_go_to_other_processes(name: str) -> None:
    op = VALUES[name]
    assert pickle.loads(pickle.dumps(op)) is op
    assert pickle.loads(pickle.dumps(op.layout)) is op.layout


@pytest.mark.parametrize("name", OPS)
def test_an_op_shows_every_option_that_it_takes(name: str) -> None:
    parameters = list(inspect.signature(VALUES[name]).parameters.values())
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert named[-len(RUN) :] == RUN
    assert [p.default for p in parameters if p.name in RUN] == [
        None, True, False, "auto", None, None,
    ]  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_an_op_explains_the_arguments_that_it_takes_and_no_others(name: str) -> None:
    parameters = inspect.signature(VALUES[name]).parameters.values()
    stars = {inspect.Parameter.VAR_KEYWORD: "**"}
    _, _, args = (inspect.getdoc(VALUES[name]) or "").partition("\nArgs:\n")
    block, _, _ = args.partition("\n\n")
    told = re.findall(r"^    ([\w*, ]+):", block, re.MULTILINE)
    assert ", ".join(told).split(", ") == [stars.get(p.kind, "") + p.name for p in parameters]


@pytest.mark.parametrize(
    "name", [name for name in OPS if "axis" in inspect.signature(VALUES[name]).parameters]
)
def test_an_op_along_an_axis_says_what_it_raises_where_there_is_none(name: str) -> None:
    assert re.search(r"^    AxisError: when", inspect.getdoc(VALUES[name]) or "", re.MULTILINE)


@pytest.mark.parametrize("name", OPS)
def test_the_layout_of_an_op_shows_its_options_and_not_where_a_result_goes(name: str) -> None:
    on_arrays = inspect.signature(VALUES[name]).parameters.values()
    on_shapes = inspect.signature(VALUES[name].layout).parameters.values()
    arrays = [p for p in on_arrays if p.kind is p.POSITIONAL_ONLY and p.name != "pattern"]
    own = [p.name for p in on_arrays if p not in arrays and p.name not in RUN]
    assert [p.name for p in on_shapes][len(arrays) :] == own


def test_the_ops_are_there_where_docstrings_are_not() -> None:
    told = "import numpy, xlayout; print(xlayout.interleave(numpy.arange(4)).tolist())"
    ran = subprocess.run([sys.executable, "-OO", "-c", told], check=True, capture_output=True)
    assert ran.stdout.split(b"\n")[0] == b"[0, 2, 1, 3]"


def test_the_tree_of_errors_has_a_line_for_each() -> None:
    drawn = re.findall(r"[├└]── (\w+) ", inspect.getdoc(xlayout.errors) or "")
    assert sorted(drawn) == sorted(errors)


def test_what_is_loaded_on_demand_is_listed() -> None:
    assert set(xlayout.__all__) <= set(dir(xlayout))
