"""A tensor without memory of its own, or that is more than its memory, is refused unread."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

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
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")

OUT_OF_TORCH = pytest.mark.parametrize("convert", [to_jax, to_numpy])


@OUT_OF_TORCH
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_a_gradient_is_never_lost(convert: Any, mode: Any) -> None:
    leaf = torch.ones(3, requires_grad=True)
    in_graph = leaf * 2
    refused = (
        r"^x: Tensor float32\[3\] on cpu requires grad, and .*; "
        r"pass x\.detach\(\); to_jax also takes detach=True$"
    )
    with mode():
        for x in (leaf, in_graph):
            with pytest.raises(TypeError, match=refused):
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


DENSE = r"is torch\.\w+, not one strided array; pass x.to_dense\(\) or its parts"
PADDED = r"is nested, not one strided array; pass x.to_padded_tensor\(0\) or x.unbind\(\)"

NOT_STRIDED = {
    "sparse": (lambda: torch.eye(3).to_sparse(), DENSE),
    "CSR": (lambda: torch.eye(3).to_sparse_csr(), DENSE),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        PADDED,
    ),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), PADDED),
    "mkldnn": (lambda: torch.ones(3, 3).to_mkldnn(), DENSE),
}


@OUT_OF_TORCH
@pytest.mark.parametrize(("make", "text"), NOT_STRIDED.values(), ids=NOT_STRIDED)
@pytest.mark.filterwarnings("ignore")  # torch calls most of these a prototype
def test_a_layout_that_is_not_strided_is_refused(convert: Any, make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
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
@pytest.mark.parametrize("pre_dispatch", [False, True])
@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic"])
def test_nothing_is_baked_into_a_traced_graph(
    convert: Any, tracing: str, pre_dispatch: bool
) -> None:
    def inside(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(TypeError, match="memory cannot be exchanged inside make_fx"):
            convert(x)
        with pytest.raises(TypeError, match="memory cannot be exchanged inside make_fx"):
            to_torch(np.ones(3))
        return x + 1

    make_fx(inside, tracing_mode=tracing, pre_dispatch=pre_dispatch)(torch.ones(3))
    with torch.device("cpu"):
        convert(torch.ones(3))  # a default device records nothing


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


@pytest.mark.parametrize("x", ["x", "{'a': x}"])
def test_compiled_code_is_refused_before_anything_was_exchanged(x: str) -> None:
    """A process of its own, where no class of arrays is known yet."""
    code = f"""
        import jax, torch, xlayout as xl
        torch.compile(lambda x: xl.to_jax({x}), backend="eager")(torch.ones(3))
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    assert ": memory cannot be exchanged inside torch.compile" in done.stderr.splitlines()[-1]


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


@pytest.mark.parametrize("start", [0, 1])
def test_a_tensor_whose_storage_was_freed_has_no_memory(start: int) -> None:
    x = torch.ones(16)[start:]
    x.untyped_storage().resize_(0)  # as FSDP frees what it has gathered
    with pytest.raises(TypeError, match=r"has elements but no memory \(a null pointer\)"):
        to_jax(x)
