"""A port: the plan is made, carried out exactly, and the output compared with its source."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from xlayout.algebra.shapes import boolean
from xlayout.errors import PortError
from xlayout.port.checkpoint import Checkpoint, open_checkpoint
from xlayout.port.family import Family
from xlayout.port.formats import create_sink
from xlayout.port.formats.file_names import given_path
from xlayout.port.plan import plan_open
from xlayout.port.ranks import shares_of
from xlayout.port.refusals import output_path
from xlayout.port.resume import key_of
from xlayout.port.stamps import refuse_changed, stamps_of
from xlayout.port.stream import stream
from xlayout.port.units import parse_bytes, show_bytes, show_count
from xlayout.port.value import SHARD_BYTES, PortPlan
from xlayout.port.verify import Comparison, compare
from xlayout.rss import peak_rss
from xlayout.shard import Mesh
from xlayout.table import Table, Tabled

__all__ = ["Report", "run"]


@dataclass(frozen=True, slots=True)
class Report(Tabled):
    """What a port did.

    Args:
        plan: What it followed.
        seconds: Time from the first byte to the published output, without verification.
        verify_seconds: Time to read both sides again and compare them.
        peak_rss: The process's peak resident memory in bytes, libraries included.
        comparison: What verification found; None if it was not asked for.
        companions: Tokenizer and generation files that were copied along.
        kept_bytes: Bytes that an interrupted run had already written.
    """

    plan: PortPlan
    seconds: float
    verify_seconds: float
    peak_rss: int
    comparison: Comparison | None
    companions: tuple[str, ...]
    kept_bytes: int = 0

    @property
    def gb_per_s(self) -> float:
        """Bytes of tensor data written, in GB per second."""
        return (self.plan.write_bytes - self.kept_bytes) / self.seconds / 1e9

    def _table(self) -> Table:
        plan = self.plan
        notes = [
            f"wrote {show_count(len(plan.specs), 'tensor')}, {show_bytes(plan.write_bytes)} in "
            f"{self.seconds:.2f} s, {self.gb_per_s:.2f} GB/s; buffers "
            f"{show_bytes(plan.buffer_bytes)}, peak RSS {show_bytes(self.peak_rss)}"
        ]
        if self.kept_bytes:
            notes.append(
                f"went on from a run that was interrupted: {show_bytes(self.kept_bytes)} were "
                "there, read back and found sound"
            )
        if self.comparison is not None:
            notes.append(
                f"verified in {self.verify_seconds:.2f} s: read back, undone, "
                f"{self.comparison.summary}{'' if self.comparison.identical else ', as planned'}"
            )
        if self.companions:
            notes.append(f"copied along: {', '.join(self.companions)}")
        return Table(f"{plan.src} → {plan.dst}", (), (), tuple(notes))


def run(
    src: str | PathLike[str],
    dst: str | PathLike[str],
    *,
    to: str,
    family: str | Family | None = None,
    dtype: str | None = None,
    mesh: Mesh | None = None,
    max_ram: int | str = "512MiB",
    exact: bool = True,
    resume: bool = True,
    verify: bool = True,
    planned: Callable[[PortPlan], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Port a checkpoint: plan it, stream it through bounded memory, publish it whole, compare it.

    The output appears in one step or not at all: an error, a full disk or a killed process leaves
    nothing behind that looks like a checkpoint, and the same call then works again. If a run was
    killed, interrupted or stopped by a system error, what it wrote is kept in a hidden folder
    beside `dst`; the same plan on the same source continues from there, after every kept byte has
    been read back. Any other plan, or a source that has changed, starts afresh.

    Args:
        src: See `plan`.
        dst: See `plan`.
        to: See `plan`.
        family: See `plan`.
        dtype: See `plan`.
        mesh: See `plan`.
        max_ram: See `plan`.
        exact: See `plan`; whatever the dtypes do not prove is checked on every element.
        resume: Continue an interrupted run, and if this one is interrupted, keep what it wrote;
            False starts afresh and keeps nothing.
        verify: Read source and output again, and compare every tensor in its canonical form,
            before the output appears.
        planned: Called with the plan, before anything is written.
        progress: Called with the bytes of each tile that was written.

    Raises:
        FormatError: The source is broken.
        PortError: As for `plan`; or the output already holds something, the disk is full, or
            the source was written to meanwhile, or what was read back is not what was written;
            what this run wrote is then removed.
        OSError: The system failed to read, write or start a thread. What was written is kept, and
            the error says so; the same holds if a library is missing or memory ran out.
        TypeError: `exact`, `resume` or `verify` is neither True nor False, or another argument has
            a wrong type.

    >>> from xlayout.port.demo.weights import make_tiny
    >>> gguf = make_tiny()  # a Llama of two layers, in a temporary folder
    >>> report = run(gguf, gguf.with_name("hf"), to="hf")
    >>> report.comparison.summary
    '20 canonical tensors, every element identical'
    >>> sorted(path.name for path in gguf.with_name("hf").iterdir())
    ['config.json', 'model.safetensors']
    """
    for option, value in (("exact", exact), ("resume", resume), ("verify", verify)):
        boolean(value, option)
    budget, where = parse_bytes(max_ram), output_path(dst)
    with open_checkpoint(given_path(src, "src"), family=family) as checkpoint:
        stamps = stamps_of(checkpoint.source)
        plan = plan_open(
            checkpoint, where, to=to, dtype=dtype, mesh=mesh, max_ram=budget, exact=exact
        )
        if planned is not None:
            planned(plan)
        config = None if plan.unplaced else plan.config
        begun = time.perf_counter()
        with create_sink(
            where,
            plan.format,
            plan.specs,
            config=config,
            max_shard_size=SHARD_BYTES,
            chunks=plan.chunks,
            shares=shares_of(plan.held),
            key=key_of(plan, checkpoint.source) if resume else None,
            beside={**plan.companions, **plan.extras},
        ) as sink:
            kept = stream(checkpoint.source, sink, plan, progress)
            sealed = sink.seal()
            written = time.perf_counter()
            comparison = _verified(checkpoint, sealed, plan) if verify else None
            refuse_changed(checkpoint.source, stamps)
            if comparison is not None and not comparison.ported:
                raise PortError(f"{plan.dst}: not what was written:\n{comparison}")
            verified = time.perf_counter()
            sink.commit()
            done = time.perf_counter()
    return Report(
        plan=plan,
        seconds=done - verified + written - begun,
        verify_seconds=verified - written,
        peak_rss=peak_rss(),
        comparison=comparison,
        companions=tuple(plan.companions),
        kept_bytes=kept,
    )


def _verified(checkpoint: Checkpoint, sealed: Path, plan: PortPlan) -> Comparison:
    """Read back and compare everything that was written, before anyone can see it."""
    with open_checkpoint(sealed, family=checkpoint.family, config=plan.config) as output:
        found = compare(checkpoint, output, max_ram=plan.max_ram, digests=False)
    return replace(found, second=str(plan.dst))
