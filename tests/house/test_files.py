"""Each file is one idea that its first sentence states, and speaks of the project alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, ROOT, relative, sources

HOUSE = [ROOT / name for name in ("xlayout", "backends", "tests", "bench", "docs")]
PYTHON = sources(*HOUSE)
COMPILED = sorted((ROOT / "backends").rglob("*.[ch]"))
TEXT = [
    *PYTHON,
    *COMPILED,
    *(path for folder in HOUSE for path in sorted(folder.rglob("*.md"))),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "Makefile", "pyproject.toml")),
]
CEILING = 300

# A letter in brackets keeps a pattern from matching this file.
NOT_HERE = {
    "unfinished": r"TO[D]O|FIX[M]E|raise NotImplemented[E]rror|pytest\.skip[(][)]",
    "swallowed": r"except (Base)?Exc[e]ption\b[^\n]*:\s*pass\b",
    "hype": r"(?i)\b(blaz[i]ng|seaml[e]ss|effortl[e]ss|game-ch[a]nging|revoluti[o]nary)",
    "one machine's paths": r"(?i)/h[o]me/\w|/Us[e]rs/\w",
    "a registry's host": r"ind[e]x-url[ =]+http|python[h]osted",
}
SAMPLES = {
    "unfinished": "# TO" + "DO: later",
    "swallowed": "except Exc" + "eption as e:\n    pass",
    "hype": "Blaz" + "ing speed",
    "one machine's paths": "/ho" + "me/someone",
    "a registry's host": "--extra-index-" + "url https://example.org",
}


def offenders(pattern: str) -> list[str]:
    """The files that contain `pattern`."""
    return [relative(path) for path in TEXT if re.search(pattern, path.read_text("utf-8"))]


def opening(path: Path) -> str:
    """The first paragraph of a file's docstring, on one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return docstring.partition("\n\n")[0].replace("\n", " ")


def test_a_file_opens_with_one_sentence() -> None:
    openings = {relative(path): opening(path) for path in PYTHON}
    one_sentence = re.compile(r"[^\s].*[.:]")
    two_sentences = re.compile(r"[.!?] +[A-Z]")
    assert {
        path: text
        for path, text in openings.items()
        if not one_sentence.fullmatch(text) or two_sentences.search(text)
    } == {}


def test_a_compiled_file_says_what_it_is() -> None:
    openings = {relative(path): path.read_text("utf-8").partition("\n")[0] for path in COMPILED}
    assert {
        path: text for path, text in openings.items() if f"/* {Path(path).stem}: " not in text
    } == {}


def test_a_file_fits_in_the_head() -> None:
    files = (*PYTHON, *COMPILED)
    lengths = {relative(path): len(path.read_text("utf-8").splitlines()) for path in files}
    assert {path: length for path, length in lengths.items() if length > CEILING} == {}


@pytest.mark.parametrize("what", NOT_HERE)
def test_no_file_holds(what: str) -> None:
    assert offenders(NOT_HERE[what]) == []


@pytest.mark.parametrize("what", NOT_HERE)
def test_the_pattern_can_find(what: str) -> None:
    assert re.search(NOT_HERE[what], SAMPLES[what])


@pytest.mark.parametrize("package", PACKAGES, ids=relative)
def test_a_package_is_typed(package: Path) -> None:
    assert (package / "__init__.py").is_file()
    assert (package / "py.typed").is_file()
