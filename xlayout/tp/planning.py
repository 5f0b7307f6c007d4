"""Plan: the sharding of each weight of a model, from names and shapes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from xlayout.algebra.shapes import Shape, a_type, as_shape, integer, one_of
from xlayout.errors import LayoutError, ShardingError, SizeError
from xlayout.shard import Mesh, Sharding
from xlayout.tp.agreement import check_companions, check_heads, check_segments
from xlayout.tp.features import split_of
from xlayout.tp.numbers import Numbers, config_value, numbers_of, text_of
from xlayout.tp.presets import NORMS_OF_HEADS, PRESETS, preset_of
from xlayout.tp.rules import Rule, as_rules, cut_axis, first_match
from xlayout.tp.tree import flatten
from xlayout.tp.value import AXIS, Placed, TensorPlan

__all__ = ["plan"]

_MOST = 1_000_000  # ranks: where each part begins is kept, and a slip of the pen would fill memory


def plan(
    weights: Any,
    parts: int,
    *,
    rules: str | Mapping[str, str] | Sequence[Rule] | None = None,
    config: Any = None,
    grain: int = 1,
) -> TensorPlan:
    """Plan how ranks share the weights of a model, from names and shapes alone.

    Layers are column-parallel and row-parallel as in Megatron and AutoTP. Heads are never cut, each
    query stays with its key-value head, and fused weights are cut segment by segment.

    Args:
        weights: a state dict, or nested dicts of arrays or of shapes; or a torch module.
        parts: number of ranks.
        rules: a list of `Rule`, of which the first match counts; the name of a preset; or a
            transformers `base_model_tp_plan`. By default the preset of the config's `model_type`,
            else the config's own plan.
        config: the model's config, an object or a dict with transformers' keys, for the number of
            heads; a module has its own. In a model of text and images, presets and the config's
            plan apply to the text model.
        grain: features of an MLP are cut at multiples of it; the rest goes to the last rank.

    Returns:
        A `TensorPlan`. Weights that no rule names are whole on every rank, and matrices among them
        are listed as `unmatched`.

    Raises:
        TypeError: for weights, rules or a config of another type.
        LayoutError: for no weights, two of one name, or an unknown preset.
        ShardingError: if there are no rules for the model, or none of them matches; for heads whose
            number is unknown, or differs between the weights of a layer; for segments that the next
            layer does not take; for weights of a sharded layer, such as scales, or of an adapter
            around one, without a rule.
        SizeError: for a weight that cannot be cut this way, naming it; for over a million ranks.

    >>> shapes = {"layers.0.self_attn.q_proj.weight": (8, 6), "norm.weight": (6,)}
    >>> made = plan(shapes, 2, rules="llama", config={"num_attention_heads": 4})
    >>> made.local_shape("layers.0.self_attn.q_proj.weight", 1), made.unmatched
    ((4, 6), ())
    """
    parts, grain = integer(parts, "parts", 1), integer(grain, "grain", 1)
    if parts > _MOST:
        raise SizeError(f"parts: {parts:,}; wanted at most {_MOST:,}")
    config = getattr(weights, "config", None) if config is None else config
    if isinstance(config, PathLike | int | float | Sequence):
        raise TypeError(
            f"config: {config!r}; wanted an object or a dict with transformers' keys, such as "
            "AutoConfig.from_pretrained gives"
        )
    chosen, numbers = _rules(rules, config), numbers_of(config)
    shapes = {name: _shape(name, x) for name, x in flatten(weights, "weights").items()}
    if not shapes:
        raise LayoutError("weights: there are none")
    if rules is None or isinstance(rules, Mapping):
        chosen = (*chosen, *_norms(chosen, shapes, numbers))
    if not chosen:
        raise ShardingError("rules: there are none; leave them out for those of the config")
    text = _text_part(shapes, config) if rules is None or isinstance(rules, str) else None
    mesh, placed = Mesh(parts, AXIS), {}
    for name, shape in shapes.items():
        inside = text is None or text in name.split(".")
        found = first_match(chosen, name) if inside else None
        if found is None:
            if inside:
                _refuse_wrapped(name, shape, chosen)
            placed[name] = Placed(shape, Sharding(mesh, ()), None)
            continue
        rule, leaf = found
        sharding = _sharding(name, shape, rule, leaf, mesh, numbers, grain)
        placed[name] = Placed(shape, sharding, rule, _tail(rule, config))
    if not any(p.rule for p in placed.values()):
        some = next(iter(placed))
        raise ShardingError(
            f"rules: none of the {len(chosen)} names a weight of this model, such as {some!r}"
        )
    check_heads(placed, numbers)
    check_segments(placed)
    check_companions(placed, numbers)
    return TensorPlan(parts, chosen, numbers, placed)


def _rules(given: Any, config: Any) -> tuple[Rule, ...]:
    if isinstance(given, str):
        one_of("rules", given, PRESETS)
        return PRESETS[given]
    if given is not None:
        return as_rules(given)
    text = text_of(config)
    preset = preset_of(text) or preset_of(config)
    own = config_value(text, "base_model_tp_plan")
    if preset is not None:
        return preset
    if own:
        return as_rules(own)
    raise ShardingError(
        f"rules: nothing is known of model_type {config_value(config, 'model_type')!r}; give "
        f"rules, the name of a preset ({', '.join(map(repr, PRESETS))}) or a config"
    )


def _norms(rules: Sequence[Rule], shapes: Mapping[str, Shape], numbers: Numbers) -> list[Rule]:
    """Rules for per-head norms, which transformers' plans may leave out though they cut heads."""
    made = []
    for rule in NORMS_OF_HEADS:
        names = [name for name in shapes if rule.match(name) == "weight"]
        if names and all(_is_of_each_head(name, rules, shapes, numbers) for name in names):
            made.append(rule)
    return made


