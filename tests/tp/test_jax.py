"""Weights in JAX are placed as a plan says, and the compiler turns that into tensor parallelism."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import xlayout as xl
from xlayout import tp
from xlayout.errors import ShardingError, SizeError

CONFIG = {"num_attention_heads": 8, "num_key_value_heads": 4}


def block(features: int = 32) -> dict[str, Any]:
    """A block in flax's orientation, (in, out)."""
    keys = iter(jax.random.split(jax.random.key(0), 9))

    def dense(*shape: int) -> dict[str, Any]:
        return {"kernel": jax.random.normal(next(keys), shape), "bias": jnp.ones(shape[1])}

    return {
        "self_attn": {
            "q_proj": dense(16, 16), "k_proj": dense(16, 8), "v_proj": dense(16, 8),
            "o_proj": dense(16, 16),
        },
        "mlp": {
            "gate_proj": dense(16, features), "up_proj": dense(16, features),
            "down_proj": dense(features, 16),
        },
        "norm": {"scale": jnp.ones(16)},
    }  # fmt: skip


def mlp(x: Any, weights: Any) -> Any:
    def dense(x: Any, layer: str) -> Any:
        return x @ weights["mlp"][layer]["kernel"] + weights["mlp"][layer]["bias"]

    return dense(jnp.tanh(dense(x, "gate_proj")) * dense(x, "up_proj"), "down_proj")


def test_kernels_are_placed_by_what_goes_in_and_comes_out() -> None:
    mesh = jax.make_mesh((2, 4), ("dp", "tp"), (jax.sharding.AxisType.Auto,) * 2)
    x = block()
    made = tp.parallelize(x, mesh, rules="llama", config=CONFIG)
    assert jax.tree.structure(made) == jax.tree.structure(x)
    specs = jax.tree.map(lambda a: tuple(a.sharding.spec), made)
    assert specs["self_attn"]["q_proj"] == {"kernel": (None, "tp"), "bias": ("tp",)}
    assert specs["self_attn"]["o_proj"] == {"kernel": ("tp",), "bias": ()}
    assert specs["mlp"]["down_proj"] == {"kernel": ("tp",), "bias": ()}
    assert specs["norm"] == {"scale": ()}
    jax.tree.map(np.testing.assert_array_equal, made, x)


def test_results_and_gradients_are_those_of_one_device() -> None:
    """Each pair of layers takes one sum over the devices, and no weight is gathered."""
    mesh = jax.make_mesh((4,), ("model",), (jax.sharding.AxisType.Auto,))
    weights = block()
    placed = tp.parallelize(weights, mesh, rules="llama", config=CONFIG)
    x = jax.device_put(jnp.linspace(-1, 1, 48).reshape(3, 16), NamedSharding(mesh, P()))
    run = jax.jit(jax.value_and_grad(lambda w, x: jnp.square(mlp(x, w)).mean()))
    expected, gradients = run(weights, x)
    value, made = run(placed, x)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    # In sums that cancel, processors differ by the last bits of the summands: 1e-5 of 38.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=4e-5),
                 made, gradients)  # fmt: skip
    text = jax.jit(mlp, out_shardings=NamedSharding(mesh, P())).lower(x, placed).compile().as_text()
    assert text is not None
    assert text.count(" all-reduce(") == 1
    assert "all-gather" not in text


def test_every_device_holds_its_part_alone() -> None:
    mesh = jax.make_mesh((4,), ("tp",))
    kernel = tp.parallelize(block(), mesh, rules="llama", config=CONFIG)["mlp"]["up_proj"]["kernel"]
    assert {shard.data.shape for shard in kernel.addressable_shards} == {(16, 8)}


def test_keys_of_fewer_heads_than_devices_are_whole() -> None:
    mesh = jax.make_mesh((8,), ("tp",))
    made = tp.parallelize(block(), mesh, rules="llama", config=CONFIG)
    assert made["self_attn"]["k_proj"]["kernel"].sharding.is_fully_replicated
    assert not made["self_attn"]["q_proj"]["kernel"].sharding.is_fully_replicated


def test_what_does_not_divide_is_refused_by_name() -> None:
    mesh = jax.make_mesh((4,), ("tp",))
    weights = block(features=30)
    text = r"model\['mlp.gate_proj.kernel'\]: axis 1 = 30 does not divide among 4 devices"
    with pytest.raises(SizeError, match=text):
        tp.parallelize(weights, mesh, rules="llama", config=CONFIG)


def test_a_mesh_of_several_axes_names_the_one() -> None:
    mesh = jax.make_mesh((2, 4), ("a", "b"))
    with pytest.raises(ShardingError, match=r"mesh: axes \('a', 'b'\); wanted one axis, or one na"):
        tp.parallelize(block(), mesh, rules="llama", config=CONFIG)


