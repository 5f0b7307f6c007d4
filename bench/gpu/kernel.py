"""What xlayout promises about copies on the accelerator: torch's bits, and no stray byte."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch

import xlayout as xl
from bench.gpu.case import DEVICE, case, settle, stall
from bench.gpu.state import state
from xlayout_native.strided import one_move
from xlayout_torch import cuda, trial
from xlayout_triton.words import TRIED

DTYPES = ("bool", "uint8", "float8_e4m3fn", "bfloat16", "float32", "int64", "complex128")
SIZES = (1, 2, 3, 4, 7, 8, 16, 31, 64, 65, 128, 257, 1000)


def filled(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Random bytes; zeros and ones for bool."""
    if dtype is torch.bool:
        return torch.randint(0, 2, shape, dtype=dtype, device=DEVICE)
    size = torch.Size(shape).numel() * dtype.itemsize
    return torch.randint(0, 256, (size,), dtype=torch.uint8, device=DEVICE).view(dtype).view(shape)


def same(made: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether two tensors have the same shape and bits."""
    # Cloned, because an axis of one element may have any stride, and then has no view as bytes.
    raw = [x.clone(memory_format=torch.contiguous_format).view(-1) for x in (made, wanted)]
    raw = [x.view(torch.uint8) for x in raw]
    return made.shape == wanted.shape and torch.equal(*raw)


def far(rows: int, columns: int) -> int:
    """Check the transpose of a large matrix of bytes; how many there are."""
    x = torch.randint(0, 256, (rows, columns), dtype=torch.uint8, device=DEVICE)
    made = xl.matrix_transpose(x)
    assert all(torch.equal(made[k], x[:, k]) for k in range(0, columns, 997))
    assert int(made.sum(dtype=torch.int64)) == int(x.sum(dtype=torch.int64))
    return x.numel()


@case(on_cpu=False)
def kernel_is_at_work() -> str:
    """The Triton kernel passes its trials, and makes the large copies."""
    status = cuda.status()
    assert status.startswith("Triton"), status
    copied, copy = [], cuda.copy

    def counted(*args: Any) -> bool:
        copied.append(copy(*args))
        return copied[-1]

    cuda.copy = counted
    try:
        x = filled((4096, 2048), torch.bfloat16)
        assert same(xl.matrix_transpose(x), x.t().contiguous())
    finally:
        cuda.copy = copy
    assert copied == [True], f"{copied} of the kernel's"
    for kind in TRIED:
        assert trial.is_right(*kind, x.device), kind
    return status


@case(on_cpu=False)
def kernel_copies_any_view() -> str:
    """Permuted, stepped, repeated and misaligned views, of elements of every width, are copied."""
    draw, count = random.Random(0), 0
    for _ in range(60):
        dtype = getattr(torch, draw.choice(DTYPES))
        shape = [draw.choice(SIZES) for _ in range(draw.randint(1, 4))]
        while torch.Size(shape).numel() > 1 << 22:
            shape.remove(max(shape))
        x = filled((torch.Size(shape).numel() + 3,), dtype)[draw.randint(0, 3) :]
        view = x[: torch.Size(shape).numel()].view(shape)
        view = view.permute(draw.sample(range(view.ndim), view.ndim))
        view = view[tuple(_cut(n, draw) for n in view.shape)]
        if draw.random() < 0.2:
            view = view.unsqueeze(0).expand(3, *view.shape)
        made = torch.empty(view.shape, dtype=dtype, device=DEVICE)
        moves = one_move(view.shape, view.stride())
        addresses = [view.data_ptr()], [made.data_ptr()]
        if cuda.copy(moves, dtype.itemsize, *addresses, view.device):
            count += 1
            assert same(made, view.contiguous()), f"{dtype} {tuple(view.shape)} {view.stride()}"
    return f"{count} views"


def _cut(n: int, draw: random.Random) -> slice:
    return slice(draw.randint(0, n // 2), None, draw.choice((1, 1, 2)))


@case(on_cpu=False)
def kernel_joins_and_splits() -> str:
    """Several tensors in and out, in one launch, come out as on the CPU."""
    heads: dict[str, Any] = {"heads": 32, "kv_heads": 8}
    q, k, v = (filled((n * 256, 1024), torch.bfloat16) for n in (4, 1, 1))
    fused = xl.fuse_qkv(q, k, v, **heads)
    assert same(fused.cpu(), xl.fuse_qkv(q.cpu(), k.cpu(), v.cpu(), **heads))
    assert all(map(same, xl.split_qkv(fused, **heads), (q, k, v)))
    layers = [filled((128, 1024), torch.float32) for _ in range(20)]
    assert same(xl.stack(layers), torch.stack(layers))
    assert same(xl.pad(q, to=1500, value=3), torch.nn.functional.pad(q, (0, 0, 0, 476), value=3))
    return "fuse, split, stack, pad"


@case(on_cpu=False)
def kernel_writes_nothing_else() -> str:
    """An out= inside a larger tensor is written, and nothing around it."""
    x = filled((1500, 1100), torch.bfloat16)
    room = torch.full((1102, 3002), 7.0, dtype=torch.bfloat16, device=DEVICE)
    out = room[1:-1, 1:-1:2]
    before = out._version
    xl.matrix_transpose(x, out=out)
    assert same(out.contiguous(), x.t().contiguous())
    assert out._version > before
    out.fill_(7)
    assert bool((room == 7).all())
    return "a margin and the gaps of a step are as they were"


@case(on_cpu=False)
def kernel_shifts_odd_rows() -> str:
    """Transposes whose rows begin anywhere within a word, alone, in batches and far away."""
    for dtype in (torch.uint8, torch.bfloat16, torch.float32):
        for shape in ((5003, 4999), (4097, 8200), (3, 2001, 3003)):
            size = torch.Size(shape).numel()
            for start in range(4):
                x = filled((size + 8,), dtype)[start : start + size].view(shape)
                assert same(xl.matrix_transpose(x), x.mT.contiguous())
    return f"up to {far(46_401, 50_001)} elements"


@case(on_cpu=False)
def kernel_turns_a_few_columns() -> str:
    """A few columns become rows, and rows columns, that begin and end anywhere within a word."""
    for dtype, columns in itertools.product((torch.uint8, torch.bfloat16), range(2, 10)):
        for shape in ((4_000_037, columns), (7, 599_999, columns)):
            size = torch.Size(shape).numel()
            for start in range(0, 8, 3):
                x = filled((size + 8,), dtype)[start : start + size]
                for few in (x.view(shape), x.view(shape).view(*shape[:-2], *shape[:-3:-1])):
                    assert same(xl.matrix_transpose(few), few.mT.contiguous())
    return "2 to 9 columns and rows"


@case(on_cpu=False)
def kernel_reaches_far() -> str:
    """More elements than 32 bits can count are copied."""
    return f"{far(46_400, 50_000)} elements"


@case(on_cpu=False)
def kernel_relays_a_state_dict() -> str:
    """A thousand tensors take a few launches."""
    layouts, inputs = state(64)
    made = xl.apply_many(layouts, inputs)
    for layout, xs, y in zip(layouts, inputs, made, strict=True):
        assert same(y.cpu(), layout(*[x.cpu() for x in xs]))
    return f"{sum(map(len, inputs))} tensors"


@case(on_cpu=False, risky=True)
def kernel_leaves_gradients_right() -> str:
    """Autograd, a transform and a captured graph see every copy that the kernel makes."""
    x = torch.randn(1024, 2048, device=DEVICE, requires_grad=True)
    weight = torch.randn(2048, 1024, device=DEVICE)
    (xl.matrix_transpose(x) * weight).sum().backward()
    assert x.grad is not None
    assert same(x.grad, weight.t().contiguous())
    batch = torch.randn(3, 1024, 2048, device=DEVICE)
    assert same(torch.func.vmap(xl.matrix_transpose)(batch), batch.mT.contiguous())
    still, graph = torch.zeros(1024, 2048, device=DEVICE), torch.cuda.CUDAGraph()
    xl.matrix_transpose(still)
    with torch.cuda.graph(graph):
        made = xl.matrix_transpose(still)
    still.copy_(x.detach())
    graph.replay()
    settle()
    assert same(made, x.detach().t().contiguous())
    return "grad, vmap, CUDA graph"


@case(on_cpu=False, risky=True)
def kernel_keeps_to_its_stream() -> str:
    """A copy waits for what was queued before it on its own stream."""
    x = torch.zeros(2048, 4096, device=DEVICE)
    parts = [torch.zeros(512, 4096, device=DEVICE) for _ in range(3)]
    settle()
    with torch.cuda.stream(torch.cuda.Stream()):
        stall()
        x.fill_(1)
        for part in parts:
            part.fill_(2)
        turned, stacked = xl.matrix_transpose(x), xl.stack(parts)
    settle()
    assert bool((turned == 1).all())
    assert bool((stacked == 2).all())
    return "alone and with others"


@case(on_cpu=False, risky=True)
def kernel_waits_for_what_came_before() -> str:
    """Copies that start early read what is finished, and write where nothing is read any more."""
    x = filled((4096, 4096), torch.float32)
    y, spare = x.clone(), torch.empty_like(x)
    there, back = xl.interleave.layout((4096, 4096)), xl.deinterleave.layout((4096, 4096))
    turn = xl.matrix_transpose.layout((4096, 4096))
    rows, seen = x, []
    for k in range(50):
        xl.matrix_transpose(y, out=spare)
        xl.matrix_transpose(spare, out=y)
        for layout in (there, back):  # two launches each
            y, rows = xl.apply_many([turn, layout], [y, rows])
        spare.fill_(k)
        made = xl.matrix_transpose(spare)
        spare.fill_(-1)
        seen.append((made == k).all())
    assert same(y, x)
    assert same(rows, x)
    assert bool(torch.stack(seen).all())
    return f"{len(seen)} rounds"


@case(on_cpu=False, devices=2)
def kernel_on_another_device() -> str:
    """Tensors on cuda:1 are copied there while cuda:0 is current."""
    x = torch.randn(1024, 2048, device="cuda:1")
    assert same(xl.matrix_transpose(x), x.t().contiguous())
    assert same(xl.stack([x, x]), torch.stack([x, x]))
    return f"on {x.device}"
