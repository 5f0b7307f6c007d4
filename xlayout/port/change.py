"""What a port does to the value of an element: at most one factor and one rounding.

A layout moves elements and cannot lose any. A factor or a narrower dtype can: 1/√128 in bfloat16
does not come back for one element in seven. Whether a change is undone exactly is known for whole
dtypes (`always_exact`), and otherwise counted on the data (`losses`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from xlayout.errors import PortError

if TYPE_CHECKING:
    import numpy as np

    Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

__all__ = ["FLOATS", "Change", "exact_dtype", "roomy_dtype"]

FLOATS = {  # significand bits, the implicit one included; least and greatest exponent
    "float8_e4m3fn": (4, -6, 8),
    "float8_e5m2": (3, -14, 15),
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Change:
    """Times `factor`, and from dtype `source` to dtype `target`; `inverse()` undoes it.

    The product is computed in float32, or in float64 where either side is float64, and rounded
    once.
    """

    source: str
    target: str
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.source == self.target and self.factor == 1.0:
            return
        for dtype in (self.source, self.target):
            if dtype not in FLOATS:
                raise PortError(
                    f"dtype: {self.source} to {self.target}, times {self.factor:g}; values change "
                    f"between {', '.join(FLOATS)} only"
                )

    @property
    def is_nothing(self) -> bool:
        """Whether every element keeps its bits."""
        return self.source == self.target and self.factor == 1.0

    @property
    def always_exact(self) -> bool:
        """Whether every finite value of the source dtype comes back from `inverse()`."""
        if self.is_nothing:
            return True
        bits, low, high = FLOATS[self.source]
        wide, lowest, highest = FLOATS[self.target]
        if self.factor == 1.0:
            return wide >= bits and lowest <= low and highest >= high
        shrinks = math.log2(self.factor)
        room = wide >= bits + 3 and (wide - lowest) >= (bits - low - shrinks + 3)
        return room and highest >= high + shrinks

    def inverse(self) -> Change:
        """Return the change back."""
        return Change(self.target, self.source, 1 / self.factor)

    def apply(self, x: Array, out: Array, /) -> Array:
        """Write the changed elements of `x` into `out`, without a temporary of their size."""
        import numpy as np

        if self.is_nothing:
            np.copyto(out, x)
        else:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                np.multiply(x, self._work(self.factor), out=out, casting="unsafe")
        return out

    def losses(self, x: Array, y: Array, /) -> int:
        """Return how many elements of `x` do not come back, bit for bit, from `y = apply(x)`."""
        return self.inverse().departures(y, x)

    def departures(self, x: Array, y: Array, /) -> int:
        """Return how many elements of `y` are not, bit for bit, what `apply(x)` gives."""
        import numpy as np

        given, made = x.reshape(-1), y.reshape(-1)
        bits = f"u{y.dtype.itemsize}"
        scratch, odd = np.empty(min(_CHUNK, made.size), y.dtype), 0
        for start in range(0, made.size, _CHUNK):
            piece = made[start : start + _CHUNK]
            again = self.apply(given[start : start + _CHUNK], scratch[: piece.size])
            odd += int(np.count_nonzero(again.view(bits) != piece.view(bits)))
        return odd

    def _work(self, factor: float) -> Any:
        import numpy as np

        wide = "float64" in (self.source, self.target)
        return np.float64(factor) if wide else np.float32(factor)

    def __str__(self) -> str:
        return self.source if self.source == self.target else f"{self.source} → {self.target}"


def exact_dtype(dtype: str, factor: float, /) -> str:
    """Return the narrowest dtype that holds `factor` times any weight of `dtype` exactly.

    A power of two only moves the exponent, which bfloat16 and wider have room for; anything else
    needs the next wider significand.

    >>> exact_dtype("bfloat16", 64**-0.5), exact_dtype("bfloat16", 128**-0.5)
    ('bfloat16', 'float32')
    """
    if factor == 1.0 or (math.frexp(factor)[0] == 0.5 and FLOATS.get(dtype, (0, 0, 0))[2] >= 127):
        return dtype
    return roomy_dtype(dtype, factor)


def roomy_dtype(dtype: str, factor: float, /) -> str:
    """Return the narrowest dtype that holds `factor` times any finite number of `dtype` exactly.

    >>> roomy_dtype("bfloat16", 64**-0.5)  # 2^-133 is a bfloat16, an eighth of it is none
    'float32'
    """
    for wide in ("float32", "float64"):
        if Change(dtype, wide, factor).always_exact:
            return wide
    raise PortError(
        f"dtype: {dtype} times {factor:g}; no dtype here holds that exactly, exact=False rounds it"
    )
