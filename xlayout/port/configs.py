"""The model's config across formats: Hugging Face's keys are kept, MaxText's are derived.

An Orbax tree does not say whether its layers are stacked, or which rope order its kernels have. So
a ported tree has, besides the Hugging Face keys, an object "maxtext" with the MaxText keys that
give the same logits, and in "xlayout" the original dtype of each tensor that was stored wider. Both
are removed when the tree is ported again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xlayout.errors import PortError

if TYPE_CHECKING:
    from xlayout.port.family import Family

__all__ = ["plain_config", "rope_parameters", "section", "with_dtype", "with_maxtext"]

_OURS = ("maxtext", "xlayout")
_SIZES = {
    "base_emb_dim": "embed",
    "base_num_query_heads": "heads",
    "base_num_kv_heads": "kv",
    "head_dim": "dim",
    "base_mlp_dim": "mlp",
    "base_moe_mlp_dim": "mlp",
    "base_num_decoder_layers": "layer",
    "vocab_size": "vocab",
    "num_experts": "expert",
    "num_experts_per_tok": "active",
}
_OF_EXPERTS = ("base_moe_mlp_dim", "num_experts", "num_experts_per_tok")
_UNSET = ("sliding_window",)  # null means none; for other keys it means the default
_DEFAULTS = {"rms_norm_eps": 1e-6}  # in most models of transformers; MaxText has another
_LLAMA31 = {  # what MaxText's rope_use_scale uses, fixed in its code
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def plain_config(config: Mapping[str, Any], /) -> dict[str, Any]:
    """Return a config with Hugging Face's keys only."""
    return {key: value for key, value in config.items() if key not in _OURS}


def with_dtype(config: Mapping[str, Any], dtype: str, /) -> dict[str, Any]:
    """Return a config that names another dtype, under each key that it names one with."""
    said = [key for key in ("torch_dtype", "dtype") if key in config]
    return {**config, **dict.fromkeys(said or ["dtype"], dtype)}


def with_maxtext(
    config: Mapping[str, Any],
    sizes: Mapping[str, int],
    family: Family,
    choices: Mapping[str, Any],
    /,
    *,
    origin: Mapping[str, str],
) -> dict[str, Any]:
    """Return a config that also says how the tree is laid out and what MaxText calls its sizes.

    Args:
        config: Hugging Face's keys.
        sizes: The model's sizes.
        family: The model's family.
        choices: What the dialect chose: `scan_layers`, `rope_type`.
        origin: The dtype to return to, for tensors that are stored wider.

    Raises:
        PortError: MaxText has no key for this model's activation, rope or window, or a value
            that it needs is not a number; or the dialect chose no rope.
    """
    if "rope_type" not in choices:
        raise PortError(
            f"family: {family.name!r} has a dialect for MaxText whose config is {dict(choices)}; "
            "wanted a rope_type in it, 'default' or 'llama3.1'"
        )
    known = {key: value for key, value in config.items() if value is not None or key in _UNSET}
    known = {**_DEFAULTS, **family.defaults, **known}
    rope = rope_parameters(known)
    _refuse_foreign(known, rope, family)
    length = config.get("max_position_embeddings")
    if length is not None and (type(length) is not int or length < 1):
        raise PortError(
            f"config: max_position_embeddings is {length!r:.80}; wanted a positive whole number"
        )
    maxtext = {
        **family.maxtext,
        "mlp_activations": ["silu", "linear"],
        "enable_dropout": False,
        "logits_via_embedding": bool(config.get("tie_word_embeddings", False)),
        "normalize_embedding_logits": False,  # MaxText's default divides tied logits by √hidden
        "normalization_layer_epsilon": _epsilon(known["rms_norm_eps"]),
        "rope_max_timescale": rope["rope_theta"],
        **{
            key: sizes[size]
            for key, size in _SIZES.items()
            if size in sizes and ("expert" in sizes or key not in _OF_EXPERTS)
        },
        **({} if length is None else {"max_target_length": length}),
        **_scaling(rope, choices, family),
        **choices,
    }
    ours = {"xlayout": {"origin": dict(origin)}} if origin else {}
    return {**config, "maxtext": maxtext, **ours}


