"""The Triton kernel compiled for sm_90, and what its machine code contains."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.native.test_copy import permuted
from tests.triton.cases import PATCHES
from tests.triton.test_tile import LARGE, tile_of
from tests.triton.test_words import odd_tile
from xlayout_triton.copy import copy_tiles
from xlayout_triton.plan import ALONE, FIRST, FURTHER
from xlayout_triton.tile import Tile, cut

__all__ = ["FAMILIES", "IN_WORDS", "TOKENS", "compiled", "first_link", "links", "variants"]

TARGET = GPUTarget("cuda", 90, 32)
FAMILIES = [(name, itemsize) for name in LARGE for itemsize in (1, 2, 4)]
TOKENS = cut(0, 0, permuted((16, 16, 64, 2, 64, 2), PATCHES), 2, (16, 16))
ODD = [odd_tile(itemsize) for itemsize in (1, 2, 4)]
FEW = [
    cut(0, 0, permuted(shape, (1, 0)), 1, (16, 16))
    for shape in ((1 << 20, 3), (1 << 20, 7), (3, 1 << 20), (7, 1 << 20))
]
IN_WORDS = [*ODD, *(one.tile for one in FEW if one is not None)]
"""Tiles of odd rows of 1, 2 and 4 bytes, and of 3 and 7 columns and rows of bytes."""

_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def _kernel(tile: Tile, *, several: bool = True, link: int = ALONE) -> Any:
    parameters = copy_tiles.params
    kinds = {p.name: "constexpr" if p.is_constexpr else p.annotation or "*i64" for p in parameters}
    values = {"SEVERAL": several, "LINK": link, "TILE": tile}
    aligned = {(k,): [["tt.divisibility", 16]] for k in range(2)}
    source = ASTSource(copy_tiles, kinds, values, aligned)
    return triton.compile(source, target=TARGET, options=tile.options)


def links(name: str, *, several: bool) -> list[list[str]]:
    """What a kernel does, of what matters in a chain, in order: alone, first and further."""
    tile = tile_of(name, 2)
    kernels = [_kernel(tile, several=several, link=link) for link in (ALONE, FIRST, FURTHER)]
    # An access of 16 bytes is the copy's, and one of 8 the table's; the last is a label.
    what = r"griddepcontrol\.\w+|(?:ld|st)\.global\.(?:v\d\.)?b\d+|\bret;|^\$L__BB"
    return [re.findall(what, kernel.asm["ptx"], re.MULTILINE) for kernel in kernels]


def compiled(tile: Tile, *, several: bool = True) -> dict[str, int]:
    """Registers, bytes of stack and shared memory, and accesses of 16 bytes and fewer."""
    kernel = _kernel(tile, several=several)
    ptx = kernel.asm["ptx"]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage, code = (_dumped(file.name, what) for what in ("--dump-resource-usage", "-sass"))
    registers, stack = map(int, re.findall(r"REG:(\d+) STACK:(\d+)", usage)[0])
    wide = r"\.global[\w.:]*\.(?:v4\.b32|v2\.b64)"
    return {
        "registers": registers,
        "stack": stack,
        "shared": kernel.metadata.shared,
        "threads": 32 * tile.warps,
        "vectors": tile.nbytes // 16 // (32 * tile.warps),
        "wide loads": len(re.findall("ld" + wide, ptx)),
        "wide stores": len(re.findall("st" + wide, ptx)),
        "narrow stores": len(re.findall(r"st\.global\.b", ptx)),
        "words read": len(re.findall(r"ld\.global\.b32", ptx)),
        "words written": len(re.findall(r"st\.global\.b64", ptx)),
        "permutes": len(re.findall(r"prmt\.b32", ptx)),
        "loads before any shuffle": code.partition(" SHFL.")[0].count(" LDG."),
        "shuffles": len(re.findall(r"shfl\.sync", ptx)),
        "barriers": len(re.findall(r"bar\.sync", ptx)),
    }


def _dumped(path: str, what: str) -> str:
    tool = _TOOLS / "cuobjdump"
    return subprocess.run([tool, what, path], capture_output=True, text=True, check=True).stdout


class Absent:
    """A device that can be compiled for, and not be launched on."""

    def get_current_target(self) -> GPUTarget:
        return TARGET

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int) -> int:
        return 0


def first_link(tile: Tile) -> dict[str, int]:
    """How often the first link of a chain waits and lets the next begin; what it does before."""
    ptx = _kernel(tile, several=False, link=FIRST).asm["ptx"]
    before = ptx.partition("griddepcontrol.wait")[0]
    return {
        "waits": ptx.count("griddepcontrol.wait"),
        "lets": ptx.count("griddepcontrol.launch_dependents"),
        "loads before": before.count("ld.global"),
        "stores before": before.count("st.global"),
    }


def variants() -> int:
    """Kernels that launches compile which differ in addresses and in positions in the table."""
    triton.runtime.driver.set_active(Absent())
    tile = tile_of("transpose", 2)
    fixed = True, ALONE, tile
    numbers = [(0, 0, 0, 1, 1), (1 << 46, 16, 1, 38, 16), (7, (1 << 47) + 1, 1 << 20, 0, 64)]
    made = [
        copy_tiles.warmup(torch.int64, torch.int64, *some, *fixed, grid=(1,), **tile.options)
        for some in numbers
    ]
    return len({kernel.hash for kernel in made})
