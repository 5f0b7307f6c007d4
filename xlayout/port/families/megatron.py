"""The small files by which Megatron-core recognises a directory as a checkpoint of its own.

`metadata.json` names the format of the tensors, and `common.pt` holds what all ranks share, such as
the arguments of a training run: here, nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from xlayout.port.formats.pickle_write import write_pickle
from xlayout.port.formats.torch_archive_write import render_object

__all__ = ["FILES"]

FILES: Mapping[str, bytes] = {
    "metadata.json": json.dumps(
        {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    ).encode(),
    "common.pt": render_object(write_pickle({})),
}
