"""MaxText itself on CPU: it loads checkpoints, computes, and saves.

    python on_maxtext.py JOBS

JOBS is a JSON file: for each job what to tell MaxText's config, the items to load, and a folder
for what comes of it: `logits.npy`, `shapes.json`, a training run's checkpoint and one of the
parameters alone.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

IDS = [3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43, 38, 32, 79]

EXACT = {
    "dtype": "float32",
    "weight_dtype": "float32",
    "matmul_precision": "highest",
    "attention": "dot_product",
    "sparse_matmul": False,  # experts by dense products, which run on any device
    "megablox": False,
}
"""How to compute where nothing is to be lost."""


def configure(job: dict[str, Any]) -> Any:
    """Return MaxText's config for a job, as its command line would make it."""
    import maxtext
    from maxtext.configs import pyconfig
    from maxtext.utils.model_creation_utils import verify_and_sync_scan_layers

    base = Path(maxtext.__file__).parent / "configs" / "base.yml"
    config = pyconfig.initialize(
        ["", str(base)],
        load_parameters_path=job["load"],
        base_output_directory=job["out"],
        run_name="run",
        async_checkpointing=False,
        skip_jax_distributed_system=True,
        dataset_type="synthetic",
        per_device_batch_size=1,
        log_config=False,
        **EXACT,
        **job["config"],
    )
    return verify_and_sync_scan_layers(config)


def parameters(state: Any) -> dict[str, Any]:
    """Return a model's parameters by their paths."""
    from flax import nnx

    flat = nnx.to_flat_state(state)
    return {"/".join(map(str, path)): variable.get_value() for path, variable in flat}


def run(job: dict[str, Any]) -> None:
    """Load in both of MaxText's ways, compute, and save in both of its ways."""
    import jax
    import jax.numpy as jnp
    from flax import nnx
    from maxtext.common import checkpointing
    from maxtext.common.train_state_nnx import TrainStateNNX, to_checkpoint_dict
    from maxtext.utils import model_creation_utils, train_utils

    out = Path(job["out"])
    config = configure(job)
    model, mesh = model_creation_utils.from_pretrained(config)
    mine = parameters(nnx.state(model, nnx.Param))
    (out / "shapes.json").write_text(json.dumps({name: a.shape for name, a in mine.items()}))

    # The other way names tensors that are missing or have another shape.
    _, abstract = model_creation_utils.create_nnx_abstract_model(config, mesh)
    wanted = nnx.state(abstract, nnx.Param)
    loaded = parameters(checkpointing.load_params_from_path(job["load"], wanted, 8))
    assert loaded.keys() == mine.keys()
    assert all(np.array_equal(loaded[name], mine[name]) for name in mine)

    length = len(IDS)
    with jax.set_mesh(mesh):
        logits = model(
            jnp.asarray([IDS]),
            jnp.arange(length)[None],
            jnp.ones((1, length), jnp.int32),
            enable_dropout=False,
        )
    np.save(out / "logits.npy", np.asarray(logits[0], np.float32))

    params = to_checkpoint_dict(TrainStateNNX(model, None))["params"]
    checkpointing.save_params_to_path(str(out / "params"), params)
    _, rule = train_utils.create_training_optimizer(config, model, mesh=mesh)
    state = nnx.state(TrainStateNNX(model, nnx.Optimizer(model, rule, wrt=nnx.Param)))
    manager = train_utils.create_checkpoint_manager(config, mesh, None)
    checkpointing.maybe_save_checkpoint(manager, state, config, None, step=0)
    checkpointing.wait_until_finished(manager)


def main(jobs: str) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["DECOUPLE_GCLOUD"] = "TRUE"  # MaxText's own switch to do without cloud libraries
    for job in json.loads(Path(jobs).read_text()):
        run(job)


if __name__ == "__main__":
    main(*sys.argv[1:])
