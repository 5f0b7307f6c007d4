"""Containers of classes of their own: what they know beside their items, and what holds nothing."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import pytest
import torch

from tests.bridge.memory import pointer
from xlayout.bridge import to_jax, to_numpy, to_torch


class Output(OrderedDict[str, Any]):
    """Items that are attributes as well, as those of a model's output in transformers."""

    def __init__(self, items: Any = ()) -> None:
        super().__init__(items)
        vars(self).update(items)


class Open(dict[str, Any]):
    """A dict whose attributes are its items themselves."""

    def __init__(self, items: dict[str, Any]) -> None:
        super().__init__(items)
        self.__dict__ = self


@pytest.mark.parametrize("kind", [Output, Open])
def test_items_that_are_attributes_too_cross_as_both(kind: Any) -> None:
    t = torch.ones(3)
    source = kind({"logits": t, "states": (t, kind({"x": t})), "loss": None})
    out = to_jax(source)
    assert (type(out), list(out)) == (kind, ["logits", "states", "loss"])
    assert (out.logits, out.states, out.loss) == (out["logits"], out["states"], None)
    assert isinstance(out.states[1].x, jax.Array)
    assert source.logits is source["logits"] is t


def test_other_attributes_of_a_dict_stay_as_they_are() -> None:
    t = torch.ones(3)
    source = Output({"w": t})
    vars(source).update(w=torch.zeros(3), other=t, name="source")
    out = to_numpy(source)
    assert vars(out) == {**vars(source)}
    assert pointer(out["w"]) == pointer(t)


def test_what_is_donated_is_in_no_attribute_any_more() -> None:
    out: Any = to_jax(Output({"w": torch.ones(3)}), donate=True)
    assert out.w is out["w"]
    assert out.w.tolist() == [1, 1, 1]


class Pair(NamedTuple):
    weight: Any
    bias: Any


class Named(Pair):
    """A named tuple with more state than its items."""

    name: str


def test_a_named_tuple_keeps_its_attributes() -> None:
    source = Named(torch.ones(3), None)
    source.name = "source"
    out = to_jax(source)
    assert (type(out), out.name, out.weight.tolist()) == (Named, "source", [1, 1, 1])


@jax.tree_util.register_dataclass
@dataclass
class Settings:
    """What JAX knows as a container without children."""

    name: str = field(metadata={"static": True})


class Bag:
    """A registered class with any number of children."""

    def __init__(self, *held: Any) -> None:
        self.held = held


jax.tree_util.register_pytree_node(Bag, lambda bag: (bag.held, None), lambda _, held: Bag(*held))


def test_a_registered_class_without_children_is_a_container_all_the_same() -> None:
    t = torch.ones(3)
    for bag in (Bag(), Bag(t), Bag(t, Bag(), None)):
        out = to_jax({"w": t, "settings": Settings("mine"), "bag": bag})
        assert out["settings"] == Settings("mine")
        assert (type(out["bag"]), len(out["bag"].held)) == (Bag, len(bag.held))
    assert to_torch(Settings("alone")) == Settings("alone")
    with pytest.raises(TypeError, match=r"^x\.held\[0\]|^x\[<flat index 0>\]: expected a torch"):
        to_jax(Bag(object()))
