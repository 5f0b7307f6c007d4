"""Without the kernel every op gives the same result, at sizes where the kernel would run."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tests.house.tree import printed

FRAMEWORKS = [name for name in ("numpy", "torch", "jax") if find_spec(name)]
SIDES = (16, 192, 768, 2304)  # 1 KB to 20 MB, of float32

OPS = """
import importlib, sys
import numpy as np
import xlayout as xl
import xlayout_native
from tests.table import by_table

framework, side = sys.argv[1], int(sys.argv[2])
assert not xlayout_native.available
arrays = {"torch": "as_tensor", "jax": "numpy.asarray", "numpy": "asarray"}[framework]
module = importlib.import_module("jax.numpy" if framework == "jax" else framework)
make = getattr(module, arrays.split(".")[-1])
x = np.random.default_rng(side).standard_normal((side, side), np.float32)
parts = np.split(x, 4)
CASES = {
    "interleave": (xl.interleave, {}, [x]),
    "zip": (xl.interleave, {"axis": 1}, [x]),
    "transpose": (xl.matrix_transpose, {}, [x]),
    "rope": (xl.rope_halves, {"heads": 4, "axis": 1}, [x]),
    "split": (xl.split_qkv, {"heads": 4, "kv_heads": 2}, [x]),
    "columns": (lambda x, **o: xl.to_tiles.layout(x.shape, grid=(1, 4))(x, **o), {}, [x]),
    "stack": (lambda *xs, **o: xl.stack(xs, **o), {}, parts),
    "pad": (xl.pad, {"to": side + 3, "value": 7}, [x]),
}

def seen(y):
    return [np.asarray(v) for v in (y if isinstance(y, tuple) else (y,))]

LAYOUTS = {
    "columns": lambda: xl.to_tiles.layout(x.shape, grid=(1, 4)),
    "stack": lambda: xl.stack.layout([v.shape for v in parts]),
}
for name, (op, options, inputs) in CASES.items():
    layout = LAYOUTS[name]() if name in LAYOUTS else op.layout(x.shape, **options)
    wanted = by_table(layout, inputs, options.get("value", 0))
    given = [make(v) for v in inputs]
    for _ in range(2):  # the second call finds what the first has kept
        for y, z in zip(seen(op(*given, **options)), wanted, strict=True):
            assert np.array_equal(y, z), name
        if framework != "jax":
            out = tuple([make(np.zeros_like(z)) for z in wanted])
            op(*given, **options, out=out if len(out) > 1 else out[0])
            for y, z in zip(seen(out), wanted, strict=True):
                assert np.array_equal(y, z), name
print(len(CASES), "ops")
"""


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_ops_without_the_kernel(framework: str, side: int) -> None:
    done = printed(OPS, framework, str(side), quiet=True, XLAYOUT_NATIVE="off")
    assert done == "8 ops"
