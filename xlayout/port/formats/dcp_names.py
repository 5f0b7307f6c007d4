"""The only names that the pickle of a DCP directory's `.metadata` may contain."""

from __future__ import annotations

from xlayout.port.formats.torch_tensor import DTYPE_NAMES

__all__ = [
    "ALLOWED",
    "BYTES",
    "CHUNK",
    "ENCODING",
    "INDEX",
    "LAYOUT",
    "METADATA",
    "PROPERTIES",
    "SIZE",
    "STORAGE_INFO",
    "TENSOR",
]

_CLASSES = "torch.distributed.checkpoint.metadata."

METADATA = _CLASSES + "Metadata"
TENSOR = _CLASSES + "TensorStorageMetadata"
BYTES = _CLASSES + "BytesStorageMetadata"
PROPERTIES = _CLASSES + "TensorProperties"
ENCODING = _CLASSES + "_MEM_FORMAT_ENCODING"
CHUNK = _CLASSES + "ChunkStorageMetadata"
INDEX = _CLASSES + "MetadataIndex"
STORAGE_INFO = "torch.distributed.checkpoint.filesystem._StorageInfo"
SIZE = "torch.Size"
LAYOUT = "torch.serialization._get_layout"

# Names in parts of the metadata that are not read: the writer, the place, and the plans of all
# ranks, which Megatron-core keeps in order to save the same way again.
_UNREAD = (
    *(
        f"torch.distributed.checkpoint.planner.{kind}"
        for kind in ("SavePlan", "TensorWriteData", "WriteItem", "WriteItemType")
    ),
    _CLASSES + "StorageMeta",
    "collections.OrderedDict",
    "builtins.getattr",  # how early releases of Python 3.11 pickle a member of an enum
    *(
        f"{module}.{kind}Path"
        for module in ("pathlib", "pathlib._local")
        for kind in ("Posix", "Windows")
    ),
)

# Dtypes of torch that we do not support: allowed here, so that an error can name the tensor.
_OTHER_DTYPES = ("complex32", "float4_e2m1fn_x2", "qint8", "quint8", "qint32")

ALLOWED = frozenset(
    {
        METADATA,
        TENSOR,
        BYTES,
        PROPERTIES,
        ENCODING,
        CHUNK,
        INDEX,
        STORAGE_INFO,
        SIZE,
        LAYOUT,
        *_UNREAD,
        *DTYPE_NAMES,
        *(f"torch.{name}" for name in _OTHER_DTYPES),
    }
)
