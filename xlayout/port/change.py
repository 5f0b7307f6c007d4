"""What a port does to the value of an element: at most one factor and one rounding.

A layout moves elements and cannot lose any. A factor or a narrower dtype can: scaled by 1/√128 in
bfloat16, one element in seven does not come back. Whether a change can be undone exactly is known
for whole dtypes (`always_exact`), and otherwise counted on the data (`losses`). A NaN comes back as
NaN, but perhaps with other bits: processors and libraries do not preserve those in a cast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xlayout.errors import PortError

if TYPE_CHECKING:
    from xlayout.port.formats.base import Array

__all__ = ["FLOATS", "Change", "exact_dtype", "roomy_dtype"]

FLOATS = {  # significand bits, the implicit one included; least and greatest exponent
    "float8_e4m3fn": (4, -6, 8),
    "float8_e5m2": (3, -14, 15),
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}
_BY_FLOAT32 = ("bfloat16", "float8_e4m3fn", "float8_e5m2")  # how ml_dtypes casts float64 to them
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Change:
    """Times `times / over`, and from dtype `source` to dtype `target`; `inverse()` undoes it.

    The product is computed in float32, or in float64 if either side is float64, and rounded once:
    a cast that passes through float32 must not round there as well.

    The factor is kept as a fraction so that its inverse is exact: 1 / (1 / x) is not always x.
    """

    source: str
    target: str
    times: float = 1.0
    over: float = 1.0

    def __post_init__(self) -> None:
        if self.is_nothing:
            return
        for dtype in (self.source, self.target):
            if dtype not in FLOATS:
                raise PortError(
                    f"dtype: {self.source} to {self.target}, times {self.factor:g}; values change "
                    f"between {', '.join(FLOATS)} only"
                )

    @property
    def factor(self) -> float:
        """What elements are multiplied by."""
        return self.times / self.over

    @property
    def is_nothing(self) -> bool:
        """Whether every element keeps its bits."""
        return self.source == self.target and self.factor == 1.0

    @property
    def always_exact(self) -> bool:
        """Whether every number of the source dtype comes back from `inverse()`, bit for bit."""
        if self.is_nothing:
            return True
        bits, low, high = FLOATS[self.source]
        wide, lowest, highest = FLOATS[self.target]
        shrinks = math.log2(self.factor)
        room = wide >= bits + 3 and (wide - lowest) >= (bits - low - shrinks + 3)
        return room and highest >= high + shrinks

    def inverse(self) -> Change:
        """Return the change back."""
        return Change(self.target, self.source, self.over, self.times)

    def apply(self, x: Array, out: Array, /) -> Array:
        """Write the changed elements of `x` into `out`, without a temporary of their size."""
        import numpy as np

        if self.is_nothing:
            np.copyto(out, x)
            return out
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if self.source == "float64" and self.target in _BY_FLOAT32:
                given, made = x.reshape(-1), out.reshape(-1)
                for start in range(0, made.size, _CHUNK):
                    part = slice(start, start + _CHUNK)
                    made[part] = _rounded_to_odd(given[part] * self._multiplier)
            else:
                np.multiply(x, self._multiplier, out=out, casting="unsafe")
        return out

    def losses(self, x: Array, y: Array, /) -> int:
        """Return how many elements of `x` are lost in `y = apply(x)`: see `departures`."""
        return self.inverse().departures(y, x)

    def departures(self, x: Array, y: Array, /) -> int:
        """Return how many elements of `y` are not what `apply(x)` gives.

        Bits are compared, but if values change, any NaN equals any other.
        """
        import numpy as np

        given, made = x.reshape(-1), y.reshape(-1)
        bits = f"u{y.dtype.itemsize}"
        scratch, odd = np.empty(min(_CHUNK, made.size), y.dtype), 0
        for start in range(0, made.size, _CHUNK):
            again, piece = given[start : start + _CHUNK], made[start : start + _CHUNK]
            if not self.is_nothing:
                again = self.apply(again, scratch[: piece.size])
            differ = again.view(bits) != piece.view(bits)
            if differ.any() and not self.is_nothing:
                with np.errstate(invalid="ignore"):
                    differ &= ~(np.isnan(again) & np.isnan(piece))
            odd += int(np.count_nonzero(differ))
        return odd

    def overflows(self, x: Array, y: Array, /) -> int:
        """Return how many elements are finite in only one of `x` and `y = apply(x)`."""
        import numpy as np

        given, made = x.reshape(-1), y.reshape(-1)
        parts = (slice(start, start + _CHUNK) for start in range(0, made.size, _CHUNK))
        with np.errstate(invalid="ignore"):
            return sum(
                int(np.count_nonzero(np.isfinite(given[part]) != np.isfinite(made[part])))
                for part in parts
            )

    @property
    def _multiplier(self) -> Any:
        """The factor, in the dtype in which the product is computed."""
        import numpy as np

        wide = "float64" in (self.source, self.target)
        return np.float64(self.factor) if wide else np.float32(self.factor)

    def __str__(self) -> str:
        return self.source if self.source == self.target else f"{self.source} → {self.target}"


def _rounded_to_odd(x: Array) -> Array:
    """Round float64 to float32, setting the last bit to 1 if the number is inexact there.

    Rounding the result again, to fewer bits, gives the same as rounding `x` itself once. Rounding
    to nearest first would turn a number just beside a tie into a tie.
    """
    import numpy as np

    near = x.astype(np.float32)
    bits = near.view(np.int32)
    even = (near != x) & ~np.isnan(x) & (bits & 1 == 0)
    bits += even * np.where(np.abs(near) < np.abs(x), np.int32(1), np.int32(-1))
    return near


def exact_dtype(dtype: str, factor: float, /) -> str:
    """Return the narrowest dtype that holds `factor` times any weight of `dtype` exactly.

    A power of two only shifts the exponent, for which bfloat16 and wider dtypes have room; any
    other factor needs the next wider significand. No weight is near the ends of the range of
    bfloat16, which float32 shares.

    >>> [exact_dtype("bfloat16", factor) for factor in (64**-0.5, 128**-0.5, 128**0.5)]
    ['bfloat16', 'float32', 'float32']
    """
    bits, _, high = FLOATS.get(dtype, (0, 0, 0))
    if factor == 1.0 or (math.frexp(factor)[0] == 0.5 and high >= 127):
        return dtype
    if 0 < bits <= 8:
        return "float32"
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
        f"dtype: {dtype} times {factor:g}; no dtype here holds that exactly; exact=False "
        "(--lossy) rounds it"
    )
