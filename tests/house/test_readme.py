"""The README's examples run, its links lead somewhere, and its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sybil.document import Document
from sybil.parsers.markdown import PythonCodeBlockParser

from tests.house.tree import ROOT, relative

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_examples_run() -> None:
    document = Document.parse(str(ROOT / "README.md"), PythonCodeBlockParser())
    examples = list(document.examples())
    assert examples
    for example in examples:
        example.evaluate()


def anchors(page: Path) -> set[str]:
    """The anchors by which links refer to the page's headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        name, _, anchor = link.partition("#")
        to = page.parent / name if name else page
        assert link.startswith("http") or to.exists(), link
        assert link.startswith("http") or not anchor or anchor in anchors(to), link


def test_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", (ROOT / "README.md").read_text("utf-8")))
    assert {"test", "demo"} <= named <= targets


def test_what_builds_the_kernel_in_place_finds_jaxlib_first() -> None:
    """Otherwise `make test-aot` would rebuild `make test`'s kernel without the calls from XLA."""
    rules = (ROOT / "Makefile").read_text("utf-8").split("\n\n")
    building = [rule for rule in rules if ' -e "' in rule]
    assert len(building) == 2
    for rule in building:
        assert "jaxlib" in rule.partition(' -e "')[0].partition("-m venv")[2]


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_a_page_says_where_many_devices_come_from(page: Path) -> None:
    """Here `docs/conftest.py` requests eight for the examples; a reader has to do so too."""
    text = page.read_text("utf-8")
    if re.search(r"^>>> .*jax\.(make_mesh|devices)\(", text, re.MULTILINE):
        assert "XLA_FLAGS=--xla_force_host_platform_device_count=" in text
