"""The command line: arguments in, tables out, and an exit code for success or failure.

    xlayout plan SmolLM2-135M-Instruct out --to maxtext
    xlayout port SmolLM2-135M-Instruct out --to maxtext

Exit codes: 0, done; 1, refused, or a comparison failed; 2, the arguments make no sense;
130, interrupted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.console import Console
except ModuleNotFoundError as missing:
    raise SystemExit(
        f"xlayout: {missing.name} is not installed; pip install 'xlayout-arrays[port]' brings it"
    ) from missing

from xlayout.bench.command import bench
from xlayout.errors import InverseError, LayoutError

__all__ = ["app", "main"]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(bench)

Src = Annotated[
    str, typer.Argument(help="A safetensors file or folder, a GGUF file, an Orbax or DCP folder.")
]
Dst = Annotated[
    str, typer.Argument(help="Where the output will appear: absent, or an empty folder.")
]
To = Annotated[
    str, typer.Option(help="What to write: hf, maxtext, dcp, …; `xlayout families` lists all.")
]
Family = Annotated[
    str | None, typer.Option(help="The family of models; by default, the one in the config.")
]
Dtype = Annotated[
    str | None, typer.Option(help="The dtype to write: bfloat16, …; by default, each tensor's own.")
]
Mesh = Annotated[
    str | None,
    typer.Option(help="The ranks that will load a DCP or MaxText's tree: tp=8, or fsdp=4,tp=8."),
]
MaxRam = Annotated[str, typer.Option(help="The most memory for tensor data, such as 2GiB.")]
Exact = Annotated[
    bool, typer.Option("--exact/--lossy", help="Refuse to lose a bit, or round and say so.")
]


def _version(wanted: bool) -> None:
    if wanted:
        from xlayout import __version__

        typer.echo(f"xlayout {__version__}")
        raise typer.Exit


@app.callback()
def _xlayout(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Inspect checkpoints, port them exactly between formats, and explain layouts."""


def _show(found: object) -> None:
    """Print a table: in colour on a terminal, as plain lines of full length into a pipe."""
    if _is_window():
        Console().print(found)
        return
    try:
        typer.echo(str(found))
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # the reader has seen enough; work goes on
            error.filename = sys.stdout.name
            raise


def _is_window() -> bool:
    """Whether standard output is a terminal; it is None if the shell closed it."""
    return sys.stdout is not None and sys.stdout.isatty()


@contextmanager
def _refusals() -> Iterator[None]:
    """Print what xlayout refuses as one message on stderr, without a traceback."""
    try:
        yield
    except (LayoutError, ImportError, OSError) as error:
        from xlayout.table import harmless

        text = harmless(_with_notes(f"error: {error}", error))
        Console(stderr=True, soft_wrap=True).print(text, style="red", markup=False, emoji=False)
        raise typer.Exit(1) from error


def _with_notes(text: str, error: BaseException) -> str:
    """Return a message with what became of the output, if the error's notes say so."""
    return "; ".join((text, *getattr(error, "__notes__", ())))


@app.command()
def inspect(path: Src, family: Family = None) -> None:
    """Show what a checkpoint holds, from its headers."""
    from xlayout import port

    with _refusals():
        _show(port.inspect(path, family=family))


@app.command()
def plan(
    src: Src,
    dst: Dst,
    to: To,
    family: Family = None,
    dtype: Dtype = None,
    mesh: Mesh = None,
    max_ram: MaxRam = "512MiB",
    exact: Exact = True,
) -> None:
    """Show what a port would do; nothing is written; exit with 1 if a run is refused."""
    from xlayout import port

    options: dict[str, Any] = {"to": to, "family": family, "dtype": dtype, "max_ram": max_ram}
    with _refusals():
        made = port.plan(src, dst, **options, mesh=_mesh(mesh), exact=exact)
        _show(made)
    raise typer.Exit(1 if made.taken else 0)


@app.command("port")
def port_command(
    src: Src,
    dst: Dst,
    to: To,
    family: Family = None,
    dtype: Dtype = None,
    mesh: Mesh = None,
    max_ram: MaxRam = "512MiB",
    exact: Exact = True,
    resume: Annotated[bool, typer.Option(help="Continue a run that was interrupted.")] = True,
    verify: Annotated[bool, typer.Option(help="Read the output back and compare it.")] = True,
) -> None:
    """Port a checkpoint: make the plan, carry it out, compare the result with its source."""
    from xlayout import port
    from xlayout.port.bar import bar

    options: dict[str, Any] = {"to": to, "family": family, "dtype": dtype, "max_ram": max_ram}
    options |= {"exact": exact, "resume": resume, "verify": verify}
    with _refusals():
        try:
            with bar(_show) as (planned, progress):
                options |= {"planned": planned, "progress": progress}
                report = port.run(src, dst, **options, mesh=_mesh(mesh))
        except KeyboardInterrupt as error:
            typer.echo(_with_notes("interrupted", error), err=True)
            raise typer.Exit(130) from error
        _show(report)


