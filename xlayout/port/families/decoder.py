"""The decoders that descend from Llama: a row for each weight, from which every dialect is made.

A row says what a weight is called in Hugging Face's files, in GGUF and in MaxText's tree, and how
its axes lie in the first and the last. Families differ in their rows, and in three habits of the
formats:

* Rope turns the halves of a head against each other (`two half`) in Hugging Face; where a format
  turns neighbouring pairs instead, its heads lie as `half two`.
* MaxText has no 1/√head_dim in the attention of some decoders, so their query kernels carry it.
* MaxText scans over layers: then one tensor holds all of them, along axis 1.

Sources: `conversion/` of llama.cpp, `checkpoint_conversion/utils/param_mapping.py` and `models/`
of MaxText.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from xlayout.port.family import Dialect
from xlayout.port.rules import Power, Rule

__all__ = ["ATTENTION", "MLP", "SIZES", "TIED", "Weight", "decoder_dialects", "experts"]


@dataclass(frozen=True, slots=True)
class Weight:
    """One weight of a layer, or of each of its experts.

    Args:
        hf: Its name in Hugging Face's files, inside its layer.
        gguf: Its name in GGUF, inside its block.
        maxtext: Its path in MaxText's tree, inside its layer.
        pattern: The layout from the first to the last, layers apart.
    """

    hf: str
    gguf: str
    maxtext: str
    pattern: str

    @property
    def axes(self) -> str:
        """The canonical axes."""
        return self.pattern.partition(" -> ")[0]


SIZES: Mapping[str, str] = {
    "layer": "num_hidden_layers",
    "vocab": "vocab_size",
    "embed": "hidden_size",
    "mlp": "intermediate_size",
    "heads": "num_attention_heads",
    "kv": "num_key_value_heads | heads",
    "dim": "head_dim | embed / heads",
    "two": "2",
    "half": "dim / two",
}
"""Where the config of nearly every one of them says its sizes."""

TIED = frozenset({"lm_head.weight"})
"""What is not there where the embedding serves at both ends."""

_FIRST = (
    Weight(
        "model.embed_tokens.weight",
        "token_embd.weight",
        "token_embedder/embedding",
        "vocab embed",
    ),
)

_LAST = (
    Weight(
        "model.norm.weight",
        "output_norm.weight",
        "decoder/decoder_norm/scale",
        "embed",
    ),
    Weight(
        "lm_head.weight",
        "output.weight",
        "decoder/logits_dense/kernel",
        "vocab embed -> embed vocab",
    ),
)

ATTENTION = (
    Weight(
        "input_layernorm.weight",
        "attn_norm.weight",
        "pre_self_attention_layer_norm/scale",
        "embed",
    ),
    Weight(
        "self_attn.q_proj.weight",
        "attn_q.weight",
        "self_attention/query/kernel",
        "(heads two half) embed -> embed heads (two half)",
    ),
    Weight(
        "self_attn.k_proj.weight",
        "attn_k.weight",
        "self_attention/key/kernel",
        "(kv two half) embed -> embed kv (two half)",
    ),
    Weight(
        "self_attn.v_proj.weight",
        "attn_v.weight",
        "self_attention/value/kernel",
        "(kv dim) embed -> embed kv dim",
    ),
    Weight(
        "self_attn.o_proj.weight",
        "attn_output.weight",
        "self_attention/out/kernel",
        "embed (heads dim) -> heads dim embed",
    ),
    Weight(
        "post_attention_layernorm.weight",
        "ffn_norm.weight",
        "post_self_attention_layer_norm/scale",
        "embed",
    ),
)
"""Attention whose keys and values may have fewer heads, and the norms before it and after."""

MLP = (
    Weight("mlp.gate_proj.weight", "ffn_gate.weight", "mlp/wi_0/kernel", "mlp embed -> embed mlp"),
    Weight("mlp.up_proj.weight", "ffn_up.weight", "mlp/wi_1/kernel", "mlp embed -> embed mlp"),
    Weight("mlp.down_proj.weight", "ffn_down.weight", "mlp/wo/kernel", "embed mlp -> mlp embed"),
)


def experts(hf: str, gate: str, up: str, down: str, /, *, maxtext: str) -> tuple[Weight, ...]:
    """Return the router and the three weights of each expert, by their names in a block `hf`."""
    each = f"{hf}.experts.{{expert}}."
    into, out_of = "mlp embed -> expert embed mlp", "embed mlp -> expert mlp embed"
    return (
        Weight(
            f"{hf}.gate.weight",
            "ffn_gate_inp.weight",
            f"{maxtext}/gate/kernel",
            "expert embed -> embed expert",
        ),
        Weight(f"{each}{gate}.weight", "ffn_gate_exps.weight", f"{maxtext}/wi_0", into),
        Weight(f"{each}{up}.weight", "ffn_up_exps.weight", f"{maxtext}/wi_1", into),
        Weight(f"{each}{down}.weight", "ffn_down_exps.weight", f"{maxtext}/wo", out_of),
    )


def decoder_dialects(
    layer: tuple[Weight, ...],
    /,
    *,
    gguf: str | None,
    ropes: Mapping[str, str],
    scaled_queries: bool,
    ignored: tuple[str, ...] = (),
) -> dict[str, Dialect]:
    """Return a family's dialects.

    Args:
        layer: The weights of one layer.
        gguf: Whether GGUF's rope turns "pairs" or "halves"; None where GGUF has no name for the
            family.
        ropes: The `rope_type`s of MaxText, by what they add to the name of the dialect.
        scaled_queries: Whether MaxText's query kernels carry 1/√head_dim.
        ignored: Names in Hugging Face's files that carry nothing of their own.
    """
    hf = _rules(layer, "hf")
    found = {
        "hf": Dialect("safetensors", hf, ignored=ignored),
        "dcp": Dialect("dcp", hf, ignored=ignored),
    }
    if gguf is not None:
        found["gguf"] = Dialect(
            "gguf",
            _rules(layer, "gguf", pairs=gguf == "pairs"),
            ignored=("rope_freqs.weight",),  # the config says it; `rope_factors` sees that it does
        )
    for suffix, rope in ropes.items():
        rules = _rules(layer, "maxtext", pairs=rope == "llama3.1", scaled=scaled_queries)
        found[f"maxtext{suffix}"] = Dialect(
            "maxtext",
            tuple(_scanned(rule) if rule.counted else rule for rule in rules),
            config={"scan_layers": True, "param_scan_axis": 1, "rope_type": rope},
        )
        found[f"maxtext{suffix}-unscanned"] = Dialect(
            "maxtext", rules, config={"scan_layers": False, "rope_type": rope}
        )
    return found


_INSIDE = {
    "hf": "model.layers.{layer}.",
    "gguf": "blk.{layer}.",
    "maxtext": "params/params/decoder/layers_{layer}/",
}
_TOP = {"hf": "", "gguf": "", "maxtext": "params/params/"}


def _rules(
    layer: tuple[Weight, ...], key: str, /, *, pairs: bool = False, scaled: bool = False
) -> tuple[Rule, ...]:
    rules = []
    for prefixes, weights in ((_TOP, _FIRST), (_INSIDE, layer), (_TOP, _LAST)):
        for weight in weights:
            pattern = weight.axes
            if key == "maxtext":
                pattern = weight.pattern
            elif key == "gguf" and "{expert}" in weight.hf:
                pattern = f"{weight.axes} -> expert {weight.axes}"
            rules.append(
                Rule(
                    prefixes["hf"] + weight.hf,
                    prefixes[key] + getattr(weight, key),
                    _turned(pattern, pairs=pairs),
                    scale=Power("dim", -0.5) if scaled and "q_proj" in weight.hf else None,
                )
            )
    return tuple(rules)


def _turned(pattern: str, /, *, pairs: bool) -> str:
    """Return a pattern with its heads as the format's rope wants them, whole where it can be."""
    if not pairs:
        return pattern.replace("(two half)", "dim").replace("two half", "dim")
    left, _, right = pattern.partition(" -> ")
    turned = (right or left).replace("two half", "half two")
    return pattern if turned == (right or left) else f"{left} -> {turned}"


def _scanned(rule: Rule) -> Rule:
    """Stack the layers at axis 1, as `param_scan_axis: 1` and one `layers` subtree do."""
    left, _, right = rule.pattern.partition(" -> ")
    first, *rest = re.findall(r"\([^)]*\)|\w+", right or left)
    return Rule(
        rule.name,
        rule.target.replace("layers_{layer}", "layers"),
        f"{left} -> {' '.join((first, 'layer', *rest))}",
        rule.scale,
    )
