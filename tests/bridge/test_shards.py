"""A sharded array crosses shard by shard: one pointer each, unchanged, on eight host devices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.bridge.memory import at_offset, bits, pointer
from xlayout.bridge import jax_to_dtensor, jax_to_shards, shards_to_jax, to_jax, to_torch
from xlayout.errors import SizeError

SPECS = [
    P("dp", "tp"),
    P("dp"),
    P(None, "tp"),
    P(("dp", "tp")),
    P(("tp", "dp")),
    P(),
    P("tp", "dp"),
]
SHAPE = (16, 32)


@pytest.fixture(scope="module", params=["in order", "shuffled"])
def mesh(request: pytest.FixtureRequest) -> jax.sharding.Mesh:
    devices = np.array(jax.devices("cpu")[:8])
    if request.param == "shuffled":  # the place in the mesh counts, never the device's id
        devices = devices[[3, 1, 4, 0, 5, 7, 2, 6]]
    return jax.sharding.Mesh(devices.reshape(2, 4), ("dp", "tp"), axis_types=(AxisType.Auto,) * 2)


def pieces(whole: torch.Tensor, sharding: NamedSharding) -> dict[Any, torch.Tensor]:
    index = sharding.devices_indices_map(tuple(whole.shape))
    return {device: whole[where].clone() for device, where in index.items()}


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_every_shard_keeps_its_pointer_both_ways(mesh: Any, spec: Any) -> None:
    sharding = NamedSharding(mesh, spec)
    whole = torch.randn(SHAPE)
    shards = pieces(whole, sharding)
    a = shards_to_jax(shards, sharding, SHAPE)
    assert {s.device: pointer(s.data) for s in a.addressable_shards} == {
        device: pointer(t) for device, t in shards.items()
    }
    assert bits(np.asarray(a)) == bits(whole)
    assert jnp.allclose(jax.jit(lambda x: x.sum(0))(a), whole.sum(0).numpy(), atol=1e-5)
    back = jax_to_shards(a)
    assert {device: pointer(t) for device, t in back.items()} == {
        device: pointer(t) for device, t in shards.items()
    }
    in_order = shards_to_jax(list(shards.values()), sharding, SHAPE)
    assert bits(np.asarray(in_order)) == bits(whole)


@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float8_e4m3fn"])
def test_every_dtype_crosses_in_shards(mesh: Any, dtype: str) -> None:
    sharding = NamedSharding(mesh, P("dp", "tp"))
    whole = torch.randint(0, 2, SHAPE).to(getattr(torch, dtype))
    shards = pieces(whole, sharding)
    a = shards_to_jax(shards, sharding, SHAPE)
    assert a.dtype.name == dtype
    assert bits(np.asarray(a)) == bits(whole)
    assert [bits(t) for t in jax_to_shards(a).values()] == [bits(t) for t in shards.values()]


def test_an_array_on_one_device_has_one_shard() -> None:
    a = jnp.ones(3)
    ((device, t),) = jax_to_shards(a).items()
    assert device == jax.devices("cpu")[0]
    assert pointer(t) == pointer(a)


def refused(mesh: Any, error: type[Exception], text: str, change: Any) -> None:
    sharding = NamedSharding(mesh, P("dp", "tp"))
    shards = pieces(torch.ones(SHAPE), sharding)
    first = next(iter(shards))
    shards[first] = change(shards[first])
    with pytest.raises(error, match=text):
        shards_to_jax(shards, sharding, SHAPE)


def unaligned(t: torch.Tensor) -> torch.Tensor:
    return torch.ones(t.numel() + 1)[1:].view(t.shape)


def test_shards_in_different_memory_orders_are_refused(mesh: Any) -> None:
    said = (
        r"^shards\[\S+\]: float32\[8, 8\] cannot be shared: its strides \(1, 8\) are not "
        r"row-major; wanted memory as a copy has it, by xlayout.to_jax\(shard, copy=True\)$"
    )
    refused(mesh, BufferError, said, lambda t: t.t().contiguous().t())


def test_an_unaligned_shard_is_refused(mesh: Any) -> None:
    refused(
        mesh,
        BufferError,
        r"its address is not a multiple of 64 bytes; wanted memory as a copy has it, by "
        r"xlayout.to_jax\(shard, copy=True\)$",
        unaligned,
    )


def test_what_the_refusal_says_works(mesh: Any) -> None:
    sharding = NamedSharding(mesh, P("dp", "tp"))
    shards = [unaligned(t) for t in pieces(torch.ones(SHAPE), sharding).values()]
    copies = [to_jax(t, copy=True) for t in shards]
    assert shards_to_jax(copies, sharding, SHAPE).sum() == 512


def test_a_shard_of_another_shape_or_dtype_is_refused(mesh: Any) -> None:
    refused(mesh, ValueError, r"shards\[.*\]: shape \(4, 8\); .* into \(8, 8\)", lambda t: t[:4])
    refused(mesh, TypeError, "shards: dtypes float16, float32; wanted one", lambda t: t.half())


def test_shards_of_64_bits_are_refused_with_what_works(mesh: Any) -> None:
    sharding = NamedSharding(mesh, P("dp", "tp"))
    shards = [t.double() for t in pieces(torch.ones(SHAPE), sharding).values()]
    said = (
        r"^shards\[\S+\]: float64\[8, 8\] would be narrowed to float32, because jax_enable_x64 is "
        r"off; enable it, or cast it to float32$"
    )
    with pytest.raises(TypeError, match=said):
        shards_to_jax(shards, sharding, SHAPE)
    assert shards_to_jax([t.float() for t in shards], sharding, SHAPE).sum() == 512
    with jax.enable_x64(True):
        a = shards_to_jax(shards, sharding, SHAPE)
        assert (a.dtype.name, a.sum()) == ("float64", 512)


def test_a_shard_that_requires_grad_is_refused(mesh: Any) -> None:
    refused(mesh, TypeError, r"shards\[.*\]: Tensor .* requires grad", torch.Tensor.requires_grad_)


def test_missing_and_unexpected_shards_are_named(mesh: Any) -> None:
    sharding = NamedSharding(mesh, P("dp", "tp"))
    shards = list(pieces(torch.ones(SHAPE), sharding).items())
    with pytest.raises(SizeError, match=r"shards: for .*; wanted one for each of"):
        shards_to_jax(dict(shards[:-1]), sharding, SHAPE)
    with pytest.raises(SizeError, match="shards: 7; wanted one for each of"):
        shards_to_jax([t for _, t in shards[:-1]], sharding, SHAPE)
    given: Any = None
    with pytest.raises(
        TypeError, match=r"^shards: a NoneType; wanted a mapping from devices to ar"
    ):
        shards_to_jax(given, sharding, SHAPE)
    with pytest.raises(TypeError, match=r"^shape: 1\.5; wanted a sequence of ints$"):
        shards_to_jax(dict(shards), sharding, 1.5)  # type: ignore[arg-type]


def test_an_uneven_cut_is_refused(mesh: Any) -> None:
    with pytest.raises(ValueError, match=r"sharding: .*; pad the array, JAX cuts evenly only"):
        shards_to_jax([], NamedSharding(mesh, P("tp")), (6, 4))
    with pytest.raises(TypeError, match=r"sharding: tuple; wanted a jax.sharding.Sharding"):
        shards_to_jax([], ("tp",), (6, 4))


def test_a_sharding_that_no_shards_can_lie_by_is_refused(mesh: Any) -> None:
    shards = [torch.ones(16)] * 8
    with pytest.raises(ValueError, match=r"wanted no more entries than axes in \(8,\)"):
        shards_to_jax(shards, NamedSharding(mesh, P("dp", "tp")), (8,))
    with pytest.raises(TypeError, match="sharding: on an AbstractMesh; wanted a mesh of devices"):
        shards_to_jax(shards, NamedSharding(mesh.abstract_mesh, P()), (16,))
    pinned = NamedSharding(mesh, P(), memory_kind="pinned_host")
    with pytest.raises(ValueError, match="memory kind 'pinned_host'; the shards are in 'device' "):
        shards_to_jax(shards, pinned, (16,))
    whole = shards_to_jax(shards, pinned.with_memory_kind("device"), (16,))
    assert jax.device_put(whole, pinned).sharding == pinned


def test_sums_that_are_not_done_have_no_shards() -> None:
    mesh = jax.make_mesh((2, 4), ("dp", "tp"), axis_types=(AxisType.Explicit,) * 2)
    unreduced: Any = NamedSharding(mesh, P("dp", unreduced={"tp"}))
    said = r"P\('dp', unreduced=\{'tp'\}\): its sums are not done, .* by jax.sharding.reshard$"
    with pytest.raises(ValueError, match="^sharding: " + said):
        shards_to_jax([torch.ones(16)] * 8, unreduced, (32,))

    @jax.jit
    def summed(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.einsum("ij,j->i", x, y, out_sharding=unreduced)

    a = summed(
        *(
            jax.device_put(jnp.ones(shape), NamedSharding(mesh, spec))
            for shape, spec in (((32, 8), P("dp", "tp")), (8, P("tp")))
        )
    )
    with pytest.raises(ValueError, match="^a: " + said):
        jax_to_shards(a)
    whole = jax.sharding.reshard(a, NamedSharding(mesh, P("dp")))
    assert {tuple(t.tolist()) for t in jax_to_shards(whole).values()} == {(8.0,) * 16}


def test_only_a_concrete_jax_array_has_shards() -> None:
    with pytest.raises(TypeError, match=r"a: torch.Tensor; wanted a jax.Array"):
        jax_to_shards(torch.ones(3))
    with pytest.raises(TypeError, match=r"a: float32\[3\] is traced and has no shards yet"):
        jax.jit(jax_to_shards)(jnp.ones(3))
    a = jnp.ones(3)
    a.delete()
    with pytest.raises(ValueError, match=r"a: jax.Array float32\[3\] was deleted or donated"):
        jax_to_shards(a)


def test_memory_that_was_lent_for_reading_is_refused() -> None:
    lent = at_offset(np.arange(16, dtype=np.float32), 0)
    lent.flags.writeable = False
    a = to_jax(lent)
    said = r"it is read-only, .*; pass copy=None to to_torch, or a copy of it$"
    with pytest.raises(BufferError, match=said):
        jax_to_shards(a)
    (copied,) = jax_to_shards(jnp.copy(a)).values()
    assert torch.equal(copied, to_torch(a, copy=None))


def test_a_dtensor_needs_a_named_sharding_and_one_shard_a_process(mesh: Any, one_rank: Any) -> None:
    with pytest.raises(ValueError, match=r"a: sharded by SingleDeviceSharding.*; wanted a NamedSh"):
        jax_to_dtensor(jnp.ones(3), one_rank)
    a = jax.device_put(jnp.ones(SHAPE), NamedSharding(mesh, P("dp")))
    with pytest.raises(
        ValueError, match="a: 8 shards in this process; a DTensor has one a process"
    ):
        jax_to_dtensor(a, one_rank)


class Read(dict[Any, Any]):
    """A mapping that reads a shard when it is asked, as from a file."""

    reads = 0

    def __getitem__(self, device: Any) -> Any:
        self.reads += 1
        return super().__getitem__(device)


class Unread(Read):
    def __getitem__(self, device: Any) -> Any:
        return bytes([255]).decode()


def test_a_shard_is_read_once_and_an_error_of_reading_is_raised_as_it_is(mesh: Any) -> None:
    sharding = NamedSharding(mesh, P("dp", "tp"))
    shards = Read(pieces(torch.ones(SHAPE), sharding))
    assert shards_to_jax(shards, sharding, SHAPE).sum() == 512
    assert shards.reads == 8
    with pytest.raises(UnicodeDecodeError, match="invalid start byte"):
        shards_to_jax(Unread(shards), sharding, SHAPE)


def lent(t: torch.Tensor) -> np.ndarray:
    """The values in memory that nobody may write into."""
    n = at_offset(t.numpy(), 0)
    n.flags.writeable = False
    return n


def test_shards_without_elements_are_on_their_devices(mesh: Any) -> None:
    sharding = NamedSharding(mesh, P(None, "tp"))
    a = shards_to_jax([torch.ones(0, 2)] * 8, sharding, (0, 8))
    assert (a.sharding, a.shape) == (sharding, (0, 8))


def test_shards_may_come_from_any_framework(mesh: Any) -> None:
    sharding = NamedSharding(mesh, P("dp", "tp"))
    shards = pieces(torch.arange(512.0).view(SHAPE), sharding)
    for make in (lambda t: jnp.asarray(t.numpy()), lambda t: at_offset(t.numpy(), 0), lent):
        given = {device: make(t) for device, t in shards.items()}
        a = shards_to_jax(given, sharding, SHAPE)
        assert np.asarray(a).tolist() == torch.arange(512.0).view(SHAPE).tolist()
        for shard in a.addressable_shards:
            assert pointer(shard.data) == pointer(given[shard.device])
