"""What the pickle of a save may name is a list, and nothing on it is ever called."""

from __future__ import annotations

import torch

from xlayout.port.formats.dcp_names import ALLOWED

SAVED = "torch.distributed.checkpoint"


def test_what_torch_and_megatron_name_is_allowed_and_nothing_that_acts() -> None:
    metadata = ("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "TensorProperties")
    metadata += ("ChunkStorageMetadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING")
    plans = ("SavePlan", "TensorWriteData", "WriteItem", "WriteItemType")
    wanted = {f"{SAVED}.metadata.{name}" for name in metadata}
    wanted |= {f"{SAVED}.planner.{name}" for name in plans}
    wanted |= {f"{SAVED}.filesystem._StorageInfo", "torch.Size", "torch.serialization._get_layout"}
    wanted |= {"collections.OrderedDict", "builtins.getattr"}
    wanted |= {f"pathlib.{kind}Path" for kind in ("Posix", "Windows")}
    wanted |= {f"pathlib._local.{kind}Path" for kind in ("Posix", "Windows")}
    dtypes = ALLOWED - wanted
    assert wanted < ALLOWED
    assert {"torch.bfloat16", "torch.float8_e4m3fn", "torch.quint8", "torch.complex32"} < dtypes
    assert all(isinstance(getattr(torch, name.removeprefix("torch.")), torch.dtype)
               for name in dtypes)  # fmt: skip
