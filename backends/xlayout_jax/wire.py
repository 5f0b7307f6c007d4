"""Wire: bytes that a compiled function makes each device receive, read from its program."""

from __future__ import annotations

import math
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import jax

from xlayout_jax.targets import compiled

_OPS = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter|ragged-all-to-all"
_LINE = re.compile(
    rf"^\s*(?:ROOT )?\S+ = (?P<made>.*?) (?P<op>{_OPS})(?P<start>-start)?\((?P<rest>.*)$"
)
_ARRAY = re.compile(r"\b(pred|bf16|[a-z]\d+(?:[a-z]\d+\w*)?)\[([\d,]*)\]")


def wire_bytes(
    fn: Callable[..., Any], args: Sequence[Any], target: str | None = None, /
) -> dict[str, int]:
    """{collective: bytes received by a device, on average}; `fn` is compiled, not run.

    Just before it makes code, XLA for CPU widens narrow floats, those of sums first, which no
    accelerator does. There the program before that step is read.
    """
    if target is not None:
        return received(compiled(fn, args, target).as_text())
    lowered = jax.jit(fn).lower(*args)
    if jax.default_backend() == "cpu":
        return received(_before(lowered, "all-reduce-promotion"))
    return received(lowered.compile().as_text() or "")


def received(text: str, /) -> dict[str, int]:
    """{collective: bytes received by a device, on average} of a program, cut into partitions.

    The sums are rounded up, so that what little a few devices receive does not look like nothing.
    """
    counted = re.search(r"num_partitions=(\d+)", text)
    devices = int(counted[1]) if counted else 1
    found: dict[str, Fraction] = defaultdict(Fraction)
    for line in text.splitlines():
        if match := _LINE.search(line):
            op = match["op"]
            made = _bytes(match["made"], halves=bool(match["start"]) and op != "all-reduce")
            found[op.replace("-", "_")] += _received(op, made, match["rest"], devices)
    return {name: math.ceil(n) for name, n in found.items() if n}


def _before(lowered: Any, step: str) -> str:
    """The program as it is before a step of the compiler."""
    with tempfile.TemporaryDirectory() as folder:
        # The last finds nothing to dump: it is there so that the program differs from any that a
        # persistent cache holds, compiled already, of which no step would be dumped.
        options = {
            "xla_dump_to": folder,
            "xla_dump_hlo_pass_re": step,
            "xla_dump_emitter_re": folder,
        }
        lowered.compile(options)
        (text,) = [path.read_text("utf-8") for path in Path(folder).glob(f"*.before_{step}.txt")]
    return text


def _received(op: str, made: int, rest: str, devices: int) -> Fraction:
    """By the usual model of each collective, from the size of its result."""
    if op == "collective-permute":
        pairs = re.search(r"source_target_pairs=\{(.*?)\}\}", rest)
        moving = [a != b for a, b in re.findall(r"(\d+),(\d+)", pairs[1] if pairs else "")]
        return Fraction(made * sum(moving), devices)
    group = _group(rest, devices)
    if op == "all-reduce":
        return Fraction(2 * made * (group - 1), group)
    if op == "reduce-scatter":
        return Fraction(made * (group - 1))
    return Fraction(made * (group - 1), group)


def _group(rest: str, devices: int) -> int:
    """Devices in one group: `{{0,1},{2,3}}`, `[groups,devices]<=[...]` or `mesh['a'=4] {'a'}`."""
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", rest)
    if listed:
        return listed[1].count(",") + 1
    counted = re.search(r"replica_groups=\[\d+,(\d+)\]", rest)
    if counted:
        return int(counted[1])
    named = re.search(r"replica_groups=mesh\[(.*?)\][^{]*\{(.*?)\}", rest)
    if named:
        sizes = {axis: int(n) for axis, n in re.findall(r"'(\w+)'=(\d+)", named[1])}
        parts = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", named[2])
        return math.prod([int(part) if part else sizes[axis] for axis, part in parts])
    return devices


def _bytes(text: str, halves: bool) -> int:
    """Bytes of the arrays in a result type.

    An asynchronous start lists its operands, then as many results, then counters that are u32[].
    """
    arrays = _ARRAY.findall(text)
    if halves:
        while len(arrays) > 2 and arrays[-1] == ("u32", ""):
            arrays.pop()
        arrays = arrays[len(arrays) // 2 :]
    return sum(
        _width(kind) * math.prod(map(int, filter(None, dims.split(",")))) for kind, dims in arrays
    )


def _width(kind: str) -> int:
    bits = re.match(r"[a-z]+(\d+)", kind)  # of a pred there are none
    return max(1, int(bits[1]) // 8) if bits else 1
