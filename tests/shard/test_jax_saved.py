"""Of what is gathered in JAX no wide copy exists, and none is kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import print_saved_residuals
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
import xlayout.jax
from tests.shard.train import AUTO, BATCH, EXPLICIT, IN, OUT, arrays, mapped, mesh, net


def test_the_full_copy_in_float32_is_never_there() -> None:
    on = mesh(AUTO)
    source, whole = NamedSharding(on, P("fsdp")), NamedSharding(on, P())
    w = jax.ShapeDtypeStruct((1024, 256), np.float32, sharding=source)

    def plain(w: Any) -> Any:
        return jax.lax.with_sharding_constraint(w, whole).astype(jnp.bfloat16)

    def ours(w: Any) -> Any:
        return xl.all_gather(w, dtype="bfloat16", in_sharding=source)

    for fn, bytes_each in ((plain, 4), (ours, 2)):
        stats = jax.jit(fn).lower(w).compile().memory_analysis()
        assert stats is not None
        assert stats.temp_size_in_bytes == w.size * bytes_each


def saved(fn: Callable[..., Any], capsys: pytest.CaptureFixture[str], *args: Any) -> set[str]:
    """The shapes of what is saved for the backward pass."""
    capsys.readouterr()
    print_saved_residuals(fn, *args)
    lines = capsys.readouterr().out.splitlines()
    return {line.split()[0].partition("{")[0] for line in lines if "from the argument" not in line}


@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.dots_saveable])
def test_nothing_gathered_is_saved_under_the_policy(
    capsys: pytest.CaptureFixture[str], policy: Any
) -> None:
    gathered = {f"bf16[{IN},{OUT}]", f"bf16[{OUT},{IN}]"}
    with jax.set_mesh(mesh(EXPLICIT)):
        w, x = arrays(mesh(EXPLICIT))

        def loss(w: Any, x: Any) -> Any:
            return net(lambda w: xlayout.jax.all_gather(w, "fsdp", dtype="bfloat16"), w, x)

        kept = jax.checkpoint(loss, policy=xlayout.jax.regather(policy))
        assert gathered <= saved(loss, capsys, w, x)
        found = saved(kept, capsys, w, x)
        assert not gathered & found
        assert f"bf16[{BATCH}@fsdp,{OUT}]" in found  # activations are, as the policy says
        grads = [jax.jit(jax.grad(f))(w, x) for f in (kept, loss)]
        np.testing.assert_array_equal(*grads)


def test_in_shard_map_nothing_gathered_is_saved_under_the_policy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    w, x = arrays(mesh(AUTO))

    def ours(w: Any) -> Any:
        return xlayout.jax.all_gather(w, "fsdp", dtype="bfloat16")

    kept = jax.checkpoint(mapped(ours), policy=xlayout.jax.regather())
    assert f"bf16[{8 * IN},{OUT}]" in saved(mapped(ours), capsys, w, x)
    assert not {f"bf16[{8 * IN},{OUT}]", f"bf16[{8 * OUT},{IN}]"} & saved(kept, capsys, w, x)
    grads = [jax.jit(jax.grad(f))(w, x) for f in (kept, mapped(ours))]
    np.testing.assert_array_equal(*grads)


def test_what_is_moved_otherwise_is_saved_under_the_policy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with jax.set_mesh(mesh(EXPLICIT)):
        w, _ = arrays(mesh(EXPLICIT))
        for move, kept in (
            (xl.interleave, f"f32[{IN}@fsdp,{OUT}]"),
            (lambda w: jax.sharding.reshard(w, P(None, "fsdp")), f"f32[{IN},{OUT}@fsdp]"),
        ):

            def loss(w: Any, move: Any = move) -> Any:
                y = move(w)
                return (y * y).sum()

            assert kept in saved(jax.checkpoint(loss, policy=xlayout.jax.regather()), capsys, w)
