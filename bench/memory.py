"""What a call holds at its peak, as multiples of the input's size N, beside the hand-written form.

    python -m bench memory [--mb 256] [--only torch]

The promise is the output and nothing more: 1.0 N beyond the input. Every case is a process of its
own. It makes the input, calls the op once, frees the result and gives its pages back; then it notes
the resident memory, calls the op again, and notes the highest resident memory since. A rise of less
than the size of the result would mean that old pages were used again, and stops the run. The answer
is checked afterwards.

With donate=True torch's tensors are permuted in their own memory, and the promise is in bytes: a
megabyte at the most. Inputs are contiguous, transposed in memory, or every second column of a wider
array, which does not exist in JAX. For JAX, `hand` is op by op, `jit` the same form compiled, and
`temp` what XLA itself says that xlayout's program needs beside inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.child import child
from bench.report import chosen, count, parser, save, show

LIMIT = 1.05
MEGABYTES = 256  # as in the recorded results
LEAST = 64  # one square of DONATED's; much smaller results would fit into memory used before
LIMIT_DONATED = 1 << 20  # bytes
DONATED = ("matrix_transpose", "interleave", "rope_halves")
OPS = ("matrix_transpose", "interleave", "rope_halves", "fuse_qkv", "stack")
FORMS = {
    "numpy": ("contiguous", "transposed", "strided"),
    "torch": ("contiguous", "transposed", "strided"),
    "jax": ("contiguous", "transposed"),
}


def main(arguments: Sequence[str]) -> int:
    """Print the table, save it; return 1 if xlayout holds more than its output."""
    asked = parser("memory", __doc__)
    asked.add_argument(
        "--mb", type=count, default=MEGABYTES, help="size of the input in MB (default: %(default)s)"
    )
    asked.add_argument("--only", choices=FORMS, help="only this framework")
    options = asked.parse_args(arguments)
    if options.mb < LEAST:
        asked.error(f"--mb: {options.mb}; wanted {LEAST} or more")
    frameworks = chosen(asked, options.only, FORMS)
    size, rows = str(options.mb), []
    for framework in frameworks:
        for op in OPS:
            for form in FORMS[framework]:
                row: dict[str, Any] = {"op": op, "framework": framework, "input": form}
                for who in ("xlayout", "hand", *(["jit"] if framework == "jax" else [])):
                    found = child("memory_case", op, framework, form, who, size)
                    row[who] = round(found["extra"], 2)
                    if "temp" in found:
                        row["temp"] = round(found["temp"], 2)
                rows.append(row)
    gifts = []
    for op in DONATED if "torch" in frameworks else ():
        found = child("memory_case", op, "torch", "contiguous", "donated", size)
        gifts.append({"op": op, "framework": "torch", "donated bytes": found["bytes"]})
    names = ("xlayout", "hand", "jit", "temp")
    printed = [
        (
            r["op"],
            r["framework"],
            r["input"],
            *(f"{r[name]:.2f}" if name in r else "" for name in names),
            "over" if r["xlayout"] > LIMIT else "",
        )
        for r in rows
    ]
    header = ("op", "framework", "input", *names, "")
    show(f"peak over the input, in N = {options.mb} MB", header, printed)
    if gifts:
        show("donate=True, torch", ("op", "bytes over the input"),
             [(r["op"], str(r["donated bytes"])) for r in gifts])  # fmt: skip
    if len(frameworks) == len(FORMS) and options.mb == MEGABYTES:
        print(f"written to {save('memory', rows + gifts)}")
    over = any(r["xlayout"] > LIMIT for r in rows)
    return int(over or any(r["donated bytes"] > LIMIT_DONATED for r in gifts))
