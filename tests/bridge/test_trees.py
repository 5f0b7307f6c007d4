"""A state dict or a pytree crosses whole: its containers, shared arrays and order are kept."""

from __future__ import annotations

from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.bridge.memory import pointer
from xlayout.bridge import to_jax, to_numpy, to_torch


def walk(tree: Any) -> Iterator[Any]:
    if isinstance(tree, jax.Array):
        yield tree
    if isinstance(tree, Mapping):
        tree = [*tree.values()]
    for child in tree if isinstance(tree, (list, tuple)) else ():
        yield from walk(child)


class Pair(NamedTuple):
    weight: Any
    bias: Any


class Store(MutableMapping[str, Any]):
    """A mapping whose items are in an inner dict, which a shallow copy shares."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.held = held

    def __getitem__(self, key: str) -> Any:
        return self.held[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.held[key] = value

    def __delitem__(self, key: str) -> None:
        del self.held[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


@dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = "layer"


jax.tree_util.register_dataclass(Layer, ["weight", "bias"], ["name"])


@dataclass
class Unknown:
    weight: Any


def test_every_container_keeps_its_type() -> None:
    t = torch.ones(16)
    tree = {
        "dict": {"a": t},
        "ordered": OrderedDict(b=t, a=t),
        "default": defaultdict(list, x=t),
        "frozen": MappingProxyType({"y": t}),
        "list": [t, [t]],
        "tuple": (t, ()),
        "pair": Pair(t, None),
        3: None,
        "again": {"c": t},
    }
    out = to_jax(tree)
    assert [type(x) for x in out.values()] == [type(x) for x in tree.values()]
    assert list(out["ordered"]) == ["b", "a"]
    assert out["default"].default_factory is list
    assert out["pair"].bias is None
    assert out[3] is None
    assert [pointer(x) for x in walk(out)] == 10 * [pointer(t)]


def test_the_source_is_not_touched() -> None:
    t = torch.ones(3)
    tree = {"a": [t], "b": OrderedDict(c=t)}
    to_jax(tree)
    assert tree["a"][0] is t
    assert tree["b"]["c"] is t


@pytest.mark.parametrize("kind", [Store, UserDict, ChainMap])
def test_another_mapping_is_read_and_comes_back_as_a_dict(kind: Any) -> None:
    t = torch.ones(3)
    source = kind({"a": t, "b": kind({"c": t})})
    out = to_numpy(source)
    assert (type(out), type(out["b"])) == (dict, dict)
    assert [pointer(out["a"]), pointer(out["b"]["c"])] == [pointer(t)] * 2
    assert source["a"] is t
    assert source["b"]["c"] is t


def test_a_dict_that_stores_in_its_own_way_is_stored_into_plainly() -> None:
    t = torch.tensor([1.0, 2.0])
    source: Any = Counter(w=t)
    out = to_jax(source)
    assert type(out) is Counter
    assert out["w"].tolist() == [1.0, 2.0]
    assert source["w"] is t


class Layers(list[Any]):
    """A list constructed from separate arguments, with more state than its items."""

    def __init__(self, *items: Any, name: str = "") -> None:
        super().__init__(items)
        self.name = name


def test_a_list_of_a_class_of_its_own_keeps_what_it_knows() -> None:
    t = torch.ones(3)
    source = Layers(t, [t], name="layers")
    out = to_jax(source)
    assert (type(out), len(out), out.name) == (Layers, 2, "layers")
    assert [pointer(out[0]), pointer(out[1][0])] == [pointer(t)] * 2
    assert source[0] is t


class Edge(tuple[Any, ...]):
    """A tuple constructed from separate arguments, with more state than its items."""

    def __new__(cls, *ends: Any, name: str = "") -> Edge:
        edge = super().__new__(cls, ends)
        edge.name = name
        return edge

    name: str


class Bare(tuple[Any, ...]):
    __slots__ = ()


def test_a_tuple_of_a_class_of_its_own_keeps_what_it_knows() -> None:
    t = torch.ones(3)
    source = Edge(t, (t,), name="edge")
    out = to_jax(source)
    assert (type(out), len(out), out.name) == (Edge, 2, "edge")
    assert [pointer(out[0]), pointer(out[1][0])] == [pointer(t)] * 2
    assert type(to_jax(Bare([t]))) is Bare


def test_what_torch_returns_by_twos_stays_that() -> None:
    best = torch.max(torch.tensor([[1.0, 3.0, 2.0]]), 1)
    out: Any = to_numpy(best)
    assert type(out) is type(best)
    assert (out.values.tolist(), out.indices.tolist()) == ([3.0], [1])


def test_what_is_registered_with_jax_is_walked_and_built_anew() -> None:
    t = torch.ones(3)
    source = [Layer(t, {"x": [t, None]}, "first"), jax.tree_util.Partial(max, t)]
    layer, partial = to_jax(source)
    assert (type(layer), layer.name, layer.bias["x"][1]) == (Layer, "first", None)
    assert layer.weight is layer.bias["x"][0] is partial.args[0]
    assert partial.func is max
    assert pointer(layer.weight) == pointer(t)
    assert source[0].weight is t
    back = to_torch(layer)
    assert (type(back), pointer(back.weight)) == (Layer, pointer(t))


def test_a_class_may_be_registered_after_it_was_refused() -> None:
    with pytest.raises(TypeError, match=r"^x: expected a torch\.Tensor, .*Unknown; convert it"):
        to_numpy(Unknown(torch.ones(2)))
    jax.tree_util.register_dataclass(Unknown, ["weight"], [])
    assert to_numpy(Unknown(torch.ones(2))).weight.tolist() == [1, 1]


def test_a_module_takes_its_state_back() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4, affine=False))
    with pytest.raises(
        TypeError, match=r"x\['1.num_batches_tracked'\]: int64\[\] would be narrowed"
    ):
        to_jax(module.state_dict())
    state = module.state_dict()
    there = to_jax(state, x64="keep")
    back = to_torch(there)
    assert type(back) is OrderedDict
    assert back._metadata == state._metadata
    assert [pointer(x) for x in back.values()] == [pointer(x) for x in state.values()]
    module.load_state_dict(back)


def test_tied_arrays_stay_tied() -> None:
    t = torch.ones(4)
    out = to_jax({"embed": t, "head": t}, copy=True)
    assert out["embed"] is out["head"]
    assert pointer(out["head"]) != pointer(t)


class Read(Mapping[int, Any]):
    """A mapping that makes each array when it is asked, as one that reads a file."""

    def __getitem__(self, key: int) -> Any:
        return np.full(2, key)

    def __iter__(self) -> Iterator[int]:
        return iter(range(8))

    def __len__(self) -> int:
        return 8


def test_arrays_that_nobody_else_holds_are_not_taken_for_one_another() -> None:
    out = to_torch(Read(), copy=True)
    assert [x.tolist() for x in out.values()] == [[k, k] for k in range(8)]


def test_arrays_of_all_frameworks_may_be_mixed() -> None:
    t, a = torch.ones(4), jnp.ones(4)
    out = to_numpy([t, a, np.ones(4)])
    assert all(type(x) is np.ndarray for x in out)
    mixed = to_torch([t, a])
    assert mixed[0] is t
    assert pointer(mixed[1]) == pointer(a)


def test_a_container_inside_itself_is_no_tree() -> None:
    t = torch.ones(1)
    within: list[Any] = [t]
    within.append({"again": (t, within)})
    with pytest.raises(ValueError, match=r"^x\[1\]\['again'\]\[1\]: a list inside itself; wanted"):
        to_jax(within)
    twice = [t]
    assert to_numpy([twice, [twice, twice]]) == [[1], [[1], [1]]]


def test_nothing_is_the_empty_tree() -> None:
    assert to_torch(None) is None
    assert to_jax({}) == {}
    assert to_numpy(([],)) == ([],)


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({"a": {"b": [1]}}, r"x\['a'\]\['b'\]\[0\]: expected a torch.Tensor, jax.Array or numpy"),
        ([None, Pair(torch.ones(1), "s")], r"x\[1\]\[1\]: expected a torch.Tensor, jax.Array"),
        ((torch.ones(1), torch.Size([3])), r"x\[1\]\[0\]: expected a torch.Tensor, jax.Array"),
        (
            {0: torch.ones(1, requires_grad=True)},
            r"x\[0\]: Tensor float32\[1\] on cpu requires grad",
        ),
        (
            [Layer(torch.ones(1), Store({"a": 0.5}))],
            r"^x\[0\]\.bias\['a'\]: expected a torch\.Tensor, jax\.Array or numpy",
        ),
        ({"w": torch.ones(4, 4).t()}, r"x\['w'\]: float32\[4, 4\] cannot be shared"),
    ],
)
def test_a_refusal_names_the_leaf(tree: Any, text: str) -> None:
    with pytest.raises((TypeError, BufferError), match=text):
        to_jax(tree, copy=False)


UNDECODED = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")  # as it is


@pytest.mark.parametrize(
    ("error", "text"),
    [(UNDECODED, str(UNDECODED)), (ValueError(), "x[0]: "), (OverflowError(1, 2), "x[0]: (1, 2)")],
)
def test_an_error_says_all_that_it_was_told(error: Exception, text: str) -> None:
    class Unread(Store):
        def __getitem__(self, key: str) -> Any:
            raise error

    with pytest.raises(type(error)) as told:
        to_torch([Unread({"a": None})])
    assert str(told.value) == text


def test_a_refusal_donates_nothing() -> None:
    first, last = torch.ones(4), torch.ones(4, requires_grad=True)
    with pytest.raises(TypeError, match=r"x\[1\]: .* requires grad"):
        to_jax([first, last], donate=True)
    with pytest.raises(BufferError, match=r"x\[1\]: .* not row-major"):
        to_jax([first, torch.ones(4, 4).t()], donate=True, copy=False)
    assert first.tolist() == [1, 1, 1, 1]
