"""What torch does with models works for one that several ranks share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.shard.pool import Pool
from tests.tp import on_ranks, on_ranks_uses

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def two() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()


@pytest.fixture(scope="module")
def four() -> Iterator[Pool]:
    pool = Pool(4)
    yield pool
    pool.close()


def test_attention_hears_what_the_config_is_told_later(two: Pool) -> None:
    """As `set_attn_implementation` does it; a copy would go on as before."""
    two(on_ranks_uses.told, 2)


@pytest.mark.parametrize("how", ["grad", "vmap", "each", "jvp", "second"])
def test_transforms_of_functions(two: Pool, how: str) -> None:
    two(on_ranks_uses.transformed, 2, how)


def test_layers_under_autocast_make_what_those_of_the_whole_make(two: Pool) -> None:
    assert two(on_ranks_uses.cast, 2) == [["torch.bfloat16"] * 4] * 2


def test_inputs_are_given_by_name(two: Pool) -> None:
    two(on_ranks_uses.named, 2)


def test_parameters_are_themselves(two: Pool) -> None:
    two(on_ranks_uses.read, 2)


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_another_axis_shares_the_batch(four: Pool, kind: str) -> None:
    four(on_ranks_uses.cut_once_more, kind)


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("more than linear", "model: 'x.weight' belongs to a Scaled, whose bias is to be added "
         "once; of layers with a bias only linear ones, with the forward of nn.Linear, can be cut "
         "by rows"),
        ("one weight more", "model: 'x.gain' is whole on every rank, in a layer that is cut: each "
         "would have a part of its gradient. Give a rule that cuts it, or Rule('x.gain', 'whole', "
         "partial_grads=True)"),
        ("one weight more, by columns", "model: 'x.gain' is whole on every rank, in a layer that "
         "is cut: each would have a part of its gradient. Give a rule that cuts it, or "
         "Rule('x.gain', 'whole', partial_grads=True)"),
        ("a forward of its own", "model: 'x' has a forward of its own, which its Linear does not "
         "see; take it away (`del layer.forward`, accelerate's remove_hook_from_module), and put "
         "it there again afterwards"),
        ("a parameter of its own", "model: 'x.weight' is a Packed; only a plain nn.Parameter is "
         "cut. Parallelize before FSDP or quantization"),
        ("a norm", "model: 'x.weight' belongs to a LayerNorm; only layers with a matrix are cut, "
         "and a norm of each head is 'whole' with partial_grads=True"),
        ("a convolution", "model: 'x.weight' belongs to a Conv1d; only layers with a matrix are "
         "cut, and a norm of each head is 'whole' with partial_grads=True"),
        ("one layer, two rules", "model: 'x.weight' and 'y.weight' are one layer; give both the "
         "same rule"),
    ],
)  # fmt: skip
def test_layers_that_compute_something_else_are_refused(two: Pool, case: str, text: str) -> None:
    """Each gave wrong results, or an error in the middle of its first step."""
    assert two(on_ranks.refused, 2, case) == [f"ShardingError: {text}"] * 2
