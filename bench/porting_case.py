"""One step of bench/porting.py: make the model, port it in one way, or compare two outputs.

"By hand" is what users of the libraries write: load all tensors, lay them out with numpy, save. The
layouts are written out here a second time, without a Layout, so that comparing the outputs proves
something.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import ml_dtypes  # noqa: F401 -- numpy's name for bfloat16, which safetensors asks it for
import numpy as np

from xlayout.rss import peak_rss

HIDDEN, MLP, VOCAB, HEADS, KV = 2048, 5632, 32000, 32, 4
DIM = HIDDEN // HEADS
_BUFFER = 16 << 20
State = dict[str, Any]


def shapes(layers: int) -> dict[str, tuple[int, ...]]:
    """The tensors of the model, by Hugging Face's names."""
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "lm_head.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(layers):
        for name, shape in {
            "input_layernorm": (HIDDEN,),
            "post_attention_layernorm": (HIDDEN,),
            "self_attn.q_proj": (HIDDEN, HIDDEN),
            "self_attn.k_proj": (KV * DIM, HIDDEN),
            "self_attn.v_proj": (KV * DIM, HIDDEN),
            "self_attn.o_proj": (HIDDEN, HIDDEN),
            "mlp.gate_proj": (MLP, HIDDEN),
            "mlp.up_proj": (MLP, HIDDEN),
            "mlp.down_proj": (HIDDEN, MLP),
        }.items():
            found[f"model.layers.{layer}.{name}.weight"] = shape
    return found


def make(folder: Path, layers: int) -> None:
    """Write the model as Hugging Face has it, and as MaxText does."""
    import torch
    from safetensors.torch import save_file

    from xlayout import port

    torch.manual_seed(0)
    state = {name: torch.randn(shape).bfloat16() for name, shape in shapes(layers).items()}
    (folder / "hf").mkdir()
    save_file(state, folder / "hf" / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "hidden_size": HIDDEN, "intermediate_size": MLP, "num_hidden_layers": layers,
        "vocab_size": VOCAB, "num_attention_heads": HEADS, "num_key_value_heads": KV,
        "head_dim": DIM, "tie_word_embeddings": False, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
    }  # fmt: skip
    (folder / "hf" / "config.json").write_text(json.dumps(config))
    port.run(folder / "hf", folder / "maxtext", to="maxtext")


def by_hand(way: str) -> Callable[[Path, Path], None]:
    """The script by hand for one way, after importing its libraries."""
    import orbax.checkpoint as ocp
    import torch.distributed.checkpoint as dcp
    from safetensors.numpy import load_file, save_file
    from safetensors.torch import load_file as load_torch

    def to_dcp(source: Path, out: Path) -> None:
        state = load_torch(source / "model.safetensors")
        dcp.save(state, checkpoint_id=out, no_dist=True)

    def to_maxtext(source: Path, out: Path) -> None:
        tree = as_maxtext(load_file(source / "model.safetensors"))
        with ocp.PyTreeCheckpointer() as checkpointer:
            checkpointer.save(out.absolute() / "0" / "items", tree)

    def to_hf(source: Path, out: Path) -> None:
        with ocp.PyTreeCheckpointer() as checkpointer:
            tree = checkpointer.restore(source.absolute() / "0" / "items")
        out.mkdir()
        state = {name: np.ascontiguousarray(x) for name, x in as_hf(tree).items()}
        save_file(state, out / "model.safetensors", metadata={"format": "pt"})

    return {"hf to dcp": to_dcp, "hf to maxtext": to_maxtext, "maxtext to hf": to_hf}[way]


