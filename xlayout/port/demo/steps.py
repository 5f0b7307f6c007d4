"""The demo's steps, each run in a process of its own so that its peak memory can be measured.

    python -m xlayout.port.demo.steps port '{"src": "a.gguf", "dst": "hf", "to": "hf"}'

A step takes a JSON object and prints one on the last line: what it returns, and its peak memory.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xlayout import port
from xlayout.rss import peak_rss

__all__ = ["main"]


def port_step(src: str, dst: str, to: str) -> dict[str, Any]:
    """Port a checkpoint and read it back."""
    report = port.run(src, dst, to=to)
    return {
        "read": report.plan.read_bytes,
        "written": report.plan.write_bytes,
        "buffers": report.plan.buffer_bytes,
        "seconds": report.seconds,
        "verify_seconds": report.verify_seconds,
    }


def tokenizer_step(gguf: str, dst: str) -> dict[str, Any]:
    """Save the tokenizer that a GGUF file contains, beside the weights."""
    import transformers

    path = Path(gguf)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    tokenizer.save_pretrained(dst)
    return {}


def torch_step(path: str, prompt: str, tokens: int, out: str) -> dict[str, Any]:
    """Continue the prompt with transformers, and store the logits of the whole sequence."""
    import numpy as np
    import torch
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    model.eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path) if prompt else None
    start = tokenizer(prompt).input_ids if tokenizer else list(range(3, 27))
    begun = time.perf_counter()
    with torch.no_grad():
        ids = model.generate(
            torch.tensor([start]), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False
        )
        logits = model(ids).logits[0].numpy()
    seconds = time.perf_counter() - begun
    np.save(out, logits)
    return _answer(tokenizer, ids[0].tolist(), start, seconds)


def jax_step(path: str, start: list[int], ids: list[int], out: str) -> dict[str, Any]:
    """Do the same with JAX from the MaxText tree; logits are computed on torch's sequence."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    import transformers

    from xlayout.port.demo.decoder_jax import forward, generate, load

    tree, config = load(path)
    named = (Path(path) / "tokenizer_config.json").is_file()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path) if named else None
    begun = time.perf_counter()
    found = generate(tree, start, config, tokens=len(ids) - len(start))
    logits = jax.jit(lambda tree, ids: forward(tree, ids, config))(tree, jnp.asarray(ids))
    np.save(out, np.asarray(logits))
    return _answer(tokenizer, found, start, time.perf_counter() - begun)


def _answer(tokenizer: Any, ids: list[int], start: list[int], seconds: float) -> dict[str, Any]:
    new = ids[len(start) :]
    text = tokenizer.decode(new) if tokenizer else " ".join(map(str, new))
    return {"ids": ids, "start": start, "text": text, "seconds": seconds}


def main(name: str, arguments: str, /) -> None:
    """Run a step and print what it returns."""
    steps: dict[str, Callable[..., dict[str, Any]]] = {
        "port": port_step,
        "tokenizer": tokenizer_step,
        "torch": torch_step,
        "jax": jax_step,
    }
    result = steps[name](**json.loads(arguments))
    sys.stdout.write(json.dumps({"result": result, "peak_rss": peak_rss()}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