def test_shards_of_torch_are_weights_of_jax() -> None:
    """Cut by one plan, merged and placed: weights from one framework arrive in the other."""
    torch = pytest.importorskip("torch")
    x = {"mlp.gate_up_proj.weight": torch.arange(96.0).reshape(12, 8)}
    plan = tp.plan(x, 4, rules="phi3")
    shards = [tp.shard(x, plan, rank) for rank in range(4)]
    whole = tp.merge([xl.to_jax(part) for part in shards], plan)["mlp.gate_up_proj.weight"]
    assert isinstance(whole, jax.Array)
    np.testing.assert_array_equal(whole, x["mlp.gate_up_proj.weight"].numpy())


def test_heads_in_groups_attend_as_on_one_device() -> None:
    """8 devices have one head of queries each, and all 4 heads of keys and values."""
    mesh = jax.make_mesh((8,), ("tp",), (jax.sharding.AxisType.Auto,))
    weights = jax.tree.map(lambda a: a / 8, block())

    def attend(w: Any, x: Any) -> Any:
        def heads(layer: str, n: int) -> Any:
            made = x @ w["self_attn"][layer]["kernel"] + w["self_attn"][layer]["bias"]
            return made.reshape(len(x), n, 2)

        q, k, v = heads("q_proj", 8), heads("k_proj", 4), heads("v_proj", 4)
        k, v = (jnp.repeat(z, 2, axis=1) for z in (k, v))
        p = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k))
        out = jnp.einsum("hqk,khd->qhd", p, v).reshape(len(x), 16)
        x = x + out @ w["self_attn"]["o_proj"]["kernel"] + w["self_attn"]["o_proj"]["bias"]
        return jnp.square(x + mlp(x, w)).mean()

    run = jax.jit(jax.value_and_grad(attend))
    x = jnp.linspace(-1, 1, 80).reshape(5, 16)
    expected, gradients = run(weights, x)
    placed = tp.parallelize(weights, mesh, rules="llama", config=CONFIG)
    value, made = run(placed, x)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
                 made, gradients)  # fmt: skip


def test_shapes_come_back_with_their_shardings() -> None:
    mesh = jax.make_mesh((4,), ("tp",))
    made = tp.parallelize(jax.eval_shape(block), mesh, rules="llama", config=CONFIG)
    kernel = made["mlp"]["down_proj"]["kernel"]
    assert isinstance(kernel, jax.ShapeDtypeStruct)
    assert kernel.sharding == NamedSharding(mesh, P("tp"))


def test_layers_in_a_list_are_numbered() -> None:
    mesh = jax.make_mesh((4,), ("tp",))
    weights = {"layers": [block()["mlp"], (block()["mlp"],)], "key": jax.random.key(0)}
    rules = [tp.Rule("layers.0.up_proj", "column"), tp.Rule("layers.1.0.up_proj", "column")]
    made = tp.parallelize(weights, mesh, rules=rules)
    assert jax.tree.structure(made) == jax.tree.structure(weights)
    for layer in (made["layers"][0], made["layers"][1][0]):
        assert tuple(layer["up_proj"]["kernel"].sharding.spec) == (None, "tp")
        assert tuple(layer["down_proj"]["kernel"].sharding.spec) == ()


def test_a_model_of_flax_is_updated_with_its_own_state() -> None:
    nnx = pytest.importorskip("flax.nnx")
    mesh = jax.make_mesh((4,), ("tp",), (jax.sharding.AxisType.Auto,))
    model = nnx.Sequential(nnx.Linear(4, 8, rngs=nnx.Rngs(0)), nnx.Dropout(0.1, rngs=nnx.Rngs(1)))
    expected = model.layers[0](jnp.ones((2, 4)))
    rules = [tp.Rule("layers.0", "column")]
    nnx.update(model, tp.parallelize(nnx.state(model), mesh, rules=rules))
    assert tuple(model.layers[0].kernel[...].sharding.spec) == (None, "tp")
    np.testing.assert_allclose(model.layers[0](jnp.ones((2, 4))), expected, rtol=1e-6)


def test_weights_of_another_framework_are_refused() -> None:
    torch = pytest.importorskip("torch")
    text = r"model\['mlp.up_proj.weight'\]: a torch.Tensor; wanted an array of JAX or numpy"
    with pytest.raises(TypeError, match=text):
        tp.parallelize({"mlp.up_proj.weight": torch.ones(4, 4)}, jax.make_mesh((4,), ("tp",)),
                       rules="llama")  # fmt: skip
