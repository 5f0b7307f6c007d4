"""How formats store a decoder's weights: every dialect of a family, from the same rows.

Families differ in their rows, and in how they are affected by four habits of the formats:

* Hugging Face's rope rotates the halves of a head (`two half`); if a format rotates neighbouring
  pairs instead, its heads lie as `half two`.
* MaxText omits 1/√head_dim from the attention of some decoders; their query kernels include it.
* transformers 5 has all experts of a layer in one parameter, with gate and up projections fused.
  Its files have a tensor for each expert, but whoever saves the model itself saves its parameters.
* MaxText can scan over layers, and then one tensor holds all of them along axis 1. Megatron-core
  holds them along axis 0, unless it was told that its layers differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from xlayout.port.families.megatron import FILES
from xlayout.port.families.weights import FIRST, LAST, Weight
from xlayout.port.family import Dialect
from xlayout.port.rules import Power, Rule

__all__ = ["decoder_dialects"]

# What trainers save beside a model. Megatron-core uses the first name, with "chained_" before it if
# experts have an optimizer of their own; other trainers use various names.
_OF_TRAINERS = "optim optimizer optimizers lr_scheduler lr_schedulers dataloader train_state"
_TRAINING = (*(f"{name}.*" for name in _OF_TRAINERS.split()), "chained_*.*", "step", "epoch")
# What MaxText's training state holds beside params; since its decoder became an nnx module, that
# includes the state of each layer's random numbers.
_OF_MAXTEXT = ("opt_state/*", "step", "nnx_aux/*/rngs/*")
_OUTSIDE = {"hf": "", "fused": "", "gguf": "", "maxtext": "params/params/", "mcore": ""}
_INSIDE = {
    "hf": "model.layers.{layer}.",
    "fused": "model.layers.{layer}.",
    "gguf": "blk.{layer}.",
    "maxtext": "params/params/decoder/layers_{layer}/",
    "mcore": "decoder.layers.{layer}.",
}


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
        gguf: Whether GGUF's rope rotates "pairs" or "halves"; None if GGUF has no name for the
            family.
        ropes: MaxText's `rope_type`s, by the suffix that they add to the dialect's name.
        scaled_queries: Whether MaxText's query kernels include 1/√head_dim.
        ignored: Names in Hugging Face's files that carry no information of their own.
    """
    hf, mcore = _rules(layer, "hf"), _rules(layer, "mcore")
    found = {"hf": Dialect("safetensors", hf, ignored=ignored)}
    if gguf is not None:
        found["gguf"] = Dialect(
            "gguf",
            _rules(layer, "gguf", pairs=gguf == "pairs"),
            ignored=("rope_freqs.weight",),  # `rope_factors` puts it in the config
        )
    for suffix, rope in ropes.items():
        rules = _rules(layer, "maxtext", pairs=rope == "llama3.1", scaled=scaled_queries)
        found[f"maxtext{suffix}"] = Dialect(
            "maxtext",
            _stacked(rules, axis=1),
            other=_OF_MAXTEXT,
            config={"scan_layers": True, "param_scan_axis": 1, "rope_type": rope},
        )
        found[f"maxtext{suffix}-unscanned"] = Dialect(
            "maxtext",
            rules,
            other=_OF_MAXTEXT,
            config={"scan_layers": False, "rope_type": rope},
        )
    found |= _of_torch(hf, ignored)
    if any(weight.fused for weight in layer):
        fused = _rules(layer, "fused")
        found["hf-fused"] = Dialect("safetensors", fused, ignored=ignored)
        found |= _of_torch(fused, ignored, "-fused")
    return found | {
        "megatron": Dialect("dcp", _stacked(mcore, axis=0), other=_TRAINING, files=FILES),
        "megatron-per-layer": Dialect("dcp", mcore, other=_TRAINING, files=FILES),
    }


def _of_torch(
    rules: tuple[Rule, ...], ignored: tuple[str, ...], suffix: str = "", /
) -> dict[str, Dialect]:
    """Return the dialects of a model's names in DCP: alone, and beside optimizer states."""
    alone = Dialect("dcp", rules, ignored=ignored)
    return {
        f"dcp{suffix}": alone,
        f"dcp-model{suffix}": replace(alone.behind("model."), other=_TRAINING),
    }


def _rules(
    layer: tuple[Weight, ...], key: str, /, *, pairs: bool = False, scaled: bool = False
) -> tuple[Rule, ...]:
    rows = [("", _OUTSIDE[key], weight) for weight in FIRST]
    rows += [(_INSIDE["hf"], _INSIDE[key], weight) for weight in layer]
    rows += [("", _OUTSIDE[key], weight) for weight in LAST]
    return tuple(
        Rule(
            home + weight.hf,
            there + weight.called(key),
            _turned(_pattern(weight, key), pairs=pairs),
            scale=Power("dim", -0.5) if scaled and "q_proj" in weight.hf else None,
            part=weight.part_in(key),
        )
        for home, there, weight in rows
    )


def _pattern(weight: Weight, key: str) -> str:
    if key == "maxtext":
        return weight.pattern
    experts_in_front = key != "hf" and "{expert}" in weight.hf
    return f"{weight.axes} -> expert {weight.axes}" if experts_in_front else weight.axes


def _turned(pattern: str, /, *, pairs: bool) -> str:
    """Return a pattern with its heads as the format's rope needs them, unsplit if possible."""
    if not pairs:
        return pattern.replace("(two half)", "dim").replace("two half", "dim")
    left, _, right = pattern.partition(" -> ")
    turned = (right or left).replace("two half", "half two")
    return pattern if turned == (right or left) else f"{left} -> {turned}"


def _stacked(rules: Sequence[Rule], /, *, axis: int) -> tuple[Rule, ...]:
    """Return the rules of a checkpoint in which one tensor holds all layers, along an axis."""
    found = []
    for rule in rules:
        if rule.counted:
            left, _, right = rule.pattern.partition(" -> ")
            groups = re.findall(r"\([^)]*\)|\w+", right or left)
            groups.insert(axis, "layer")
            target = re.sub(r"layers[_.]\{layer\}", "layers", rule.target)
            pattern = f"{left} -> {' '.join(groups)}"
            rule = replace(rule, target=target, pattern=pattern)
        found.append(rule)
    return tuple(found)