def _is_of_each_head(
    name: str, rules: Sequence[Rule], shapes: Mapping[str, Shape], numbers: Numbers
) -> bool:
    layer = name.replace("_norm.", "_proj.")
    found = first_match(rules, layer)
    if found is None or layer not in shapes or first_match(rules, name) is not None:
        return False
    heads = {"heads": numbers.heads, "kv_heads": numbers.kv_heads}.get(found[0].features)
    if heads is None or found[0].cut != "column" or len(shapes[name]) != 1:
        return False
    return shapes[layer][:1] == (heads * shapes[name][0],)


def _tail(rule: Rule, config: Any) -> int:
    if rule.tail is None:
        return 0
    size = config_value(text_of(config), rule.tail)
    if size is None:
        raise ShardingError(f"config: names no {rule.tail}, which the rule {rule.pattern!r} needs")
    return integer(size, rule.tail)


def _text_part(names: Mapping[str, Shape], config: Any) -> str | None:
    """The name of the text model inside a multimodal model, if there is one."""
    if text_of(config) is config:
        return None
    parts = {part for name in names for part in name.split(".")}
    return next((name for name in ("language_model", "text_model") if name in parts), None)


def _shape(name: str, x: Any) -> Shape:
    try:
        return as_shape(getattr(x, "shape", x), f"weights[{name!r}]")
    except (TypeError, RuntimeError):  # the latter for torch's parameters that have no shape yet
        raise TypeError(f"weights[{name!r}]: {a_type(x)}; wanted an array or its shape") from None


def _refuse_wrapped(name: str, shape: Shape, rules: Sequence[Rule]) -> None:
    """Refuse a matrix that no rule names, in a module that a rule takes for the layer itself."""
    module, _, leaf = name.rpartition(".")
    layer, _, own = module.rpartition(".")
    found = first_match(rules, f"{layer}.{leaf}")
    if found is None or len(shape) < 2 or cut_axis(*found, shape) is None:
        return
    rule = found[0]
    raise ShardingError(
        f"weights[{name!r}]: no rule names it, and the rule {rule.pattern!r} would cut the module "
        "around it, as an adapter is around its layer; give a rule for each layer in there, as "
        f"Rule({f'{rule.pattern}.{own}'!r}, {rule.cut!r}, {rule.features!r}) or 'whole'"
    )


def _sharding(
    name: str,
    shape: Shape,
    rule: Rule,
    leaf: str,
    mesh: Mesh,
    numbers: Numbers,
    grain: int,
) -> Sharding:
    axis = cut_axis(rule, leaf, shape)
    if axis is None:
        return Sharding(mesh, ())
    if rule.between_heads and len(shape) > (1 if leaf == "bias" else 2):
        raise ShardingError(
            f"weights[{name!r}]: shape {shape}; the rule {rule.pattern!r} cuts between heads that "
            "share one axis of a matrix. Merge the axes of heads and of their features"
        )
    try:
        split = split_of(rule.terms, shape[axis], mesh.size, numbers, grain=grain)
        made = Sharding(mesh, [None] * axis + [AXIS], splits={axis: split})
        made.owned(mesh.size - 1, shape)
    except (SizeError, ShardingError) as error:
        raise type(error)(f"weights[{name!r}], shape {shape}, axis {axis}: {error}") from None
    return made
