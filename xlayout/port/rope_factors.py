"""A GGUF file's table of rope factors, turned back into the config's few numbers it was made from.

llama.cpp's converter precomputes by how much Llama 3.1's rope divides its frequencies, and stores
it in `rope_freqs.weight`, a float32 for each pair of a head. Hugging Face and MaxText compute it
from four numbers instead, of which only `factor` differs between models. So the factor is derived
from the table here, and accepted if it reproduces every entry.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xlayout.errors import PortError
from xlayout.port.configs import rope_parameters

if TYPE_CHECKING:
    from xlayout.port.formats import Source

__all__ = ["TABLE", "llama3_factors", "with_rope_scaling"]

TABLE = "rope_freqs.weight"

_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_CONTEXT = "original_max_position_embeddings"
_TRAINED = 8192
_MOST = 4096  # pairs of a head
_CLOSE = 1e-4  # float32, by way of a power and a division


def with_rope_scaling(source: Source, config: Mapping[str, Any], /) -> Mapping[str, Any]:
    """Return a config that includes the source's table of rope factors, if it has one.

    Raises:
        PortError: The table is not that of Llama 3's rope scaling.
    """
    if source.format != "gguf" or TABLE not in source.tensors:
        return config
    if (size := source.tensors[TABLE].size) > _MOST:
        raise PortError(
            f"{source.path}: {TABLE}: {size:,} factors; wanted at most {_MOST:,}, one for each "
            "pair of a head"
        )
    found = source.read(TABLE).astype(float).reshape(-1).tolist()
    if all(value == 1.0 for value in found):
        return config
    if scaled := config.get("rope_scaling"):
        raise PortError(
            f"{source.path}: {TABLE}: factors up to {max(found):g}, beside {scaled}; wanted one "
            "of the two, because only that can be told to another format"
        )
    scaling = {"factor": round(max(found), 3), **_LLAMA3, _CONTEXT: _TRAINED}
    theta = rope_parameters(config)["rope_theta"]
    dim = config.get("head_dim", 2 * len(found))
    agree = False
    if 1.0 <= scaling["factor"] < math.inf:
        expected = llama3_factors(theta, 2 * len(found), **scaling)
        agree = all(abs(a - b) < _CLOSE * b for a, b in zip(found, expected, strict=True))
    if dim != 2 * len(found) or not agree:
        raise PortError(
            f"{source.path}: {TABLE}: {len(found)} factors from {min(found):g} to {max(found):g}; "
            f"wanted Llama 3's rope for heads of {dim}, base {theta:g}, {scaling}, because only "
            "that can be told to another format"
        )
    return {**config, "rope_scaling": {"rope_type": "llama3", **scaling}}


def llama3_factors(
    theta: float,
    dim: int,
    /,
    *,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_max_position_embeddings: int,
) -> list[float]:
    """Return by how much Llama 3 divides the frequency of each pair of a head of size `dim`.

    Waves that fit many times into the trained context are left alone, long ones are stretched by
    `factor`, and in between the stretch changes smoothly from one to the other.
    """
    factors = []
    for pair in range(dim // 2):
        wave = 2 * math.pi * theta ** (2 * pair / dim)
        turns = original_max_position_embeddings / wave
        smooth = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
        smooth = min(max(smooth, 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors
