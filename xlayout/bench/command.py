"""Command: `xlayout bench`, a few ops beside the frameworks that are installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from xlayout.table import Table

__all__ = ["bench", "compared"]

OPS = ("interleave rows", "fuse qkv", "zip", "rope on activations", "transpose")
QUICK = ("interleave rows", "zip", "transpose")
MB = 1 << 20


def bench(
    quick: Annotated[bool, typer.Option(help="Three ops at 16 MB, without torch.compile.")] = False,
    threads: Annotated[
        int | None, typer.Option(help="Threads that each contender may use; by default, all.")
    ] = None,
) -> None:
    """Time a few ops beside the installed frameworks' own ways to write them, in memcpys."""
    from rich.console import Console

    screen = Console(soft_wrap=True)
    errors = Console(stderr=True, soft_wrap=True)
    try:
        if not find_spec("numpy"):
            raise ModuleNotFoundError("numpy is not installed; pip install 'xlayout-arrays[numpy]'")
        from xlayout.bench.machine import busy, processors, use_threads

        count = processors() if threads is None else threads
        use_threads(count)
    except (ValueError, ModuleNotFoundError) as error:
        errors.print(f"error: {error}", style="red", markup=False, emoji=False)
        raise typer.Exit(2) from error
    if warning := busy():
        errors.print(warning, style="yellow", markup=False, emoji=False)
    size = 16 * MB if quick else 64 * MB
    for table in compared(QUICK if quick else OPS, size, threads=count, compiled=not quick):
        if screen.is_terminal:
            screen.print(table)
        else:
            typer.echo(f"{table}\n")


def compared(ops: Iterable[str], size: int, *, threads: int, compiled: bool) -> Iterator[Table]:
    """A table for each op, as soon as it is measured and every answer checked; then the machine.

    Args:
        ops: of `xlayout.bench.cases.CASES`.
        size: bytes of the input.
        threads: how many each contender may use.
        compiled: whether `torch.compile` takes part.
    """
    from xlayout.bench.frameworks import installed
    from xlayout.bench.machine import machine
    from xlayout.bench.rows import Settings, measure, work
    from xlayout.bench.tables import times_table
    from xlayout.table import Table

    settings = Settings(threads, rounds=7, seconds=0.3, compiled=compiled, peaks=False)
    for op in ops:
        held = work(op, "bfloat16", size)
        rows = [measure(held, framework, size, settings) for framework in installed()]
        yield times_table(op, rows)
    yield Table("on", ("", ""), tuple(machine(threads).items()))
