"""What the ranks of a pool save of a model that they share."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.fsdp import fully_shard

from tests.tp.models import batch, made
from tests.tp.on_ranks import mesh_of
from xlayout import tp
from xlayout.errors import ShardingError

__all__ = ["alone", "each_its_own", "of_no_other", "other_ways", "pickled", "put_together"]


def each_its_own(rank: int, ranks: int | tuple[int, int], path: Path) -> None:
    """Save one DCP checkpoint for each rank along the tensor-parallel axis, and load it again."""
    mesh, options = mesh_of(ranks), {"no_dist": True}
    t = rank
    if not isinstance(ranks, int):
        t, options = mesh["tp"].get_local_rank(), {"process_group": mesh["dp"].get_group()}

    def shared() -> Any:
        model = tp.parallelize(made("llama"), mesh)
        return model if isinstance(ranks, int) else fully_shard(model, mesh=mesh["dp"])

    place = f"{path}/tp{t}"
    dcp.save({"model": shared().state_dict()}, checkpoint_id=place, **options)
    model = shared()
    with torch.no_grad():
        for x in model.parameters():
            x.zero_()
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=place, **options)
    model.load_state_dict(state["model"])
    torch.testing.assert_close(model(batch()).logits, made("llama")(batch()).logits)


def put_together(rank: int, ranks: tuple[int, int], path: Path, name: str) -> None:
    """Transformers loads the whole model, bit for bit."""
    import transformers

    mesh, whole = mesh_of(ranks), made(name)
    plan = tp.plan(whole, ranks[1])
    model = tp.parallelize(made(name), mesh)
    own = {key: x.cpu() for key, x in model.state_dict().items()}
    shards: list[Any] = [None] * plan.parts
    dist.all_gather_object(shards, own, group=mesh["tp"].get_group())
    model.save_pretrained(path, rank == 0, state_dict=tp.merge(shards, plan))
    dist.barrier()
    found = transformers.AutoModelForCausalLM.from_pretrained(path)
    for key, x in whole.state_dict().items():
        assert torch.equal(found.state_dict()[key], x), key


def of_no_other(rank: int, ranks: int, path: Path) -> set[str]:
    """The errors of saving a model's weights; copies of it may save weights of their own."""
    model = tp.parallelize(made("llama"), mesh_of(ranks))
    errors = set()
    for n, m in enumerate((model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)))):
        for part in (m, m.model):
            try:
                part.save_pretrained(path)
            except ShardingError as error:
                errors.add(str(error))
            else:
                raise AssertionError("not refused")
        m.config.eos_token_id = n
        m.save_pretrained(path / str(n), rank == 0, made("llama").state_dict())
        if rank == 0:
            config = json.loads((path / str(n) / "config.json").read_text("utf-8"))
            assert config["eos_token_id"] == n
    assert not list(path.glob("*.json"))
    return errors


def pickled(_rank: int, ranks: int, name: str) -> None:
    """A model that was pickled has the logits of the whole."""
    model = pickle.loads(pickle.dumps(tp.parallelize(made(name), mesh_of(ranks))))
    torch.testing.assert_close(model(batch()).logits, made(name)(batch()).logits)


def alone(_rank: int, path: Path) -> None:
    """One rank holds the whole."""
    model = tp.parallelize(made("llama"), mesh_of((2, 1)))
    model.save_pretrained(path)


class Tower(nn.Module):
    """A part of a model that may be saved by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def save_pretrained(self, _path: Path, state_dict: Any = None) -> Any:
        """What would be written."""
        return self.state_dict() if state_dict is None else state_dict


class Elsewhere(Tower):
    """One with a function of that name that is not told what to write."""

    def save_pretrained(self, path: Path) -> Any:
        """Where it would be written."""
        return path


def other_ways(_rank: int, ranks: int, path: Path) -> None:
    """Only what would write parts under the names of the whole is refused."""
    towers = {"cut": Tower(), "whole": Tower(), "elsewhere": Elsewhere()}
    rules = [tp.Rule(f"{name}.layer", "column", gather=True) for name in ("cut", "elsewhere")]
    model = tp.parallelize(nn.ModuleDict(towers), mesh_of(ranks), rules=rules)
    assert model["whole"].save_pretrained(path).keys() == {"layer.weight", "layer.bias"}
    assert model["elsewhere"].save_pretrained(path) == path
    given = {"layer.weight": torch.ones(4, 4)}
    assert model["cut"].save_pretrained(path, given) is given
    for named in ({}, {"state_dict": None}):
        try:
            model["cut"].save_pretrained(path, **named)
        except ShardingError:
            continue
        raise AssertionError(f"{named} not refused")
