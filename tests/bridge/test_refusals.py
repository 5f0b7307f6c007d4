"""What has no memory to give, or means more than it, is refused before anything reads it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

from xlayout.bridge import to_jax, to_numpy, to_torch

# torch itself still scripts the decompositions that its forward mode needs.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")

OUT_OF_TORCH = pytest.mark.parametrize("convert", [to_jax, to_numpy])


@OUT_OF_TORCH
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_a_gradient_is_never_lost(convert: Any, mode: Any) -> None:
    leaf = torch.ones(3, requires_grad=True)
    with mode():
        for x in (
            leaf,
            (torch.ones(1, requires_grad=True) * 2) if mode is torch.enable_grad else leaf,
        ):
            with pytest.raises(
                TypeError, match=r"x: Tensor float32\[.\] on cpu requires grad, and"
            ):
                convert(x)


def test_detach_lets_a_gradient_go_by_name() -> None:
    x = torch.ones(3, requires_grad=True)
    assert to_jax(x, detach=True).unsafe_buffer_pointer() == x.data_ptr()
    assert x.requires_grad


@OUT_OF_TORCH
def test_a_wrapper_subclass_is_never_read_as_memory(convert: Any) -> None:
    x = TwoTensor(torch.ones(3), torch.ones(3))
    with pytest.raises(
        TypeError, match=r"TwoTensor float32\[3\] on cpu is a wrapper without memory"
    ):
        convert(x)


def test_a_dtensor_is_never_read_as_memory(one_rank: Any) -> None:
    from torch.distributed.tensor import Replicate, distribute_tensor

    x = distribute_tensor(torch.ones(4), one_rank, [Replicate()])
    with pytest.raises(TypeError, match=r"DTensor .* is a wrapper .* dtensor_to_jax\(x\)"):
        to_jax(x)


@OUT_OF_TORCH
def test_a_fake_tensor_is_never_read_as_memory(convert: Any) -> None:
    with FakeTensorMode() as mode:
        inside = torch.ones(3)
        with pytest.raises(
            TypeError, match="memory cannot be exchanged inside make_fx, FakeTensor"
        ):
            convert(inside)
    with pytest.raises(TypeError, match=r"FakeTensor float32\[3\] on cpu"):
        convert(inside)
    with mode, pytest.raises(TypeError, match="FakeTensorMode"):
        to_torch(np.ones(3))


@OUT_OF_TORCH
def test_a_meta_tensor_has_no_memory(convert: Any) -> None:
    with pytest.raises(
        TypeError, match=r"Tensor float32\[3\] on meta has no memory on cpu or cuda"
    ):
        convert(torch.ones(3, device="meta"))


NOT_STRIDED = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "CSR": lambda: torch.eye(3).to_sparse_csr(),
    "jagged": lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    ),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "mkldnn": lambda: torch.ones(3, 3).to_mkldnn(),
}


@OUT_OF_TORCH
@pytest.mark.parametrize("make", NOT_STRIDED.values(), ids=NOT_STRIDED)
@pytest.mark.filterwarnings("ignore")  # torch calls most of these a prototype
def test_a_layout_that_is_not_strided_is_refused(convert: Any, make: Any) -> None:
    with pytest.raises(
        TypeError, match=r"is (nested|torch\.\w+), not one strided array; pass x.to_d"
    ):
        convert(make())


NO_EQUIVALENT = {
    "quantised": (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        r"no other framework has qint8; send x.int_repr\(\) with its scale",
    ),
    "complex32": (
        lambda: torch.zeros(3, dtype=torch.complex32),
        r"no other framework has complex32; torch.view_as_real\(x\) shares",
    ),
    "float4": (
        lambda: torch.zeros(3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        r"float4_e2m1fn_x2; send x.view\(torch.uint8\) and bitcast",
    ),
    "int4": (
        lambda: torch.zeros(3, dtype=torch.uint8).view(torch.int4),
        "has int4; cast it, or send",
    ),
    "uint3": (
        lambda: torch.zeros(3, dtype=torch.uint8).view(torch.uint3),
        "has uint3; cast it, or",
    ),
    "bits8": (
        lambda: torch.zeros(3, dtype=torch.uint8).view(torch.bits8),
        "has bits8; cast it, or",
    ),
}


@OUT_OF_TORCH
@pytest.mark.parametrize(("make", "text"), NO_EQUIVALENT.values(), ids=NO_EQUIVALENT)
@pytest.mark.filterwarnings("ignore")  # torch warns that complex32 and quantised tensors are young
def test_a_dtype_of_torch_alone_is_refused_with_a_way_out(
    convert: Any, make: Any, text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        convert(make())


@OUT_OF_TORCH
def test_a_forward_mode_tangent_is_never_lost(convert: Any) -> None:
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.ones(3), torch.ones(3))
        with pytest.raises(TypeError, match="carries a forward-mode tangent, which would be lost"):
            convert(x)
        assert convert(torch.ones(3)).shape == (3,)


TRANSFORMS = {
    "vmap": lambda f: torch.func.vmap(f)(torch.ones(2, 3)),
    "grad": lambda f: torch.func.grad(f)(torch.ones(3)),
    "jvp": lambda f: torch.func.jvp(f, (torch.ones(3),), (torch.ones(3),)),
    "functionalize": lambda f: torch.func.functionalize(f)(torch.ones(3)),
}


@OUT_OF_TORCH
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_transform_of_torch_is_refused_by_name(convert: Any, transform: Any) -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(
            TypeError, match=r"is inside torch.func \(vmap, grad, jvp or functional"
        ):
            convert(x)
        return x.sum()

    transform(inside)


def test_a_constant_that_a_transform_would_lift_is_refused_too() -> None:
    constant = torch.ones(3)

    def inside(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(TypeError, match=r"is inside torch.func"):
            to_jax(constant)
        return x.sum()

    torch.func.grad(inside)(torch.ones(3))


@OUT_OF_TORCH
@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic"])
def test_nothing_is_baked_into_a_traced_graph(convert: Any, tracing: str) -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(TypeError, match="memory cannot be exchanged inside make_fx"):
            convert(x)
        with pytest.raises(TypeError, match="memory cannot be exchanged inside make_fx"):
            to_torch(np.ones(3))
        return x + 1

    make_fx(inside, tracing_mode=tracing)(torch.ones(3))


@OUT_OF_TORCH
def test_nothing_is_baked_into_a_jit_trace(convert: Any) -> None:
    refused = []

    def inside(x: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_tracing():
            with pytest.raises(TypeError, match=r"torch.export or torch.jit.trace; do it outside"):
                convert(x)
            refused.append(True)
        return x + 1

    torch.jit.trace(inside, torch.ones(3))
    assert refused


@OUT_OF_TORCH
def test_compiled_code_is_refused_and_told_the_way_out(convert: Any) -> None:
    convert(torch.ones(3))

    def f(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return x * 2, convert(x + 1)

    with pytest.raises(torch._dynamo.exc.Unsupported, match="memory cannot be exchanged inside"):
        torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
    torch._dynamo.reset()
    with pytest.raises(TypeError, match=r"or wrap the calling function in torch.compiler.disable"):
        torch.compile(f, backend="eager")(torch.ones(3))
    torch._dynamo.reset()
    outside = torch.compiler.disable(convert)
    assert (
        torch.compile(lambda x: outside(x + 1), backend="eager")(torch.ones(3)).tolist() == [2] * 3
    )


def test_compiled_code_does_not_adopt_either() -> None:
    a = jnp.ones(3)
    to_torch(a)
    with pytest.raises(TypeError, match=r"memory cannot be exchanged inside torch.compile"):
        torch.compile(lambda x: x + to_torch(a), backend="eager")(torch.ones(3))


class Exported(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        to_jax(x)
        return x + 1


@pytest.mark.parametrize("strict", [True, False])
def test_export_is_refused(strict: bool) -> None:
    wanted: tuple[type[Exception], ...] = (TypeError, torch._dynamo.exc.Unsupported)
    with pytest.raises(
        wanted, match=r"memory cannot be exchanged inside torch.compile, torch.export"
    ):
        torch.export.export(Exported(), (torch.ones(3),), strict=strict)


OUT_OF_JAX = pytest.mark.parametrize("convert", [to_torch, to_numpy])


@OUT_OF_JAX
@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
def test_a_traced_array_is_refused_by_name(convert: Any, transform: Any) -> None:
    def inside(x: Any) -> Any:
        with pytest.raises(
            TypeError, match=r"is traced by jax.jit, grad or vmap and has no memory yet"
        ):
            convert(x)
        return (x * 1.0).sum()

    transform(inside)(jnp.ones(()) if transform is jax.grad else jnp.ones(3))


@OUT_OF_JAX
def test_a_deleted_or_donated_array_is_refused(convert: Any) -> None:
    deleted, donated = jnp.ones(3), jnp.ones(3)
    deleted.delete()
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated).block_until_ready()
    for x in (deleted, donated):
        with pytest.raises(ValueError, match=r"x: jax.Array float32\[3\] was deleted or donated"):
            convert(x)
        with pytest.raises(ValueError, match="was deleted or donated"):
            to_jax(x)


@OUT_OF_JAX
@pytest.mark.parametrize("spec", [jax.P("i"), jax.P()])
def test_an_array_over_several_devices_is_never_gathered_in_silence(
    convert: Any, spec: Any
) -> None:
    mesh = jax.make_mesh((8,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    x = jax.device_put(jnp.ones(16), jax.NamedSharding(mesh, spec))
    with pytest.raises(ValueError, match=r"is spread over 8 devices; exchange it shard by shard"):
        convert(x)


@OUT_OF_JAX
def test_a_random_key_is_refused(convert: Any) -> None:
    with pytest.raises(TypeError, match=r"holds random keys; pass jax.random.key_data\(x\)"):
        convert(jax.random.key(0))


@OUT_OF_JAX
@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "float4_e2m1fn"])
def test_sub_byte_numbers_are_refused_with_a_way_out(convert: Any, dtype: str) -> None:
    with pytest.raises(
        TypeError, match=rf"no other framework has {dtype}; cast it to int8, or pack"
    ):
        convert(jnp.zeros(4, dtype))


@pytest.mark.parametrize("dtype", ["float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz"])
def test_a_float_of_jax_alone_is_refused_by_torch(dtype: str) -> None:
    with pytest.raises(
        TypeError, match=rf"{dtype} has no torch equivalent; cast it, or send its bits"
    ):
        to_torch(jnp.zeros(4, dtype))


NO_ARRAY_OF_JAX = {
    "shape": lambda: jax.ShapeDtypeStruct((3,), jnp.float32),
    "ref": lambda: jax.new_ref(jnp.ones(3)),
    "spec": lambda: jax.P("i"),
}


@OUT_OF_JAX
@pytest.mark.parametrize("make", NO_ARRAY_OF_JAX.values(), ids=NO_ARRAY_OF_JAX)
def test_what_only_looks_like_a_jax_array_is_refused(convert: Any, make: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a (jax.Array|torch.Tensor, jax.Array or numpy)"):
        convert(make())


NO_NUMBERS = {
    "foreign byte order": (
        np.ones(3, ">f4"),
        r"dtype >f4: no other .* x.astype\(x.dtype.newbyteorder",
    ),
    "longdouble": (np.ones(3, np.longdouble), "no other framework has it"),
    "datetime": (np.zeros(3, "M8[s]"), "no other framework has it"),
    "string": (np.array(["a"]), "no other framework has it"),
    "structured": (np.zeros(3, [("a", "f4")]), "no other framework has it"),
    "object": (np.array([None]), "no other framework has it"),
    "float0": (np.zeros(3, jax.dtypes.float0), "no other framework has it"),
    "masked": (np.ma.masked_array([1.0, 2.0], [0, 1]), "a masked array would lose its mask; pass"),
    "scalar": (np.float32(1), r"expected a numpy.ndarray, got float32; pass np.asarray\(x\)"),
}


@pytest.mark.parametrize("convert", [to_torch, to_jax])
@pytest.mark.parametrize(("x", "text"), NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_numpy_array_of_no_common_numbers_is_refused(convert: Any, x: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        convert(x)


def test_numpy_stops_at_64_dimensions() -> None:
    with pytest.raises(TypeError, match="numpy stops at 64 dimensions; reshape it first"):
        to_numpy(torch.ones((1,) * 65))


@pytest.mark.parametrize("convert", [to_torch, to_jax, to_numpy])
@pytest.mark.parametrize("x", [1, 2.5, "text", object(), torch.nn.Linear(1, 1), np.float32, {1, 2}])
def test_what_is_no_array_is_refused(convert: Any, x: Any) -> None:
    with pytest.raises(TypeError, match="x: expected a "):
        convert(x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64, torch.float64, torch.complex128])
@pytest.mark.parametrize("copy", [None, False, True])
def test_64_bits_are_never_narrowed_in_silence(dtype: torch.dtype, copy: bool | None) -> None:
    with pytest.raises(
        TypeError, match=r"would be narrowed to \w+32|64, because jax_enable_x64 is off"
    ):
        to_jax(torch.ones(3, dtype=dtype), copy=copy)
    with pytest.raises(TypeError, match="would be narrowed"):
        to_jax(torch.ones(3, dtype=dtype).numpy(), copy=copy)


def test_narrowing_is_checked_and_finished() -> None:
    t = torch.tensor([1, -(2**31), 2**31 - 1])
    a = to_jax(t, x64="narrow")
    t.zero_()
    assert (a.dtype.name, a.tolist()) == ("int32", [1, -(2**31), 2**31 - 1])
    special = torch.tensor([1.5, float("inf"), float("nan")], dtype=torch.float64)
    assert str(to_jax(special, x64="narrow").tolist()) == "[1.5, inf, nan]"
    assert to_jax(torch.ones(2, dtype=torch.complex128), x64="narrow").dtype.name == "complex64"
    for value, name in ((2**40 + 5, "int32"), (-(2**31) - 1, "int32"), (1e300, "float32")):
        wide = torch.tensor([value], dtype=torch.float64 if name == "float32" else torch.int64)
        with pytest.raises(OverflowError, match=f"x64='narrow': a value does not fit {name}"):
            to_jax(wide, x64="narrow")
    with pytest.raises(BufferError, match="cannot be shared: x64='narrow' casts it to int32"):
        to_jax(torch.ones(3, dtype=torch.int64), x64="narrow", copy=False)


def test_keep_transports_64_bits_in_the_same_memory() -> None:
    t = torch.tensor([2**40 + 5])
    a = to_jax(t, x64="keep", copy=False)
    assert (a.dtype.name, a.unsafe_buffer_pointer()) == ("int64", t.data_ptr())
    assert to_torch(a).item() == 2**40 + 5


def test_options_are_spelled_right() -> None:
    t = torch.ones(2)
    with pytest.raises(ValueError, match="x64: 'drop'; wanted one of 'error', 'narrow', 'keep'"):
        to_jax(t, x64="drop")
    with pytest.raises(ValueError, match="layout: 'F'; wanted one of 'row_major', 'any'"):
        to_jax(t, layout="F")
    with pytest.raises(TypeError, match="copy: 'yes'; wanted None, True or False"):
        to_numpy(t, copy="yes")  # type: ignore[arg-type]


def test_a_traced_array_stays_traced_in_its_own_framework() -> None:
    assert jax.jit(to_jax)(jnp.ones(2)).tolist() == [1, 1]
    assert jax.jit(lambda x: to_jax(x, copy=True))(jnp.ones(2)).tolist() == [1, 1]
    with pytest.raises(TypeError, match="is traced and has no memory to share; pass copy=None"):
        jax.jit(lambda x: to_jax(x, copy=False))(jnp.ones(2))
