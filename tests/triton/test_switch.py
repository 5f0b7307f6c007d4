"""The environment can do without the kernel, and is told of a word that is not known."""

from __future__ import annotations

import pytest

from xlayout_triton.uncompiled import switched_off


@pytest.mark.parametrize(
    ("word", "reason"), [("off", "switched off by XLAYOUT_TRITON=off"), ("auto", ""), ("", "")]
)
def test_a_word_switches_it_off(word: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLAYOUT_TRITON", word)
    assert switched_off() == reason  # without a warning, which would be an error here


def test_it_is_not_switched_off_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLAYOUT_TRITON", raising=False)
    assert switched_off() == ""


@pytest.mark.parametrize("word", ["OFF", "0"])
def test_a_word_that_is_misspelt_is_named(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLAYOUT_TRITON", word)
    with pytest.warns(UserWarning, match=rf"^XLAYOUT_TRITON: '{word}'; wanted 'off' or nothing$"):
        assert switched_off() == ""
