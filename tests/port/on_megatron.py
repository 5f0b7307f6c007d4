"""Megatron-core itself on CPU, one process per rank: it loads checkpoints, computes, and saves.

    python on_megatron.py RANK RANKS RENDEZVOUS JOBS

JOBS is a JSON file that gives, for each job, the Hugging Face config of a model, the checkpoint to
load (or none), where to put the logits, and where to save the model (or nowhere).
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

IDS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79]


def without_cuda() -> None:
    """Replace what Megatron-core needs from CUDA, and from libraries that only CUDA has."""
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    from megatron.core.transformer.moe import moe_utils

    torch.cuda.synchronize = lambda *_: None  # type: ignore[assignment]
    torch.cuda.current_device = lambda: torch.device("cpu")  # type: ignore[assignment,return-value]
    CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()
    moe_utils.te_general_gemm = None


def make(config: dict[str, Any], ranks: int) -> Any:
    """Return Megatron-core's form of a model with random weights."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    experts = config.get("num_local_experts")
    norms = config["model_type"].startswith("qwen3")
    of_experts = {
        "num_moe_experts": experts,
        "moe_router_topk": config.get("num_experts_per_tok"),
        "moe_ffn_hidden_size": config.get("moe_intermediate_size", config["intermediate_size"]),
        "moe_router_load_balancing_type": "none",
        "moe_token_dispatcher_type": "allgather",
    }
    shape = TransformerConfig(
        num_layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        num_attention_heads=config["num_attention_heads"],
        num_query_groups=config["num_key_value_heads"],
        kv_channels=config.get("head_dim"),
        ffn_hidden_size=config["intermediate_size"],
        layernorm_epsilon=config["rms_norm_eps"],
        add_qkv_bias=config["model_type"] == "qwen2",
        qk_layernorm=norms,
        tensor_model_parallel_size=ranks,
        normalization="RMSNorm",
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        **(of_experts if experts else {}),
    )
    layer = get_gpt_layer_local_spec(
        num_experts=experts, moe_grouped_gemm=False, qk_layernorm=norms, normalization="RMSNorm"
    )
    if experts:  # whose norm Transformer Engine's layers keep under its own name
        names = layer.submodules.sharded_state_dict_keys_map
        names.pop("pre_mlp_layernorm.", None)
    torch.manual_seed(1)
    return GPTModel(
        config=shape,
        transformer_layer_spec=layer,
        vocab_size=config["vocab_size"],
        max_sequence_length=64,
        parallel_output=False,
        position_embedding_type="rope",
        rotary_base=config["rope_parameters"]["rope_theta"],
        share_embeddings_and_output_weights=config["tie_word_embeddings"],
    )


def logits(model: Any) -> Any:
    """Return the logits of `IDS`."""
    length = len(IDS)
    mask = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)[None, None]
    with torch.no_grad():
        return model(torch.tensor([IDS]), torch.arange(length)[None], mask)[0].numpy()


def run(job: dict[str, Any], ranks: int) -> None:
    """Load, compute, save."""
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.validation import StrictHandling

    model = make(job["config"], ranks).eval()
    if job["load"]:
        parts = model.sharded_state_dict()
        loaded = dist_checkpointing.load(parts, job["load"], strict=StrictHandling.LOG_ALL)
        missing, unexpected = model.load_state_dict(loaded, strict=False)
        assert not unexpected
        assert all(name.endswith("_extra_state") for name in missing), missing
    found = logits(model)
    if dist.get_rank() == 0:
        np.save(job["logits"], found)
    if job["save"]:
        if dist.get_rank() == 0:
            Path(job["save"]).mkdir()
        dist.barrier()
        dist_checkpointing.save(model.sharded_state_dict(), job["save"])


def main(rank: str, ranks: str, rendezvous: str, jobs: str) -> None:
    from megatron.core import parallel_state

    warnings.simplefilter("ignore")
    without_cuda()
    dist.init_process_group(
        "gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=int(ranks)
    )
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=int(ranks))
    for job in json.loads(Path(jobs).read_text()):
        run(job, int(ranks))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
