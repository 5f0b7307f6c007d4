"""Rules as data: one line says how the weights of a layer are cut among ranks.

    Rule("self_attn.qkv_proj", "column", "heads + kv_heads + kv_heads")

A pattern is the end of a layer's name. A rule also says what the cut axis is made of, because a cut
inside a head, or across the gate and up halves of a fused weight, gives wrong results and no error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

from xlayout.algebra.shapes import Shape, boolean, one_of
from xlayout.errors import LayoutError, ShardingError

__all__ = ["LEAVES", "Cut", "Rule", "Stored", "as_rules", "cut_axis", "first_match"]

Cut = Literal["column", "row", "vocab", "whole", "sum"]
Stored = Literal["out_in", "in_out"]

_UNITS = ("heads", "kv_heads", "groups", "plain")
_FOR = {"gather": "column", "scatter": "row", "partial_grads": "whole", "tail": "whole"}
LEAVES = ("weight", "bias", "kernel", "embedding")


@dataclass(frozen=True, slots=True)
class Rule:
    """How the weights of the layers that match a pattern are cut.

    Args:
        pattern: the last parts of a layer's name, or of a weight's own name if it is in no layer;
            `*` stands for any characters but a dot.
        cut: "column": the outputs of a layer are cut, and its bias with them. "row": the inputs are
            cut; outputs are summed over the ranks, then the bias is added. "vocab": an embedding is
            cut by rows. "whole": every rank holds all of it. "sum": the weights have their own
            rules, and the outputs of the module are summed, as in a mixture of experts.
        features: what the cut axis is made of: "plain" (a cut may fall between any two features),
            "heads" (of queries), "kv_heads", "groups" (the queries, key and value of one key-value
            head), or segments in order: "heads + kv_heads + kv_heads", "plain + plain".
        gather: gather the outputs of a "column" layer on every rank.
        scatter: the input of a "row" layer comes whole, and every rank takes its part.
        partial_grads: a "whole" weight is used on the features of one rank (a norm of queries), so
            its gradients have to be summed.
        tail: the config key for how many of the last outputs of a "whole" layer every rank uses for
            its own heads (the rotary part of a latent key); their gradients are summed.
        stored: "out_in", or "in_out": the weight is the transpose (a kernel of flax always is).

    Raises:
        TypeError: for a pattern, features or a tail that are not text; for another option that is
            not True or False.
        LayoutError: for an unknown word, or words that contradict each other.

    >>> Rule("self_attn.q_proj", "column", "heads").match("model.layers.3.self_attn.q_proj.bias")
    'bias'
    """

    pattern: str
    cut: Cut
    features: str = "plain"
    gather: bool = False
    scatter: bool = False
    partial_grads: bool = False
    tail: str | None = None
    stored: Stored = "out_in"

    def __post_init__(self) -> None:
        for name in ("pattern", "features"):
            if not isinstance(getattr(self, name), str):
                raise TypeError(f"{name}: {getattr(self, name)!r}; wanted a str")
        if not isinstance(self.tail, str | None):
            raise TypeError(f"tail: {self.tail!r}; wanted a key of the config, a str, or None")
        for name in ("gather", "scatter", "partial_grads"):
            boolean(getattr(self, name), name)
        one_of("cut", self.cut, get_args(Cut))
        one_of("stored", self.stored, get_args(Stored))
        for unit in self.terms:
            one_of("features", unit, _UNITS)
        if "plain" in self.terms and len({*self.terms}) > 1:
            raise LayoutError(
                f"features: {self.features!r} mixes heads with plain features, whose number "
                "nothing tells; wanted segments of one kind"
            )
        if self.terms != ("plain",) and self.cut not in ("column", "row"):
            raise LayoutError(
                f"features: {self.features!r} with cut {self.cut!r}; they are for 'column' and "
                "'row'"
            )
        if "kv_heads" in self.terms and (self.cut == "row" or self.gather):
            raise LayoutError(
                f"features: {self.features!r} where results are summed or gathered, and ranks may "
                "hold copies of a key-value head; wanted 'heads', 'groups' or 'plain'"
            )
        for name, cut in _FOR.items():
            if getattr(self, name) and self.cut != cut:
                raise LayoutError(f"{name}: with cut {self.cut!r}; it is for {cut!r}")

    @property
    def terms(self) -> tuple[str, ...]:
        """The segments of the cut axis."""
        return tuple(term.strip() for term in self.features.split("+"))

    @property
    def between_heads(self) -> bool:
        """Whether it cuts between heads, or groups of them, and not between any two features."""
        return "plain" not in self.terms

    def match(self, name: str) -> str | None:
        """The last part of a weight's name ("weight", "bias", …) if the rule matches, else None."""
        layer, _, leaf = name.rpartition(".")
        compiled = _compiled(self.pattern)
        if compiled.fullmatch(name) or (leaf in LEAVES and compiled.fullmatch(layer)):
            return leaf
        return None