def rope_parameters(config: Mapping[str, Any], /) -> dict[str, Any]:
    """Return `rope_type`, `rope_theta` and their scaling, from any of the keys that configs use.

    Raises:
        PortError: The value is not an object, or its base is not a positive number; or the config
            contradicts itself, or has a rope for each kind of layer.

    >>> rope_parameters({"rope_theta": 1e5})
    {'rope_type': 'default', 'rope_theta': 100000.0}
    """
    keys = [key for key in ("rope_parameters", "rope_scaling") if section(config, key)]
    ways = [_rope(section(config, key), config) for key in keys] or [_rope({}, config)]
    if ways[0] != ways[-1]:  # which of the two transformers takes depends on its version
        raise PortError(
            f"config: rope_parameters is {config['rope_parameters']!r:.200} and rope_scaling is "
            f"{config['rope_scaling']!r:.200}; wanted one of the two, or the same in both"
        )
    return ways[0]


def _rope(said: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(said)
    if layers := [key for key, value in found.items() if isinstance(value, Mapping)]:
        raise PortError(
            f"config: a rope for each of {layers!r:.200}; wanted one for all kinds of layers"
        )
    kind = found.pop("rope_type", found.pop("type", "default"))
    ways = (found.pop("rope_theta", None), config.get("rope_theta"), 10_000.0)
    theta = next(way for way in ways if way is not None)
    if not (_is_number(theta) and theta > 0):
        raise PortError(f"config: rope_theta is {theta!r:.80}; wanted a positive number")
    return {"rope_type": kind, "rope_theta": theta, **found}


def section(config: Mapping[str, Any], key: str, /) -> Mapping[str, Any]:
    """Return an object inside a config; empty if it is absent or null.

    Raises:
        PortError: It is not an object.
    """
    found = config.get(key) or {}
    if not isinstance(found, Mapping):
        raise PortError(f"config: {key} is {found!r:.80}; wanted an object")
    return found


def _is_number(value: Any) -> bool:
    """Whether a config's value is a number that a float can hold."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def _refuse_foreign(known: Mapping[str, Any], rope: Mapping[str, Any], family: Family) -> None:
    """Refuse what MaxText's version of the family does not compute."""
    name = family.name.capitalize()
    wanted = {"hidden_act": ("silu", "swish"), "partial_rotary_factor": (1.0,)}
    wanted |= {key: (value,) for key, value in family.maxtext.items()}
    for place in (known, {"partial_rotary_factor": rope.get("partial_rotary_factor")}):
        for key, values in wanted.items():
            if (said := place.get(key)) is not None and said not in values:
                raise PortError(
                    f"config: {key} is {said!r:.80}; wanted {values[0]!r}, MaxText's {name} has no "
                    "other"
                )
    window = known.get("sliding_window")
    # If a window is transformers' own default for the family, there is no switch for it.
    if window is not None and (
        "sliding_window" in family.defaults or known.get("use_sliding_window", True)
    ):
        raise PortError(
            f"config: sliding_window is {window!r:.80}; MaxText's {name} has none. Where no text "
            "will be longer, it does nothing: set it to null"
        )


def _epsilon(said: Any) -> float:
    if not (_is_number(said) and said >= 0):
        raise PortError(f"config: rms_norm_eps is {said!r:.80}; wanted a number from 0 on")
    return float(said)


def _scaling(rope: Mapping[str, Any], choices: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Return MaxText's keys for the scaling of a rope; refuse one that the dialect cannot say."""
    kind, order = rope["rope_type"], choices["rope_type"]
    if kind == "default":
        return {"rope_use_scale": False}
    if _can_say(rope, order):
        if kind == "llama3":
            return {"rope_use_scale": True}
        factor = rope["factor"]
        if not (_is_number(factor) and factor > 0):
            raise PortError(f"config: rope factor is {factor!r:.80}; wanted a positive number")
        return {"rope_linear_scaling_factor": factor}
    if kind == "llama3" and order == "llama3.1":
        raise PortError(f"config: rope scaling {dict(rope)}; MaxText scales by {_LLAMA31} only")
    ways = [
        f"; to={key!r} (--to) can say {kind!r}"
        for key, dialect in family.dialects.items()
        if dialect.config.get("scan_layers") == choices.get("scan_layers")
        and _can_say(rope, dialect.config.get("rope_type"))
    ]
    raise PortError(
        f"config: rope_type {kind!r}; MaxText's {order!r} rope can say 'default' and "
        f"{'llama3' if order == 'llama3.1' else 'linear'!r}" + "".join(ways[:1])
    )


def _can_say(rope: Mapping[str, Any], order: str | None) -> bool:
    """Whether MaxText's rope of this order supports the scaling that a config asks for."""
    if order == "llama3.1":
        return rope["rope_type"] == "llama3" and all(
            rope.get(key) == value for key, value in _LLAMA31.items()
        )
    return order == "default" and rope["rope_type"] == "linear" and "factor" in rope
