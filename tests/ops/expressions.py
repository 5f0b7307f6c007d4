"""What the recorded functions of other systems are in xlayout: rules, in public calls only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

import xlayout as xl
from tests.golden import Case

__all__ = ["EXPRESSIONS", "cut", "head_aligned"]
Arrays = dict[str, Any]


def head_aligned(total: int, ranks: int, kv_heads: int | None, grain: int = 1) -> tuple[int, ...]:
    """Sizes per rank: whole KV heads if there are any, otherwise near-even in units of `grain`."""
    if kv_heads and total % kv_heads == 0:
        return xl.partition(total, ranks, unit=total // kv_heads)
    return xl.partition(total, ranks, unit=grain if total >= grain else 1)


def cut(x: Any, widths: Sequence[Sequence[int]], left: str = "{} ...") -> tuple[Any, ...]:
    """Rank r takes its part of every segment: `widths[segment][rank]`, one array a rank.

    `regroup` can express even widths; for uneven ones a pattern names each part.
    """
    ranks = range(len(widths[0]))
    name = [[f"s{s}r{r}" for r in ranks] for s in range(len(widths))]
    whole = left.format("(" + " + ".join(n for row in name for n in row) + ")")
    parts = [left.format("(" + " + ".join(row[r] for row in name) + ")") for r in ranks]
    sizes = {
        n: w for row, ws in zip(name, widths, strict=True) for n, w in zip(row, ws, strict=True)
    }
    made = xl.rearrange(x, f"{whole} -> {', '.join(parts)}", **sizes)
    return made if isinstance(made, tuple) else (made,)


def by_rank(parts: Sequence[Any], suffix: str = "") -> Arrays:
    return {f"rank{r}{suffix}": part for r, part in enumerate(parts)}


def transpose(_case: Case, x: Arrays) -> Any:
    return {"out": xl.matrix_transpose(x["data"]), "input_after": x["data"]}


def interleave(case: Case, x: Arrays) -> Any:
    return {"out": xl.interleave(x["tensor"], block=case.params["interleave_size"])}


def deinterleave(case: Case, x: Arrays) -> Any:
    return xl.deinterleave(x["tensor"], block=case.params["interleave_size"])


def activation(case: Case, x: Arrays) -> Any:
    return xl.deinterleave(x["x"], block=case.params["interleave_size"], axis=-1)


def interleave_twice(case: Case, x: Arrays) -> Any:
    return interleave(case, {"tensor": interleave(case, x)["out"]})["out"]


def hf_interleave(case: Case, x: Arrays) -> Any:
    """Transformers calls the de-interleaving direction "Interleave"."""
    op = xl.interleave if case.params["inverse"] else xl.deinterleave
    return op(x["x"], axis=case.params["dim"])


def hf_rope(case: Case, x: Arrays) -> Any:
    op = xl.rope_pairs if case.params["inverse"] else xl.rope_halves
    return op(x["x"], heads=case.params["num_heads"])


def strided_shard(case: Case, _x: Arrays) -> Any:
    """Rows of each rank as runs; torch.chunk inside every group, and groups cut the same way."""
    p = case.params
    groups = xl.partition(p["size"], p["split_factor"], rule="ceil")
    widths = [xl.partition(n, p["world"], rule="ceil") for n in groups]
    return by_rank([_runs(rows) for rows in cut(np.arange(p["size"]), widths)])


def _runs(rows: np.ndarray) -> list[list[int]]:
    runs: list[list[int]] = []
    for row in rows.tolist():
        if runs and runs[-1][1] == row:
            runs[-1][1] += 1
        else:
            runs.append([row, row + 1])
    return runs


def merge_qkv(case: Case, x: Arrays) -> Any:
    options = {"heads": case.params["heads"], "kv_heads": case.params["groups"]}
    fused = xl.fuse_qkv(x["q"], x["k"], x["v"], **options)
    return xl.fuse_qkv(*xl.split_qkv(fused, **options), **options)  # the round trip as well


def merge_qkvg(case: Case, x: Arrays) -> Any:
    """One gate row per head, repeated over the head: a broadcast, which takes a Layout."""
    heads, d, hidden = (case.params[k] for k in ("heads", "head_dim", "hidden"))
    loops = ((heads, hidden, d * hidden), (d, 0, hidden), (hidden, 1, 1))
    repeat = xl.Layout(((heads, hidden),), ((heads * d, hidden),), (xl.Piece(0, 0, loops),))
    return xl.rearrange(
        (x["q"], repeat(x["g"]), x["k"], x["v"]),
        "(n q) h, (n g) h, (n k) h, (n v) h -> (n (q + g + k + v)) h",
        n=case.params["groups"],
    )


def merge_kv(case: Case, x: Arrays) -> Any:
    kv = "(n k) ..., (n v) ... -> (n (k + v)) ..."
    return xl.rearrange((x["k"], x["v"]), kv, n=case.params["groups"])


def gated_delta_net(case: Case, x: Arrays) -> Any:
    p = case.params
    heads, tp, key = p["qk_heads"], p["tp"], p["qk_heads"] * p["qk_dim"]
    q, k, v = xl.rearrange(x["qkv"], "(q + k + v) h -> q h, k h, v h", q=key, k=key)
    four, two = "(n q) h, (n k) h, (n v) h, (n z) h", "(n b) h, (n a) h"
    return {
        "qkvz": xl.rearrange((q, k, v, x["z"]), f"{four} -> (n (q + k + v + z)) h", n=heads),
        "ba": xl.rearrange((x["b"], x["a"]), f"{two} -> (n (b + a)) h", n=heads),
        "in_proj": xl.rearrange(
            (q, k, v, x["z"], x["b"], x["a"]),
            f"{four}, {two} -> (n (q + k + v + z + b + a)) h",
            n=tp,
        ),
    }


def gpt_oss(_case: Case, x: Arrays) -> Any:
    halves = xl.deinterleave(x["x"])
    return {"_interleave": halves, "_uninterleave(_interleave)": xl.interleave(halves)}


def partition(case: Case, _x: Arrays) -> Any:
    sizes = xl.partition(case.params["num_items"], case.params["num_parts"])
    return list(accumulate(sizes, initial=0))


def partition_before_2023(case: Case, _x: Arrays) -> Any:
    """The remainder went to the last part, unless there were no more items than parts."""
    items, parts = case.params["num_items"], case.params["num_parts"]
    sizes = xl.partition(items, parts, rule="balanced" if items <= parts else "last")
    return list(accumulate(sizes, initial=0))


def fused(segments: Callable[[dict[str, Any], Any], Sequence[int]]) -> Callable[..., Any]:
    """A fused QKV weight cut rank by rank, aligned to heads within each of its segments."""

    def expression(case: Case, x: Arrays) -> Any:
        p, src = case.params, x["src"]
        sizes = segments(p, src)
        widths = [head_aligned(n, p["mp_size"], p["num_kv_heads"]) for n in sizes]
        return {**by_rank(cut(src, widths)), "subparam_sizes": list(sizes)}

    return expression


def whole(_p: Any, src: Any) -> Sequence[int]:
    return (src.shape[0],)  # BLOOM, Falcon: heads already hold their own q, k, v


def glm(p: dict[str, Any], src: Any) -> Sequence[int]:
    """Thirds, unless two KV heads, as in ChatGLM, make keys and values smaller."""
    rows, q = src.shape[0], p["n_embd"]
    if p["num_kv_heads"] == 2 and p.get("num_attention_heads") != 2:
        return (q, (rows - q) // 2, (rows - q) // 2)
    return xl.partition(rows, 3, rule="even")


def phi3(p: dict[str, Any], src: Any) -> Sequence[int]:
    kv = p["num_kv_heads"] * (src.shape[1] // p["num_attention_heads"])
    return (src.shape[0] - 2 * kv, kv, kv)


def codegen(case: Case, x: Arrays) -> Any:
    p = case.params
    xl.partition(p["num_kv_heads"] // 4, p["mp_size"], rule="even")  # whole heads, or an error
    mixed = mix(x["src"], p["mp_size"])
    ranks = xl.unstack(xl.rearrange(mixed, "(n r) ... -> n r ...", n=p["mp_size"]))
    return {**by_rank(ranks), "subparam_sizes": None}


def mix(x: Any, ranks: int) -> Any:
    """Four blocks of [q, v, k], each dealt to the ranks."""
    return xl.rearrange(x, "(m qvk n b) ... -> (m n qvk b) ...", m=4, qvk=3, n=ranks)


def codegen_blocks(case: Case, _x: Arrays) -> Any:
    ranks, rows = case.params["world_size"], case.params["total_rows"]
    size = rows // (12 * ranks)
    blocks = mix(np.arange(rows), ranks).reshape(ranks, -1)[:, ::size] // size
    return {"block_size": size, "ids": {str(r): ids.tolist() for r, ids in enumerate(blocks)}}


def gate_up(case: Case, x: Arrays) -> Any:
    p = case.params
    half = xl.partition(x["weight"].shape[0], 2, rule="even")
    widths = [head_aligned(n, p["mp_size"], None, p["tp_grain_size"]) for n in half]
    made = {"widths": [list(w) for w in widths], **by_rank(cut(x["weight"], widths))}
    return made if x["bias"] is None else {**made, **by_rank(cut(x["bias"], widths), "_bias")}


def shared_qk(axis: int) -> Callable[..., Any]:
    """Value heads come in two halves that belong together; rank r has its part of both."""

    def expression(case: Case, x: Arrays) -> Any:
        p = case.params
        heads = xl.partition(p["num_heads"] // 2, p["world"], rule="even")  # or an error
        rows = sum(heads) * p["head_dim"]
        packed = xl.regroup(x["weight"], sizes=(rows, rows), groups=p["world"], axis=axis)
        pattern = "(n r) ... -> n r ..." if axis == 0 else "h (n r) -> n h r"
        return by_rank(xl.unstack(xl.rearrange(packed, pattern, n=p["world"])))

    return expression


def split_megatron(case: Case, x: Arrays) -> Any:
    param, ranks = x["param"], case.params["num_to_split"]
    if float(case.params["ckpt_ver"]) == 0:  # [3, heads, d]; later each head holds its q, k, v
        param = xl.regroup(param, sizes=xl.partition(len(param), 3, rule="even"), groups=ranks)
    return list(xl.unstack(xl.rearrange(param, "(n r) ... -> n r ...", n=ranks)))


def merge_megatron(case: Case, x: Arrays) -> Any:
    params = x["params"]
    names = [f"a{k}" for k in range(len(params))]
    inputs = ", ".join(f"{n} ..." for n in names)
    joined = xl.rearrange(params, f"{inputs} -> ({' + '.join(names)}) ...")
    if float(case.params["ckpt_ver"]) == 0:
        thirds = xl.partition(joined.shape[0], 3, rule="even")
        joined = xl.ungroup(joined, sizes=thirds, groups=len(params))
    return joined


def per_head_to_concat(case: Case, x: Arrays) -> Any:
    heads = case.params["heads"] // case.params["mp_size"]
    options = {"heads": heads, "kv_heads": heads, "axis": -1}
    qkv = xl.split_qkv(x["x"], order="per_head", **options)
    return xl.fuse_qkv(*qkv, order="concat", **options)


def sub_parameters(case: Case, x: Arrays) -> Any:
    p, weight = case.params, x["weight"]
    shape, dim, ranks = p["shape"], p["partition_dim"], p["mp_size"]
    last = dim == len(shape) - 1
    outer = int(np.prod([n for n in shape[:dim] if n != -1])) if not last else 1
    total = weight.shape[1] if last else weight.shape[0] // outer
    entry = shape[dim]
    sizes = entry if isinstance(entry, list) else xl.partition(total, max(entry, 1), rule="even")
    widths = [head_aligned(n, ranks, p["num_kv_heads"]) for n in sizes]
    pattern = "o {}" if last else f"(a={outer} {{}}) h"
    return {
        "widths": [list(w) for w in widths],
        "subparam_sizes": list(sizes) if entry != -1 else None,
        **by_rank(cut(weight, widths, pattern)),
    }


EXPRESSIONS: dict[str, dict[str, Callable[[Case, Arrays], Any]]] = {
    "transpose": {r"transpose_(new|old)/.*": transpose},
    "te_glu": {
        r"interleave/\d+": interleave,
        r"deinterleave/\d+": deinterleave,
        r"activation_lastdim": activation,
        r"double_interleave_is_not_identity": interleave_twice,
    },
    "hf_ops": {
        r"interleave/.*": hf_interleave,
        r"permute_rope/.*": hf_rope,
        r"strided_shard/.*": strided_shard,
    },
    "megatron_qkv": {
        r"merge_qkv(_bias)?/\d+": merge_qkv,
        r"merge_qkvg_expanded": merge_qkvg,
        r"merge_kv": merge_kv,
        r"gdn/.*": gated_delta_net,
        r"gpt_oss_gate_up": gpt_oss,
    },
    "partition_uniform": {r"pu/.*": partition, r"pu_pre4053/.*": partition_before_2023},
    "fused_qkv": {
        r"(bloom|unknown|falcon\w*)/.*": fused(whole),
        r"(glm|chatglm2|mpt|baichuan|qwen)/.*": fused(glm),
        r"phi3/.*": fused(phi3),
        r"codegen/.*": codegen,
        r"codegen_block_layout/.*": codegen_blocks,
    },
    "gate_up": {r"gate_up/.*": gate_up},
    "shared_qk": {r"yuan_v/.*": shared_qk(0), r"yuan_o/.*": shared_qk(1)},
    "megatron_sd": {
        r"split_qkv/v.*": split_megatron,
        r"merge_qkv/v.*": merge_megatron,
        r"v2_transpose/.*": per_head_to_concat,
    },
    "subparam": {r"subparam/.*": sub_parameters},
}
"""file -> pattern of case ids -> the same in public calls."""