@lru_cache(1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    ending = r"[^.]*".join(map(re.escape, pattern.split("*")))
    return re.compile(rf"(?:.*\.)?{ending}", re.DOTALL)


def first_match(rules: Iterable[Rule], name: str) -> tuple[Rule, str] | None:
    """The first rule for a weight, and the last part of its name."""
    for rule in rules:
        leaf = rule.match(name)
        if leaf is not None and rule.cut != "sum":
            return rule, leaf
    return None


def cut_axis(rule: Rule, leaf: str, shape: Shape) -> int | None:
    """The axis that a rule cuts; None if every rank holds the whole weight.

    The last two axes are those of a matrix; axes before them may count experts.
    """
    ndim = len(shape)
    if rule.cut in ("whole", "sum") or not ndim:
        return None
    if ndim == 1 or leaf.endswith("bias"):
        return None if rule.cut == "row" else ndim - 1
    transposed = leaf == "kernel" or rule.stored == "in_out"
    return ndim - 1 if (rule.cut == "row") != transposed else ndim - 2


# -- the plans in transformers' configs ------------------------------------------------------------

_STYLES: dict[str, dict[str, Any]] = {
    "colwise": {"cut": "column"},
    "colwise_gather_output": {"cut": "column", "gather": True},
    "colwise_rep": {"cut": "column", "gather": True},
    "packed_colwise": {"cut": "column", "features": "plain + plain"},
    "rowwise": {"cut": "row"},
    "rowwise_split_input": {"cut": "row", "scatter": True},
    "packed_rowwise": {"cut": "row", "features": "plain + plain"},
    "embedding_rowwise": {"cut": "vocab"},
    "embedding_colwise": {"cut": "column", "gather": True, "stored": "in_out"},
    "replicate": {"cut": "whole"},
    "replicated_with_grad_allreduce": {"cut": "whole", "partial_grads": True},
    "mla_kv_a_proj": {"cut": "whole", "tail": "qk_rope_head_dim"},
    "moe_tp_experts": {"cut": "sum"},
}

_OWN = "local_params"  # a module's own parameters are plain tensors, as here they always are
_FEATURES = {
    "k_proj": "kv_heads", "v_proj": "kv_heads", "kv_proj": "kv_heads", "query_key_value": "groups"
}  # fmt: skip


def as_rules(given: Any) -> tuple[Rule, ...]:
    """Rules as a tuple, also from the `base_model_tp_plan` of a transformers config.

    Raises:
        TypeError: for anything else.
        ShardingError: for a style that is not supported: half a plan would be wrong.
    """
    if isinstance(given, Mapping):
        for pattern, style in given.items():
            if not isinstance(pattern, str) or not isinstance(style, str):
                raise TypeError(
                    f"rules: {pattern!r}: {style!r}; wanted a pattern and the name of a style"
                )
        unknown = sorted({*given.values()} - {*_STYLES, _OWN})
        if unknown:
            raise ShardingError(
                f"rules: styles {', '.join(map(repr, unknown))}; known are "
                f"{', '.join(_STYLES)}. Half of a plan would be wrong; give rules for these layers"
            )
        return tuple(
            _from_style(pattern, style) for pattern, style in given.items() if style != _OWN
        )
    if isinstance(given, str | Set) or not isinstance(given, Iterable):  # a set has no order
        raise TypeError(f"rules: {given!r}; wanted a list of Rule, or a dict of patterns to styles")
    rules = tuple(given)
    for rule in rules:
        if not isinstance(rule, Rule):
            raise TypeError(f"rules: {rule!r}; wanted a Rule")
    return rules


def _from_style(pattern: str, style: str) -> Rule:
    options = dict(_STYLES[style])
    heads = "attn" in pattern or "attention" in pattern
    if heads and options["cut"] in ("column", "row"):
        whole = options.get("gather") or options.get("scatter")  # then every rank sees whole heads
        found = "plain" if whole else _FEATURES.get(pattern.rpartition(".")[2], "heads")
        options["features"] = options.get("features", "plain").replace("plain", found)
    return Rule(pattern, **options)
