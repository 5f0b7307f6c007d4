"""A progress bar, shown on a terminal below the plan of the port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich import progress
from rich.console import Console

if TYPE_CHECKING:
    from xlayout.port.value import PortPlan

__all__ = ["bar"]

_COLUMNS = (
    progress.BarColumn,
    progress.DownloadColumn,
    progress.TransferSpeedColumn,
    progress.TimeRemainingColumn,
)


@contextmanager
def bar(
    show: Callable[[object], None], /
) -> Iterator[tuple[Callable[[PortPlan], None], Callable[[int], None]]]:
    """Yield a function that shows a plan and the bar below it, and one that advances the bar."""
    console = Console(stderr=True, soft_wrap=True)
    unseen = not console.is_terminal  # a file may be on a full disk, which must not fail a port
    columns = [column() for column in _COLUMNS]
    drawn = progress.Progress(*columns, console=console, transient=True, disable=unseen)

    def planned(plan: PortPlan) -> None:
        show(plan)
        drawn.add_task("port", total=plan.write_bytes)
        drawn.start()

    try:
        yield planned, lambda nbytes: drawn.advance(drawn.task_ids[0], nbytes)
    finally:
        drawn.stop()
