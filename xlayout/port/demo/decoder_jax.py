"""Decoders in JAX on MaxText's parameter trees, to check ports with; written to be read.

Kernels are `[embed, heads, dim]`. The query kernel includes 1/√dim, except in Qwen's decoders.
"llama3.1" rope rotates neighbouring pairs and "default" rope halves; scanned layers lie along
axis 1. Everything is computed in float32 at the highest precision. Sizes are letters: t tokens,
e embed, h heads, k kv heads, d dim, f mlp, x experts, v vocab.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["forward", "generate", "load"]

Tree = Mapping[str, Any]


def load(path: str | Path, /) -> tuple[Tree, dict[str, Any]]:
    """Return a checkpoint's parameters in float32, as orbax restores them, and MaxText's config."""
    import orbax.checkpoint as ocp

    items = Path(path).resolve() / "0" / "items"
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(items)["params"]["params"]
    config = json.loads((Path(path) / "config.json").read_text())["maxtext"]
    tree = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), tree)
    return _layers_first(tree, config), config


def forward(tree: Tree, ids: jax.Array, config: Mapping[str, Any], /) -> jax.Array:
    """Return the logits `[t, v]` of a sequence of token ids `[t]`."""
    with jax.default_matmul_precision("highest"):
        x = tree["token_embedder"]["embedding"][ids]
        rotate = _rope(len(ids), config)

        def layer(x: jax.Array, w: Tree) -> tuple[jax.Array, None]:
            y = _norm(x, w["pre_self_attention_layer_norm"], config)
            x += _attention(y, w["self_attention"], rotate, config)
            y = _norm(x, w["post_self_attention_layer_norm"], config)
            x += _mlp(y, w["mlp"]) if "mlp" in w else _experts(y, w, config)
            return x, None

        x, _ = jax.lax.scan(layer, x, tree["decoder"]["layers"])
        x = _norm(x, tree["decoder"]["decoder_norm"], config)
        if config["logits_via_embedding"]:
            if config.get("normalize_embedding_logits", True):  # MaxText's own default
                x /= x.shape[-1] ** 0.5
            return jnp.einsum("te,ve->tv", x, tree["token_embedder"]["embedding"])
        return jnp.einsum("te,ev->tv", x, tree["decoder"]["logits_dense"]["kernel"])


def generate(tree: Tree, ids: list[int], config: Mapping[str, Any], /, *, tokens: int) -> list[int]:
    """Return the ids followed by `tokens` more, each the likeliest next one."""
    length = len(ids) + tokens
    step = jax.jit(lambda tree, ids, at: forward(tree, ids, config)[at].argmax())
    ids = list(ids)
    while len(ids) < length:
        padded = jnp.asarray(ids + [0] * (length - len(ids)))
        ids.append(int(step(tree, padded, len(ids) - 1)))
    return ids


def _norm(x: jax.Array, w: Tree, config: Mapping[str, Any]) -> jax.Array:
    variance = jnp.mean(x * x, axis=-1, keepdims=True)
    scale: jax.Array = w["scale"]
    return x * jax.lax.rsqrt(variance + config["normalization_layer_epsilon"]) * scale


def _attention(x: jax.Array, w: Tree, rotate: Any, config: Mapping[str, Any]) -> jax.Array:
    q, k, v = (
        jnp.einsum("te,ehd->thd", x, w[name]["kernel"]) + w[name].get("bias", 0.0)
        for name in ("query", "key", "value")
    )
    if "query_norm" in w:
        q, k = _norm(q, w["query_norm"], config), _norm(k, w["key_norm"], config)
    q, k = rotate(q), rotate(k)
    if config["decoder_block"].startswith("qwen"):
        q *= config["head_dim"] ** -0.5
    k, v = (jnp.repeat(part, q.shape[1] // part.shape[1], axis=1) for part in (k, v))
    scores = jnp.einsum("thd,shd->hts", q, k)
    causal = jnp.tril(jnp.ones(scores.shape[1:], bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), axis=-1)
    return jnp.einsum("hts,shd,hde->te", weights, v, w["out"]["kernel"])


def _mlp(x: jax.Array, w: Tree) -> jax.Array:
    gate = jnp.einsum("te,ef->tf", x, w["wi_0"]["kernel"])
    up = jnp.einsum("te,ef->tf", x, w["wi_1"]["kernel"])
    return jnp.einsum("tf,fe->te", jax.nn.silu(gate) * up, w["wo"]["kernel"])


def _experts(x: jax.Array, w: Tree, config: Mapping[str, Any]) -> jax.Array:
    """Weigh the best experts of each token by a softmax over their scores alone."""
    w = w["MoeBlock_0" if config["decoder_block"] == "mixtral" else "moe_block"]
    scores = jnp.einsum("te,ex->tx", x, w["gate"]["kernel"])
    best, which = jax.lax.top_k(scores, config["num_experts_per_tok"])
    share = jnp.zeros_like(scores).at[jnp.arange(len(x))[:, None], which].set(jax.nn.softmax(best))
    gate = jax.nn.silu(jnp.einsum("te,xef->txf", x, w["wi_0"]))
    up = jnp.einsum("te,xef->txf", x, w["wi_1"])
    return jnp.einsum("txf,xfe,tx->te", gate * up, w["wo"], share)


def _rope(length: int, config: Mapping[str, Any]) -> Any:
    """Return the function that rotates each pair of `[t, heads, dim]` by position × frequency."""
    half = config["head_dim"] // 2
    frequency = config["rope_max_timescale"] ** (-jnp.arange(half) / half)
    frequency /= config.get("rope_linear_scaling_factor", 1.0)
    if config.get("rope_use_scale"):
        frequency = _llama31(frequency)
    angle = jnp.arange(length)[:, None, None] * frequency
    axis = -1 if config["rope_type"] == "llama3.1" else -2  # pairs are neighbours, or halves

    def rotate(x: jax.Array) -> jax.Array:
        pairs = x.reshape(*x.shape[:-1], *((half, 2) if axis == -1 else (2, half)))
        a, b = jnp.take(pairs, 0, axis), jnp.take(pairs, 1, axis)
        turned = (a * jnp.cos(angle) - b * jnp.sin(angle), b * jnp.cos(angle) + a * jnp.sin(angle))
        return jnp.stack(turned, axis).reshape(x.shape)

    return rotate


def _llama31(frequency: jax.Array) -> jax.Array:
    """Stretch long wavelengths eightfold, short ones not at all (Llama 3.1's constants)."""
    wavelength = 2 * jnp.pi / frequency
    blend = jnp.clip((8192 / wavelength - 1) / (4 - 1), 0, 1)
    return frequency * (blend + (1 - blend) / 8)


def _layers_first(tree: dict[str, Any], config: Mapping[str, Any]) -> Tree:
    """Return the tree with one stacked `layers`, the layer axis in front, as scan wants it."""
    decoder = dict(tree["decoder"])
    if config["scan_layers"]:
        layers = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), decoder["layers"])
    else:
        each = [decoder.pop(f"layers_{i}") for i in range(config["base_num_decoder_layers"])]
        layers = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    return {**tree, "decoder": {**decoder, "layers": layers}}