def as_maxtext(state: State) -> State:
    """MaxText's tree: kernels transposed, layers along axis 1, rope in pairs, queries scaled."""
    layers = sum(name.endswith("q_proj.weight") for name in state)

    def stacked(name: str, turned: Callable[[Any], Any]) -> Any:
        found = [turned(state[f"model.layers.{k}.{name}.weight"]) for k in range(layers)]
        return np.stack(found, axis=1)

    def heads(x: Any) -> Any:
        return x.reshape(-1, DIM, HIDDEN).transpose(2, 0, 1)

    def pairs(x: Any) -> Any:
        return heads(x.reshape(-1, 2, DIM // 2, HIDDEN).swapaxes(1, 2))

    def queries(x: Any) -> Any:
        return pairs(x) * x.dtype.type(DIM**-0.5)

    def out(x: Any) -> Any:
        return x.T.reshape(HEADS, DIM, HIDDEN)

    def kernel(x: Any) -> Any:
        return {"kernel": x}

    attention = {
        "query": kernel(stacked("self_attn.q_proj", queries)),
        "key": kernel(stacked("self_attn.k_proj", pairs)),
        "value": kernel(stacked("self_attn.v_proj", heads)),
        "out": kernel(stacked("self_attn.o_proj", out)),
    }
    mlp = {
        "wi_0": kernel(stacked("mlp.gate_proj", np.transpose)),
        "wi_1": kernel(stacked("mlp.up_proj", np.transpose)),
        "wo": kernel(stacked("mlp.down_proj", np.transpose)),
    }
    decoder = {
        "decoder_norm": {"scale": state["model.norm.weight"]},
        "logits_dense": kernel(np.ascontiguousarray(state["lm_head.weight"].T)),
        "layers": {
            "pre_self_attention_layer_norm": {"scale": stacked("input_layernorm", np.asarray)},
            "post_self_attention_layer_norm": {
                "scale": stacked("post_attention_layernorm", np.asarray)
            },
            "self_attention": attention,
            "mlp": mlp,
        },
    }
    embedder = {"embedding": state["model.embed_tokens.weight"]}
    return {"params": {"params": {"token_embedder": embedder, "decoder": decoder}}}


def as_hf(tree: State) -> State:
    """The state dict of Hugging Face: `as_maxtext` undone."""
    top = tree["params"]["params"]
    decoder, layers = top["decoder"], top["decoder"]["layers"]
    attention, mlp = layers["self_attention"], layers["mlp"]
    state = {
        "model.embed_tokens.weight": top["token_embedder"]["embedding"],
        "lm_head.weight": decoder["logits_dense"]["kernel"].T,
        "model.norm.weight": decoder["decoder_norm"]["scale"],
    }

    def rows(x: Any) -> Any:
        return x.reshape(HIDDEN, -1).T

    def halves(x: Any) -> Any:
        turned = x.transpose(1, 2, 0).reshape(-1, DIM // 2, 2, HIDDEN)
        return turned.swapaxes(1, 2).reshape(-1, HIDDEN)

    def queries(x: Any) -> Any:
        return halves(x) * x.dtype.type(DIM**0.5)

    def out(x: Any) -> Any:
        return x.reshape(-1, HIDDEN).T

    for name, x, turned in (
        ("input_layernorm", layers["pre_self_attention_layer_norm"]["scale"], np.asarray),
        ("post_attention_layernorm", layers["post_self_attention_layer_norm"]["scale"], np.asarray),
        ("self_attn.q_proj", attention["query"]["kernel"], queries),
        ("self_attn.k_proj", attention["key"]["kernel"], halves),
        ("self_attn.v_proj", attention["value"]["kernel"], rows),
        ("self_attn.o_proj", attention["out"]["kernel"], out),
        ("mlp.gate_proj", mlp["wi_0"]["kernel"], np.transpose),
        ("mlp.up_proj", mlp["wi_1"]["kernel"], np.transpose),
        ("mlp.down_proj", mlp["wo"]["kernel"], np.transpose),
    ):
        for k in range(x.shape[1]):
            state[f"model.layers.{k}.{name}.weight"] = turned(x[:, k])
    return state


def contender(way: str, who: str) -> Callable[[Path, Path], object]:
    """What is timed, after importing its libraries."""
    if who == "by hand":
        return by_hand(way)
    if who == "copy":
        return copied
    import tensorstore  # noqa: F401 -- before the clock starts, as the others' libraries

    from xlayout import port

    to, verify = way.rpartition(" ")[2], who == "xlayout"
    return lambda source, out: port.run(source, out, to=to, verify=verify)


def copied(source: Path, out: Path) -> None:
    """Copy the files of a folder through one buffer, and sync them to the disk."""
    buffer = memoryview(bytearray(_BUFFER))
    for path in source.rglob("*"):
        if path.is_dir():
            continue
        there = out / path.relative_to(source)
        there.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb", buffering=0) as read, there.open("wb", buffering=0) as write:
            while length := read.readinto(buffer):
                write.write(buffer[:length])
            os.fsync(write.fileno())


def read_back(way: str, path: Path) -> State:
    """The tensors that a format's own library reads, by name."""
    if way.endswith("hf"):
        from safetensors.numpy import load_file

        return load_file(path / "model.safetensors")
    if way.endswith("maxtext"):
        import jax
        import orbax.checkpoint as ocp

        with ocp.PyTreeCheckpointer() as checkpointer:
            tree = checkpointer.restore(path.absolute() / "0" / "items")
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {jax.tree_util.keystr(where): np.asarray(leaf) for where, leaf in leaves}
    import torch
    import torch.distributed.checkpoint as dcp

    metadata = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    state = {name: torch.empty(x.size, dtype=x.properties.dtype) for name, x in metadata.items()}
    dcp.load(state, checkpoint_id=path, no_dist=True)
    return {name: x.view(torch.int16).numpy() for name, x in state.items()}


def compare(way: str, one: Path, other: Path) -> None:
    """Assert that two outputs hold the same tensors, bit for bit."""
    a, b = read_back(way, one), read_back(way, other)
    assert a.keys() == b.keys(), f"{a.keys() ^ b.keys()}"
    for name, x in a.items():
        y = b[name]
        assert x.shape == y.shape, f"{name}: {x.shape} and {y.shape}"
        assert x.tobytes() == y.tobytes(), name


def main(step: str, *arguments: str) -> None:
    """Carry out one step, and print what it found as JSON."""
    found: dict[str, float] = {}
    if step == "make":
        make(Path(arguments[0]), int(arguments[1]))
    elif step == "compare":
        compare(arguments[0], *map(Path, arguments[1:]))
    else:
        way, who, source, out = arguments
        run = contender(way, who)
        start = perf_counter()
        run(Path(source), Path(out))
        found["seconds"] = perf_counter() - start
        found["peak"] = peak_rss()
        layers = json.loads((Path(source) / "config.json").read_text())["num_hidden_layers"]
        found["bytes"] = 2 * sum(int(np.prod(shape)) for shape in shapes(layers).values())
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
