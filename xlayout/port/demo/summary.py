"""The demo's findings on one page: what moved, what was checked, what both models said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xlayout.port.units import show_bytes
from xlayout.table import Table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from xlayout.port.demo import Demo

__all__ = ["page", "summary"]

_PAGE = 100  # columns


def page(demo: Demo, /) -> str:
    """Return the page as text, for a pipe or a file."""
    from rich.console import Console

    console = Console(width=_PAGE)
    with console.capture() as text:
        console.print(summary(demo))
    return text.get().removesuffix("\n")


def summary(demo: Demo, /) -> RenderableType:
    """Return the page, for rich to print."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.panel import Panel
    from rich.text import Text

    checks = [
        Text.assemble(("✓ ", "bold green") if held else ("✗ ", "bold red"), said)
        for said, held in demo.checks
    ]
    answers = []
    for who, answer in zip(("torch", "JAX"), demo.answers, strict=True):
        text = " ".join(answer.result["text"].split())
        cost = f"({answer.result['seconds']:.1f} s, {show_bytes(answer.peak_rss)} peak RAM)"
        answers.append(Text.assemble((f"{who:>5}  ", "bold"), text, (f"  {cost}", "dim")))
    parts: list[RenderableType] = [_ports(demo), Text(), *checks, Text()]
    if demo.prompt:
        parts.append(Text.assemble(("prompt  ", "dim"), demo.prompt))
    else:
        parts.append(Text(f"not the real model: {demo.why_tiny}", style="yellow"))
    verdict = "every check held" if demo.ok else "a check failed"
    parts += [*answers, Text(), Text(verdict, style="bold green" if demo.ok else "bold red")]
    return Panel(Padding(Group(*parts), (0, 1)), title=f"xlayout demo: {demo.model}", width=_PAGE)


def _ports(demo: Demo) -> Table:
    rows = []
    for title, step in demo.ports:
        found = step.result
        rows.append(
            (
                title,
                show_bytes(found["read"]),
                show_bytes(found["written"]),
                f"{found['seconds']:.2f}",
                f"{found['written'] / found['seconds'] / 1e9:.2f}",
                show_bytes(found["buffers"]),
                show_bytes(step.peak_rss),
                f"{found['verify_seconds']:.2f}",
            )
        )
    columns = ("port", ">read", ">written", ">s", ">GB/s", ">buffers", ">peak RAM", ">verify s")
    return Table("", columns, tuple(rows))
