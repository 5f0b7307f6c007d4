"""A fill value that a dtype cannot hold is refused, however the array is filled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, hessian, jvp, vmap

import xlayout as xl
import xlayout_torch
from tests.frameworks import Framework
from xlayout.errors import ShapeError

GREATEST = {name: float(ml_dtypes.finfo(name).max) for name in ("float16", "bfloat16", "float32")}
GREATEST |= {
    name: float(ml_dtypes.finfo(getattr(ml_dtypes, name)).max)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}
INFINITE = {"float16", "bfloat16", "float32", "float8_e5m2"}


@pytest.mark.parametrize("name", GREATEST)
def test_the_greatest_number_is_the_last_that_fits(backend: Framework, name: str) -> None:
    x = backend.array(np.zeros(2, getattr(ml_dtypes, name, name)))
    most = GREATEST[name]
    for value in (most, -most):
        made = backend.call(lambda x, value=value: xl.pad(x, to=3, value=value), x)
        assert float(backend.numpy(made)[2]) == value
    for value in (2 * most, -2 * most, 10**400):
        with pytest.raises(ShapeError, match=rf"in an array of {name}; wanted a number from -"):
            backend.call(lambda x, value=value: xl.pad(x, to=3, value=value), x)


@pytest.mark.parametrize("name", GREATEST)
def test_infinity_fits_where_there_is_one(backend: Framework, name: str) -> None:
    x = backend.array(np.zeros(2, getattr(ml_dtypes, name, name)))
    if name in INFINITE:
        made = backend.call(lambda x: xl.pad(x, to=3, value=-np.inf), x)
        assert float(backend.numpy(made)[2]) == -np.inf
    else:
        with pytest.raises(ShapeError, match=r"^value: inf in an array"):
            backend.call(lambda x: xl.pad(x, to=3, value=float("inf")), x)


@pytest.mark.parametrize("name", ["bfloat16", "float32", "complex64"])
def test_an_int_that_fills_floats_has_64_bits(backend: Framework, name: str) -> None:
    """Frameworks fill with some longer ones, and raise errors of their own for others."""
    x = backend.array(np.zeros(2, getattr(ml_dtypes, name, name)))
    for value in (-(2**63), 2**62, 2.0**70):
        made = backend.call(lambda x, value=value: xl.pad(x, to=3, value=value), x)
        assert complex(backend.numpy(made)[2]) == value
    for value in (2**63, 2**70, -(2**63) - 1):
        with pytest.raises(
            ShapeError, match=rf"^value: {value} in .*{name}; wanted a float, or an int of 64 bits"
        ):
            backend.call(lambda x, value=value: xl.pad(x, to=3, value=value), x)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("bool", 0, 1), ("int8", -128, 127), ("uint8", 0, 255), ("int32", -(2**31), 2**31 - 1)],
)
def test_whole_numbers_fit_from_the_first_to_the_last(
    backend: Framework, name: str, low: int, high: int
) -> None:
    x = backend.array(np.zeros(2, name))
    for value in (low, high, float(high)):
        made = backend.call(lambda x, value=value: xl.pad(x, to=3, value=value), x)
        assert int(backend.numpy(made)[2]) == value
    for value in (low - 1, high + 1, 0.5, 1j, float("nan")):
        with pytest.raises(ShapeError, match=rf"in an array of {name}; wanted (an integer|False)"):
            backend.call(lambda x, value=value: xl.pad(x, to=3, value=value), x)


@pytest.mark.parametrize(
    ("name", "most", "least"),
    [
        ("float6_e2m3fn", 7.5, -7.5),
        ("float6_e3m2fn", 28.0, -28.0),
        ("float8_e8m0fnu", 2.0**127, 2.0**-127),
    ],
)
def test_small_floats_of_numpy_hold_what_they_have(name: str, most: float, least: float) -> None:
    x = np.zeros(2, np.uint8).view(getattr(ml_dtypes, name))
    for value in (most, least):
        assert float(xl.pad(x, to=3, value=value)[2]) == value
    if least > 0:
        assert np.isnan(float(xl.pad(x, to=3, value=float("nan"))[2]))
    for value in (2 * most, -2 * most, least / 2 if least > 0 else float("nan")):
        with pytest.raises(ShapeError, match=rf"in an array of {name}; wanted a number"):
            xl.pad(x, to=3, value=value)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
def test_half_a_complex_number_of_torch_is_a_float16() -> None:
    x = torch.zeros(2, dtype=torch.complex32)
    assert xl.pad(x, to=3, value=65504)[2].item() == 65504
    with pytest.raises(ShapeError, match=r"1000000.0 in an array of complex32; wanted a number"):
        xl.pad(x, to=3, value=1e6)


def test_both_parts_of_a_complex_number_must_fit(backend: Framework) -> None:
    x = backend.array(np.zeros(2, np.complex64))
    assert backend.numpy(xl.pad(x, to=3, value=1 - 3e38j)).tolist()[2] == np.complex64(1 - 3e38j)
    with pytest.raises(ShapeError, match=r"1e.39j.* in an array of complex64; wanted a number"):
        xl.pad(x, to=3, value=1e39j)


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_a_dtype_without_a_zero_is_refused_whatever_was_filled_before(framework: str) -> None:
    array = np.array if framework == "numpy" else pytest.importorskip("jax.numpy").asarray
    layout = xl.pad.layout((6,), to=8)
    for argument, call in (("value", lambda x: xl.pad(x, to=8)), ("fill", layout)):
        call(array(np.zeros(6, np.float32)))
        with pytest.raises(ShapeError, match=f"^{argument}: 0 in an array of float8_e8m0fnu"):
            call(array(np.ones(6, ml_dtypes.float8_e8m0fnu)))
    if framework == "numpy":
        x, out = (np.ones(n, ml_dtypes.float8_e8m0fnu) for n in (6, 8))
        for call in (xl.pad.layout((6,), to=8), lambda x, out: xl.pad(x, to=8, out=out)):
            with pytest.raises(ShapeError, match=": 0 in an array of float8_e8m0fnu"):
                call(x, out=out)


def test_a_layout_tells_fills_that_are_equal_apart(backend: Framework) -> None:
    x, layout = backend.array(np.ones(2, np.float32)), xl.pad.layout((2,), to=3)
    for fill in (-0.0, 0, 0.0, -0.0):
        made = backend.numpy(backend.call(lambda x, fill=fill: layout(x, fill=fill), x))
        assert (made[2], np.signbit(made[2])) == (0, np.signbit(fill))


def test_a_fill_is_asked_of_each_dtype_with_holes_or_none(backend: Framework) -> None:
    for layout in (xl.pad.layout((2,), to=3), xl.Layout.identity((2,))):
        for dtype, fits in ((np.float32, True), (np.uint8, False), (np.float32, True)):
            x = backend.array(np.ones(2, dtype))
            with nullcontext() if fits else pytest.raises(ShapeError, match=r"^fill: 300 in an"):
                backend.call(lambda x, layout=layout: layout(x, fill=300), x)


@pytest.mark.parametrize("fill", [np.int64(3), np.float32(3), np.array(3)], ids=repr)
def test_a_number_of_numpy_fills_as_any_other(backend: Framework, fill: Any) -> None:
    x, layout = backend.array(np.ones(2, np.float32)), xl.pad.layout((2,), to=3)
    for call in (
        lambda x: layout(x, fill=fill),
        lambda x: xl.apply(layout, x, fill=fill),
        lambda x: xl.pad(x, to=3, value=fill),
    ):
        assert backend.numpy(backend.call(call, x)).tolist() == [1, 1, 3]


def test_an_array_of_one_number_is_no_number(backend: Framework) -> None:
    x, layout = backend.array(np.ones(2, np.float32)), xl.pad.layout((2,), to=3)
    with pytest.raises(
        TypeError, match=r"^fill: array\(\[3\]\) is a numpy.ndarray; wanted a number"
    ):
        backend.call(lambda x: layout(x, fill=np.array([3])), x)


def test_nor_is_one_of_several_where_arrays_are_many_or_sharded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jax = pytest.importorskip("jax")
    layout = xl.pad.layout((2,), to=3)
    rows = jax.sharding.NamedSharding(jax.make_mesh((2,), ("r",)), jax.sharding.PartitionSpec("r"))
    monkeypatch.setattr(xlayout_torch, "batch_strides", lambda xs: tuple(x.stride() for x in xs))
    for call in (
        lambda fill: xl.apply(layout, jax.device_put(np.ones(2, np.float32), rows), fill=fill),
        lambda fill: xl.apply_many([layout], [torch.ones(2)], fill=fill),  # as on a GPU
        lambda fill: xl.apply_many([layout.inverse()], [torch.ones(3)], fill=fill),
    ):
        with pytest.raises(TypeError, match=r"^fill: array\(\[3, 4\]\) is a numpy.ndarray; wanted"):
            call(np.array([3, 4]))


def test_a_number_that_asks_for_a_gradient_is_refused() -> None:
    x, layout = torch.ones(2), xl.pad.layout((2,), to=3)

    def calls(value: Any) -> list[tuple[str, Callable[[], Any]]]:
        return [
            ("value", lambda: xl.pad(x, to=3, value=value)),
            ("value", lambda: xl.pad(x, to=3, value=value, copy=None)),
            ("value", lambda: xl.pad(x, to=3, value=value, out=torch.ones(3))),
            ("fill", lambda: layout(x, fill=value)),
            ("fill", lambda: layout(x, fill=value, out=torch.ones(3))),
            ("fill", lambda: xl.apply(layout, x, fill=value)),
            ("fill", lambda: xl.apply_many([layout], [x], fill=value)[0]),
        ]

    for asking in (torch.tensor(3.0, requires_grad=True), torch.nn.Parameter(torch.tensor(3.0))):
        for argument, call in calls(asking):
            with pytest.raises(TypeError, match=f"^{argument}: it requires grad"):
                call()
    for _, call in calls(torch.tensor(3.0)):
        assert call().tolist() == [1, 1, 3]
    with pytest.raises(TypeError, match=r"^value: it requires grad"):
        grad(lambda value: xl.pad(x, to=3, value=value).sum())(torch.tensor(3.0))
    with pytest.raises(RuntimeError, match=r"vmap: .*\.item\(\)"):
        vmap(lambda value: xl.pad(x, to=3, value=value))(torch.ones(4))


FILLED: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "pad": lambda value, x: xl.pad(x, to=3, value=value),
    "view": lambda value, x: xl.pad(x, to=3, value=value, copy=None),
    "layout": lambda value, x: xl.pad.layout((2,), to=3)(x, fill=value),
    "apply": lambda value, x: xl.apply(xl.pad.layout((2,), to=3), x, fill=value),
    "many": lambda value, x: xl.apply_many([xl.pad.layout((2,), to=3)], [x], fill=value)[0],
}
ASKED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "tangent": lambda f, v, x: jvp(lambda v: f(v, x), (v,), (v,)),
    "tangent of what is made": lambda f, v, x: jvp(lambda v: f(2 * v, x), (v,), (v,)),
    "tangent outside": lambda f, v, x: jvp(
        lambda v: grad(lambda x: f(2 * v, x).sum())(x), (v,), (v,)),
    "tangent twice outside": lambda f, v, x: jvp(
        lambda v: jvp(lambda x: f(v, x), (x,), (x,))[1], (v,), (v,)),
    "tangent outside a batch": lambda f, v, x: jvp(
        lambda v: vmap(lambda x: f(v, x))(x[None]), (v,), (v,)),
    "gradient outside": lambda f, v, x: grad(
        lambda v: grad(lambda x: f(2 * v, x).sum())(x).sum())(v),
    "gradient outside a tangent": lambda f, v, x: grad(
        lambda v: jvp(lambda x: f(2 * v, x).sum(), (x,), (x,))[1])(v),
    "curvature": lambda f, v, x: hessian(lambda v: f(v, x).sum())(v),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("filled", FILLED.values(), ids=FILLED)
def test_a_number_of_which_a_transform_asks_a_derivative_is_refused(
    filled: Any, asked: Any
) -> None:
    with pytest.raises(TypeError, match=r"^(value|fill): it (has a tangent|requires grad), and no"):
        asked(filled, torch.tensor(3.0), torch.ones(2))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_a_number_of_which_nobody_asks_a_derivative_fills_inside_a_transform() -> None:
    v, x = torch.tensor(3.0), torch.ones(2)
    for filled in FILLED.values():
        made, tangent = jvp(lambda x, filled=filled: filled(2 * v, x), (x,), (x,))
        assert (made.tolist(), tangent.tolist()) == ([1, 1, 6], [1, 1, 0])
        assert vmap(lambda x, filled=filled: filled(v, x))(x[None]).tolist() == [[1, 1, 3]]
    with forward_ad.dual_level(), pytest.raises(TypeError, match=r"^value: it has a tangent"):
        xl.pad(x, to=3, value=forward_ad.make_dual(v, v))


def test_random_keys_have_nothing_to_fill_with() -> None:
    jax = pytest.importorskip("jax")
    keys = jax.random.split(jax.random.key(0), 2)
    refusal = (
        r"^value: 0 in an array of key<fry>; wanted none: random keys are no numbers, so fill "
        r"jax\.random\.key_data\(x\) instead"
    )
    for call in (lambda x: xl.pad(x, to=3), jax.jit(lambda x: xl.pad(x, to=3))):
        with pytest.raises(ShapeError, match=refusal):
            call(keys)
