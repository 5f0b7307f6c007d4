"""A third-party backend, found by its entry point, serves ops and layouts as ours do."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.mixins import NDArrayOperatorsMixin

import xlayout as xl
from tests.house.tree import ROOT
from tests.ops.examples import flat
from xlayout.backend import Backend
from xlayout.errors import ShapeError
from xlayout.registry import SERVED, backend_of
from xlayout_numpy.exchange import offer

PAGE = (ROOT / "docs" / "guide" / "extending.md").read_text("utf-8")
(SOURCE,) = re.findall(r"^```python\n(import builtins\n.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(SESSION,) = re.findall(r"^```pycon\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(TOML,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def boxed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The backend from the guide, as an installed package."""
    notes = tmp_path / "boxed-1.0.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text("Metadata-Version: 2.1\nName: boxed\nVersion: 1.0\n", "utf-8")
    (notes / "entry_points.txt").write_text("[xlayout.backends]\nboxed = boxed\n", "utf-8")
    (tmp_path / "boxed.py").write_text(SOURCE, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module: Any = importlib.import_module("boxed")
    yield module
    SERVED.pop(module.Boxed, None)
    del sys.modules["boxed"]


def numbers(*shape: int, first: int = 0) -> np.ndarray:
    return np.arange(first, first + int(np.prod(shape)), dtype=np.int32).reshape(shape)


def test_the_guide_names_the_group_that_is_searched() -> None:
    assert TOML == '[project.entry-points."xlayout.backends"]\nboxed = "boxed"\n'


def test_it_is_found_by_the_class_of_an_array(boxed: Any) -> None:
    assert backend_of(boxed.Boxed(numbers(2))) is boxed


@pytest.mark.usefixtures("boxed")
def test_the_guide_s_session_is_what_is_printed() -> None:
    test = doctest.DocTestParser().get_doctest(SESSION, {}, "extending.md", None, 0)
    assert len(test.examples) == 8
    report: list[str] = []
    doctest.DocTestRunner().run(test, out=report.append)
    assert report == []


def test_it_serves_classes_that_derive_from_its_own(boxed: Any) -> None:
    class Mixin:
        """A base of another module, which comes first."""

    class Mine(Mixin, boxed.Boxed):  # type: ignore[misc,name-defined]
        """An array of one's own."""

    class Both(Mine, np.ndarray):  # type: ignore[misc]
        """An array of numpy's too, in whose memory it is."""

    assert backend_of(Mine(numbers(2))) is boxed
    assert xl.interleave(Mine(numbers(4))).values.tolist() == [0, 2, 1, 3]
    assert backend_of(Both.__new__(Both, (2,))).name == "numpy"
    for cls in (Mine, Both):
        del SERVED[cls]


def test_of_two_that_could_the_one_of_the_nearest_base_serves(boxed: Any, tmp_path: Path) -> None:
    class Mine(boxed.Boxed):  # type: ignore[misc,name-defined]
        """An array whose own module has a backend as well."""

    both = "[xlayout.backends]\nboxed = boxed\ntests = xlayout_numpy\n"
    (tmp_path / "boxed-1.0.dist-info" / "entry_points.txt").write_text(both, "utf-8")
    assert backend_of(Mine(numbers(2))).name == "numpy"
    assert backend_of(boxed.Boxed(numbers(2))) is boxed
    del SERVED[Mine]


def test_it_may_derive_from_a_mixin_of_numpys(boxed: Any) -> None:
    class Operators(NDArrayOperatorsMixin, boxed.Boxed):  # type: ignore[misc,name-defined]
        """An array with numpy's operators."""

    Operators.__module__ = "boxed.core"
    assert backend_of(Operators(numbers(2))) is boxed
    del SERVED[Operators]


def test_it_has_every_verb_of_the_protocol_and_no_other(boxed: Any) -> None:
    verbs = {name for name in {*vars(Backend), *Backend.__annotations__} if name[0] != "_"}
    own = {name for name in vars(boxed) if name[0] != "_"} - {"builtins", "np", "Boxed"}
    assert own == verbs


COLUMN = xl.Layout.slice((16, 16), 2, 14, axis=1)
TABLE = xl.Layout.parse("(a b + c) -> (b a + c)", (256,), a=3, b=84) >> xl.Layout.parse(
    "(c + a b) -> (c + b a)", (256,), a=5, b=50
).regrouped(out_shapes=[(16, 16)])
CALLS: dict[str, Callable[..., Any]] = {
    "interleave": lambda x: xl.interleave(x, block=2),
    "deinterleave the last axis": lambda x: xl.deinterleave(x, axis=-1),
    "transpose": lambda x: xl.matrix_transpose(x),
    "rope": lambda x: xl.rope_pairs(x, heads=2),
    "fuse": lambda x, y: xl.fuse_qkv(x, y, y, heads=4, kv_heads=4),
    "split": lambda x: xl.split_qkv(x, heads=2, kv_heads=1),
    "regroup": lambda x: xl.regroup(x, sizes=(8, 4, 4), groups=2),
    "tiles": lambda x: xl.to_tiles(x, grid=(3, 5)),
    "stack": lambda x, y: xl.stack([x, y], axis=1),
    "unstack": lambda x: xl.unstack(x),
    "pad": lambda x: xl.pad(x, to=19, value=-7),
    "trim": lambda x: xl.trim(x, to=5),
    "rearrange": lambda x, y: xl.rearrange((x, y), "a b, c b -> b (c + a)"),
    "a window": lambda x: COLUMN(x),
    "holes": lambda x: (COLUMN >> COLUMN.inverse())(x, fill=5),
    "what has no short program": lambda x: TABLE.regrouped(in_shapes=[(16, 16)])(x),
    "a layout": lambda x, y: xl.Layout.parse("a b, c b -> (b c + b a)", [(16, 16)] * 2)(x, y),
    "a view, if there is one": lambda x: xl.matrix_transpose(x, copy=None),
    "many": lambda x, y: xl.apply_many([xl.Layout.permute((16, 16), (1, 0))] * 2, [x, y]),
    "locally": lambda x: xl.interleave(x, comm="local"),
}


@pytest.mark.parametrize("immutable", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_ops_and_layouts_answer_as_in_numpy(boxed: Any, name: str, immutable: bool) -> None:
    boxed.immutable = immutable
    call = CALLS[name]
    arrays = (numbers(16, 16), numbers(16, 16, first=1000))[: len(signature(call).parameters)]
    found, expected = call(*map(boxed.Boxed, arrays)), call(*arrays)
    for one, other in zip(flat(found), flat(expected), strict=True):
        assert type(one) is boxed.Boxed
        np.testing.assert_array_equal(one.values, other)


@pytest.mark.parametrize("name", CALLS)
def test_shapes_may_be_lists(boxed: Any, name: str) -> None:
    def listed(values: np.ndarray) -> Any:
        x = boxed.Boxed(values)
        x.shape = list(values.shape)
        return x

    call = CALLS[name]
    arrays = (numbers(16, 16), numbers(16, 16, first=1000))[: len(signature(call).parameters)]
    for one, other in zip(flat(call(*map(listed, arrays))), flat(call(*arrays)), strict=True):
        np.testing.assert_array_equal(one.values, other)


def test_the_first_shape_that_differs_is_named_among_lists(boxed: Any) -> None:
    xs = [boxed.Boxed(numbers(2, 3)), boxed.Boxed(numbers(2, 3))]
    for x in xs:
        x.shape = [2, 3]
    with pytest.raises(ShapeError, match=r"1 is of shape \(2, 3\); the layout takes \(4, 3\)$"):
        xl.Layout.concat([(2, 3), (4, 3)])(*xs)


def test_large_arrays_are_no_exception(boxed: Any) -> None:
    x = numbers(256, 256)
    for immutable in (True, False):
        boxed.immutable = immutable
        found = xl.fuse_qkv(*[boxed.Boxed(x)] * 3, heads=4, kv_heads=4)
        np.testing.assert_array_equal(found.values, xl.fuse_qkv(x, x, x, heads=4, kv_heads=4))


def test_what_it_declines_is_refused(boxed: Any) -> None:
    x = boxed.Boxed(numbers(8))
    with pytest.raises(TypeError, match="out: cannot be written: a Boxed is never written into"):
        xl.interleave(x, out=boxed.Boxed(numbers(8)))
    with pytest.raises(TypeError, match="donate: nothing can empty a Boxed"):
        xl.interleave(x, donate=True)
    with pytest.raises(BufferError, match="is no view of arrays with memory that is out of sight"):
        xl.interleave(x, copy=False)
    with pytest.raises(TypeError, match=r"0 is boxed, 1 is numpy; one framework per call$"):
        xl.stack([x, numbers(8)])


def test_sharding_and_exchange_know_the_three_frameworks_alone(boxed: Any) -> None:
    x = boxed.Boxed(numbers(8))
    calls: list[Callable[[], Any]] = [
        lambda: xl.reshard(x, None),
        lambda: xl.all_gather(x),
        lambda: xl.interleave(x, out_sharding=xl.Sharding(xl.Mesh(1, "a"), ("a",))),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="is on one device"):
            call()
    with pytest.raises(TypeError, match="backend boxed has no module 'exchange'"):
        xl.to_numpy(x)


def test_a_backend_that_offers_its_memory_can_be_converted_from(boxed: Any) -> None:
    boxed.exchange = SimpleNamespace(offer=lambda x, **options: offer(x.values, **options))
    values = numbers(8)
    assert xl.to_numpy({"w": boxed.Boxed(values)})["w"].tolist() == values.tolist()


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_a_dtype_that_only_it_has_is_refused_by_all_alike(boxed: Any, name: str) -> None:
    pytest.importorskip(name)
    offered = SimpleNamespace(dtype="bytes16", shape=(8,), device=(1, 0), obstacle=None)
    boxed.exchange = SimpleNamespace(offer=lambda _x, **_options: offered)
    refusal = "has no (numpy|torch|JAX) equivalent; cast it, or send its bits as uint8$"
    with pytest.raises(TypeError, match=rf"^x\['w'\]: bytes16 {refusal}"):
        getattr(xl, f"to_{name}")({"w": boxed.Boxed(numbers(8))})


def test_an_array_that_nobody_serves_is_refused_with_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"register a backend for its type .* 'xlayout.backends'"):
        xl.interleave(SimpleNamespace(shape=(2,)))
