"""Memory that is not on the host follows rules of its own, which a stand-in can check."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax.numpy as jnp
import pytest
import torch

from xlayout_jax import exchange as jax_exchange
from xlayout_numpy import exchange as numpy_exchange
from xlayout_torch import exchange as torch_exchange

CUDA = 2


class OnCuda(torch_exchange.Offer):
    """Host memory that claims to be on a GPU."""

    __slots__ = ()
    device = (CUDA, 0)  # type: ignore[assignment]


def on_cuda(t: torch.Tensor) -> OnCuda:
    return OnCuda(t, t.detach())


def test_numpy_copies_from_a_device_or_says_so() -> None:
    t = torch.arange(4.0)
    assert numpy_exchange.adopt(on_cuda(t)).tolist() == [0, 1, 2, 3]
    with pytest.raises(BufferError, match=r"it is on device 0 \(DLPack type 2\), not on the host"):
        numpy_exchange.adopt(on_cuda(t), copy=False)


def test_xla_asks_for_16_bytes_on_a_gpu() -> None:
    t = torch.zeros(64)
    assert jax_exchange.obstacle(on_cuda(t[4:]), "row_major") is None
    assert "not a multiple of 16 bytes" in str(jax_exchange.obstacle(on_cuda(t[1:]), "row_major"))


def test_jax_without_cuda_says_what_is_missing() -> None:
    with pytest.raises(RuntimeError, match=r"cuda"):
        jax_exchange.adopt(on_cuda(torch.zeros(64)))


@pytest.mark.parametrize(("setting", "waits"), [("1", True), ("true", True), ("0", False)])
def test_a_client_that_ignores_streams_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, setting: str, waits: bool
) -> None:
    class Waiting(OnCuda):
        __slots__ = ("waited",)

        def wait(self) -> None:
            self.waited = True

    t = torch.zeros(64)
    offered = Waiting(t, t)
    offered.waited = False
    monkeypatch.setenv("XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT", setting)
    with pytest.raises(RuntimeError, match=r"cuda"):
        jax_exchange.adopt(offered)
    assert offered.waited is waits


def placed(device: Any, memory_kind: str) -> Any:
    sharding = SimpleNamespace(device_set={device}, memory_kind=memory_kind)
    return jax_exchange._place(SimpleNamespace(sharding=sharding))  # type: ignore[arg-type]


class Device(NamedTuple):
    platform: str
    id: int
    local_hardware_id: int


def test_only_device_memory_of_a_gpu_is_offered() -> None:
    gpu = Device("gpu", 7, 3)
    assert placed(gpu, "device") == ((CUDA, 3), None)
    _, obstacle = placed(gpu, "pinned_host")
    assert "it is in pinned_host memory, which torch and numpy do not adopt" in obstacle
    _, obstacle = placed(Device("tpu", 0, 0), "device")
    assert "it is on a tpu device, which DLPack does not reach" in obstacle


def test_an_array_out_of_reach_is_copied_to_the_host() -> None:
    a = jnp.arange(4.0)
    offered = jax_exchange.Offer(a, "float32", (0, 0), "it is on a tpu device")
    with pytest.raises(BufferError, match=r"cannot be shared: it is on a tpu device; pass copy"):
        torch_exchange.adopt(offered, copy=False)
    assert torch_exchange.adopt(offered).tolist() == [0, 1, 2, 3]


def test_nothing_is_exchanged_while_a_cuda_graph_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    tensor: Any = SimpleNamespace(
        is_cuda=True, is_nested=False, dtype=torch.float32, shape=(3,), device="cuda:0"
    )
    with pytest.raises(TypeError, match="a CUDA graph is being captured; exchange it before that"):
        torch_exchange._refuse_device(tensor)


@pytest.mark.parametrize(("setting", "stream"), [("1", None), ("0", 7)])
def test_a_client_that_ignores_streams_is_told_of_none(
    monkeypatch: pytest.MonkeyPatch, setting: str, stream: int | None
) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT", setting)
    told: list[Any] = []

    def found() -> int:
        told.append("its address")
        return 256

    array: Any = SimpleNamespace(
        shape=(3,),
        block_until_ready=lambda: told.append("that it is there"),
        unsafe_buffer_pointer=found,
        __dlpack__=lambda **given: told.append(given),
    )
    jax_exchange.Offer(array, "float32", (CUDA, 0), None).__dlpack__(stream=7, max_version=(1, 0))
    first = ["that it is there"] if stream is None else []
    assert told == [*first, "its address", {"stream": stream, "max_version": (1, 0)}]