@app.command()
def verify(a: Src, b: Src, family: Family = None, max_ram: MaxRam = "512MiB") -> None:
    """Compare the values of two checkpoints in any formats; exit with 1 if they differ."""
    from xlayout import port

    with _refusals():
        comparison = port.verify(a, b, family=family, max_ram=max_ram, digests=False)
        _show(comparison)
    raise typer.Exit(0 if comparison.identical else 1)


@app.command()
def diff(a: Src, b: Src, family: Family = None) -> None:
    """Compare names, shapes, dtypes and config of two checkpoints; exit with 1 if they differ."""
    from xlayout import port

    with _refusals():
        found = port.diff(a, b, family=family)
        _show(found)
    raise typer.Exit(1 if found.lines else 0)


@app.command()
def families(
    name: Annotated[str | None, typer.Argument(help="A family, to show its rules.")] = None,
    to: Annotated[str | None, typer.Option(help="Only this dialect; of a family, maxtext.")] = None,
) -> None:
    """List the families that can be ported, or the rules of one."""
    from xlayout.port.show_family import families_table, rules_table

    with _refusals():
        _show(rules_table(name, to or "maxtext") if name else families_table(to))


@app.command()
def explain(
    pattern: Annotated[str, typer.Argument(help="A layout, such as '(h d) m -> m h d'.")],
    sizes: Annotated[
        list[str] | None, typer.Argument(help="Sizes, such as h=8 d=64 m=512.")
    ] = None,
    itemsize: Annotated[int, typer.Option(help="Bytes of one element.")] = 2,
) -> None:
    """Show the shapes, the inverse, the pieces and the cost of a layout."""
    from xlayout.algebra import Layout
    from xlayout.table import Table

    with _refusals():
        layout = Layout.parse(pattern, **_sizes(sizes or [], "sizes", "h=8 d=64", 0))
        ins, outs = (", ".join(map(str, s)) for s in (layout.in_shapes, layout.out_shapes))
        try:
            back = str(layout.inverse())
        except InverseError:
            back = "none: it repeats elements"
        rows = (
            ("layout", str(layout)),
            ("shapes", f"{ins} → {outs}"),
            ("inverse", back),
            ("pieces", "; ".join(map(str, layout.pieces))),
            ("cost", str(layout.cost(itemsize))),
        )
        _show(Table(pattern, ("", ""), rows))


def _mesh(text: str | None) -> Any:
    """Return the mesh of a text such as "fsdp=4,tp=8"."""
    from xlayout.shard import Mesh

    texts = [] if text is None else [*map(str.strip, text.split(","))]
    sizes = _sizes(texts, "--mesh", "fsdp=4,tp=8", 1)
    return Mesh(tuple(sizes.values()), tuple(sizes)) if sizes else None


def _sizes(texts: list[str], given: str, such: str, least: int) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for text in texts:
        name, _, n = text.partition("=")
        if not re.fullmatch(r"[^=]+=\d{1,18}", text) or int(n) < least:
            wrong = f"{text!r:.80}; wanted sizes such as {such}, of at most 18 digits"
            raise typer.BadParameter(f"{wrong}, and at least {least}", param_hint=given)
        if sizes.setdefault(name, int(n)) != int(n):
            wrong = f"{name}={n}; it was {name}={sizes[name]} before"
            raise typer.BadParameter(wrong, param_hint=given)
    return sizes


@app.command()
def info() -> None:
    """Show the installed versions, and which copy kernels are in use."""
    from xlayout.installed import installed

    with _refusals():
        _show(installed())


@app.command()
def demo(
    cache: Annotated[
        Path, typer.Option(help="Folder for the download; outputs go to xlayout-demo in it.")
    ] = Path(".demo"),
    tiny: Annotated[bool, typer.Option(help="A tiny random model; no download.")] = False,
) -> None:
    """Port a real model from GGUF to Hugging Face to MaxText and back, and check every step."""
    from xlayout.port.demo import run_demo
    from xlayout.port.demo.summary import page, summary

    with _refusals():
        found = run_demo(
            cache,
            tiny=tiny,
            say=lambda line: Console(stderr=True, soft_wrap=True).print(f"… {line}", style="dim"),
        )
        _show(summary(found) if _is_window() else page(found))
    raise typer.Exit(0 if found.ok else 1)


def main() -> None:
    """Run the command line; characters that the terminal cannot encode are shown escaped."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    app()


if __name__ == "__main__":
    main()
