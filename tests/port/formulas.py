"""Where each element of a weight goes in every format, by index: nothing shared with the rules."""

from __future__ import annotations

from collections.abc import Callable

from xlayout.port.family import Family

CONFIG = {
    "num_hidden_layers": 2,
    "vocab_size": 7,
    "hidden_size": 5,
    "intermediate_size": 9,
    "moe_intermediate_size": 9,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts": 3,
    "num_experts_per_tok": 2,
}
D, R = 8, 3
HALF = D // 2
LAYER, EXPERT = 1, 2

Index = tuple[int, ...]
Formula = Callable[[Index], Index]


def transposed(at: Index) -> Index:
    return at[::-1]


def same(at: Index) -> Index:
    return at


def turned(row: int) -> int:
    """Where a row of q or k goes: within its head, place j of half s becomes side s of pair j."""
    head, s, j = row // D, (row % D) // HALF, row % HALF
    return head * D + 2 * j + s


def paired_rows(at: Index) -> Index:
    return turned(at[0]), at[1]


def kernel(at: Index) -> Index:
    return at[1], at[0] // D, at[0] % D


def paired_kernel(at: Index) -> Index:
    return at[1], at[0] // D, turned(at[0]) % D


def out_kernel(at: Index) -> Index:
    return at[1] // D, at[1] % D, at[0]


def bias(at: Index) -> Index:
    return at[0] // D, at[0] % D


def of_an_expert(at: Index) -> Index:
    return EXPERT, *at


def transposed_of_an_expert(at: Index) -> Index:
    return EXPERT, at[1], at[0]


QUERY_KEY = ("q_proj.weight", "k_proj.weight")
UP = ("up_proj.weight", "w3.weight")
OF_EXPERTS = (
    "gate_proj.weight",
    "up_proj.weight",
    "down_proj.weight",
    *(f"w{i}.weight" for i in (1, 2, 3)),
)
MAXTEXT = {
    "v_proj.weight": kernel,
    "o_proj.weight": out_kernel,
    **dict.fromkeys(OF_EXPERTS, transposed),
    "gate.weight": transposed,
    "lm_head.weight": transposed,
    **dict.fromkeys(("q_proj.bias", "k_proj.bias", "v_proj.bias"), bias),
}
PAIRS = {  # the dialects whose rope rotates neighbours, and for which families
    "gguf": ("llama", "mixtral"),
    "maxtext": ("llama",),
}


def fused_row(row: int, tail: str) -> int:
    """Where a row of q, k or v goes in Megatron: by group, its queries, its key, its value."""
    head, inside = row // D, row % D
    group = head // R if "q_proj" in tail else head
    slot = {"q_proj": head % R, "k_proj": R, "v_proj": R + 1}[tail.split(".")[0]]
    return (group * (R + 2) + slot) * D + inside


def behind_gates(at: Index, tail: str) -> Index:
    return (at[0] + CONFIG["intermediate_size"], at[1]) if tail in UP else at


def fused(at: Index, tail: str) -> Index:
    return of_an_expert(behind_gates(at, tail))


def megatron(at: Index, tail: str, name: str) -> Index:
    if tail.split(".")[0] in ("q_proj", "k_proj", "v_proj"):
        return fused_row(at[0], tail), *at[1:]
    return fused(at, tail) if "expert" in name else behind_gates(at, tail)


def formula(family: Family, key: str, name: str) -> Formula:
    """Where an element of a weight goes, by the tail of its name."""
    tail = name if name == "lm_head.weight" else ".".join(name.split(".")[-2:])
    pairs = family.name in PAIRS.get(key, ())
    expert = "expert" in name
    if key in ("hf", "dcp", "dcp-model"):
        return same
    if key in ("hf-fused", "dcp-fused", "dcp-model-fused"):
        return (lambda at: fused(at, tail)) if expert else same
    if key.startswith("megatron"):
        return lambda at: megatron(at, tail, name)
    if key == "gguf":
        turns = paired_rows if pairs and tail in QUERY_KEY else same
        return of_an_expert if expert else turns
    if expert:
        return transposed_of_an_expert
    if tail in QUERY_KEY:
        return paired_kernel if pairs else kernel
    return MAXTEXT.get(tail, same)
