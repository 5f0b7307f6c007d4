"""What a GGUF file's metadata says about a model beyond its sizes: put into its config, or refused.

llama.cpp knows more kinds of attention and rope than Hugging Face's Llama, all under the name
"llama". Linear rope scaling has a place in the config; anything that has none is refused, because
without it the logits would silently change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xlayout.errors import PortError
from xlayout.port.families import FAMILIES
from xlayout.port.formats.gguf import MODELS, GGUFSource, single

if TYPE_CHECKING:
    from xlayout.port.formats import Source

__all__ = ["refuse_part", "refuse_stranger", "with_metadata"]

_NOTHING: Mapping[str, tuple[Any, ...]] = {  # the values at which a key has no effect
    "attention.causal": (True,),
    "attention.clamp_kqv": (0.0,),
    "attention.scale": (0.0,),
    "attention.sliding_window": (0,),
    "attn_logit_softcapping": (0.0,),
    "embedding_scale": (0.0, 1.0),
    "expert_gating_func": (0, 1),  # 1 is a softmax; 0 leaves it open
    "expert_group_count": (0, 1),
    "expert_shared_count": (0,),
    "expert_weights_norm": (True,),
    "expert_weights_scale": (0.0, 1.0),
    "final_logit_softcapping": (0.0,),
    "leading_dense_block_count": (0,),
    "logit_scale": (0.0, 1.0),
    "residual_scale": (0.0, 1.0),
    "rope.scaling.attn_factor": (0.0, 1.0),
    "use_parallel_residual": (False,),
}
_WITH_EXPERTS = " with experts"


def refuse_part(source: Source, /) -> None:
    """Refuse what is not a whole model: one file of a split, an adapter, a vision encoder.

    Raises:
        PortError: The source is such a file.
    """
    if not isinstance(source, GGUFSource):
        return
    kind = source.metadata.get("general.type", "model")
    if kind != "model":
        raise PortError(
            f"{source.path}: general.type: {kind!r:.80}; wanted 'model': the file of a whole one"
        )
    parts = source.metadata.get("split.count", 0)
    if parts not in (0, 1):  # 0 in a file that was merged
        raise PortError(
            f"{source.path}: split.count: {parts!r:.80}; wanted the whole model in one file, as "
            "`llama-gguf-split --merge` makes it"
        )


def refuse_stranger(source: Source, /) -> None:
    """Refuse a GGUF file whose model belongs to no known family.

    Raises:
        PortError: The source is such a file.
    """
    if not isinstance(source, GGUFSource) or "architectures" in source.config:
        return
    arch = source.metadata.get("general.architecture")
    experts = source.metadata.get(f"{arch}.expert_count") not in (None, 0)
    known = ", ".join(f"{name}{_WITH_EXPERTS * more}" for name, more in MODELS)
    spoken = ", ".join(name for name, family in FAMILIES.items() if "gguf" in family.dialects)
    raise PortError(
        f"{source.path}: general.architecture: {arch!r:.80}{_WITH_EXPERTS * experts}; known are "
        f"{known}. If the tensors follow one of {spoken}, name it with family= (--family)"
    )


def with_metadata(source: Source, config: Mapping[str, Any], /) -> Mapping[str, Any]:
    """Return a config with the rope scaling that a GGUF source's metadata asks for.

    Raises:
        PortError: The metadata says something that the config cannot express.
    """
    if not isinstance(source, GGUFSource):
        return config
    arch = f"{source.metadata.get('general.architecture')}."
    said = {
        key.removeprefix(arch): single(value)
        for key, value in source.metadata.items()
        if key.startswith(arch)
    }

    def untold(key: str, wanted: str) -> PortError:
        return PortError(
            f"{source.path}: {arch}{key}: {said[key]!r:.80}; wanted {wanted}, because only that "
            "can be told to another format"
        )

    for key, nothing in _NOTHING.items():
        if key in said and said[key] not in nothing:
            raise untold(key, " or ".join(map(repr, nothing)))
    dim = config.get("head_dim")
    if said.get("rope.dimension_count", dim) != dim:
        raise untold("rope.dimension_count", f"{dim}, all of a head")
    kind = said.get("rope.scaling.type", "linear")  # llama.cpp's own default
    if kind not in ("none", "linear"):
        raise untold("rope.scaling.type", "'none' or 'linear'")
    key = "rope.scaling.factor" if "rope.scaling.factor" in said else "rope.scale_linear"
    factor = said.get(key, 0.0)
    if kind == "none" or factor in (0.0, 1.0):
        return config
    if type(factor) is not float or not 0 < factor < math.inf:
        raise untold(key, "a positive number")
    return {**config, "rope_scaling": {"rope_type": "linear", "factor": factor}}
