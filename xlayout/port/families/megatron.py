"""The small files without which Megatron-core takes a directory for no checkpoint of its own.

`metadata.json` names what wrote the tensors, and `common.pt` holds what all ranks have in common,
such as the arguments of a training run: here, nothing.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping

__all__ = ["FILES"]

_EMPTY_DICT = b"\x80\x02}q\x00."  # a pickle


def _common() -> bytes:
    """Return what `torch.save({})` writes."""
    records = {"data.pkl": _EMPTY_DICT, "byteorder": b"little", "version": b"3\n"}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in records.items():
            archive.writestr(zipfile.ZipInfo(f"common/{name}"), content)
    return file.getvalue()


FILES: Mapping[str, bytes] = {
    "metadata.json": json.dumps(
        {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    ).encode(),
    "common.pt": _common(),
}
