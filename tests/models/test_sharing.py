"""Cross-layer sharing (ALBERT section 3.1): what is stored, what is computed, and what gradients add up to."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.config import ALBERT_SIZES, PARTS, EncoderConfig
from models.encoder import EncoderLayer, Layers
from models.pretraining import parameter_shapes
from training.optimizer import OptimizerConfig, make
from training.schedule import ScheduleConfig

# (sharing, groups, inner groups), of four layers.
MODES = [
  ("none", 1, 1),
  ("none", 1, 2),
  ("all", 1, 1),
  ("all", 2, 2),
  ("all", 4, 1),
  ("attention", 1, 2),
  ("attention", 2, 1),
  ("ffn", 1, 1),
  ("ffn", 2, 2),
]


def config(sharing: str, groups: int, inner: int, **fields) -> EncoderConfig:
  sizes = {"vocab_size": 30, "hidden_size": 8, "num_layers": 4, "num_heads": 2, "intermediate_size": 12}
  still = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.5}
  return EncoderConfig(**sizes, **still, sharing=sharing, num_groups=groups, inner_groups=inner, **fields)


def inputs() -> tuple[jax.Array, jax.Array]:
  hidden = jax.random.normal(jax.random.key(1), (2, 5, 8))
  return hidden, jnp.asarray([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


def stack(config: EncoderConfig) -> dict:
  hidden, sequence_ids = inputs()
  return jax.jit(lambda key: Layers(config).init(key, hidden, sequence_ids, True))(jax.random.key(0))["params"]


def copy_of(config: EncoderConfig, part: str, layer: int, inner: int) -> int:
  """Which copy of `part` the block `inner` of layer `layer` uses, by the paper's rule."""
  group = layer * config.num_groups // config.num_layers if config.is_shared(part) else layer
  return group * config.inner_groups + inner


@pytest.mark.parametrize(("sharing", "groups", "inner"), MODES)
def test_shared_parts_are_stored_once_a_group(sharing, groups, inner):
  params = stack(config(sharing, groups, inner))
  for part in PARTS:
    shared = sharing == "all" or part.startswith(sharing)
    sizes = {x.shape[0] for x in jax.tree.leaves(params[part])}
    assert sizes == {(groups if shared else 4) * inner}


@pytest.mark.parametrize(("sharing", "groups", "inner"), MODES)
def test_every_layer_uses_its_groups_copy(sharing, groups, inner):
  c = config(sharing, groups, inner, unroll=groups - 1)
  params = stack(c)
  hidden, sequence_ids = inputs()
  states = Layers(c).apply({"params": params}, hidden, sequence_ids, True, True)
  expected = [hidden]
  for layer in range(4):
    hidden = expected[-1]
    for k in range(inner):
      index = {part: copy_of(c, part, layer, k) for part in PARTS}
      mine = {part: jax.tree.map(lambda x, i=index[part]: x[i], params[part]) for part in PARTS}
      hidden = EncoderLayer(c).apply({"params": mine}, hidden, sequence_ids, True)
    expected.append(hidden)
  np.testing.assert_allclose(states, jnp.stack(expected), atol=2e-5)


@pytest.mark.parametrize(("sharing", "groups", "inner"), [("all", 1, 1), ("attention", 2, 1), ("ffn", 2, 2)])
def test_the_gradient_of_a_shared_copy_is_the_sum_over_its_uses(sharing, groups, inner):
  c = config(sharing, groups, inner)
  separate = dataclasses.replace(c, sharing="none", num_groups=1)
  params = stack(c)
  hidden, sequence_ids = inputs()
  order = {part: [copy_of(c, part, i, k) for i in range(4) for k in range(inner)] for part in PARTS}
  spread = {part: jax.tree.map(lambda x, part=part: x[np.array(order[part])], params[part]) for part in PARTS}
  loss = lambda c: lambda p: (Layers(c).apply({"params": p}, hidden, sequence_ids, True) * hidden).sum()
  shared, apart = jax.grad(loss(c))(params), jax.grad(loss(separate))(spread)
  for part in PARTS:
    summed = jax.tree.map(
      lambda g, s, part=part: jnp.zeros_like(s).at[np.array(order[part])].add(g), apart[part], shared[part]
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), shared[part], summed)


@pytest.mark.parametrize(("unroll", "remat"), [(1, "full"), pytest.param(0, "dots", marks=pytest.mark.slow)])
def test_remat_changes_no_gradient(unroll, remat):
  hidden, sequence_ids = inputs()
  params = stack(config("all", 2, 2))

  def gradient(**fields):
    layers = Layers(config("all", 2, 2, **fields))
    return jax.jit(jax.grad(lambda p: (layers.apply({"params": p}, hidden, sequence_ids, True) ** 3).sum()))(params)

  kept, again = gradient(), gradient(unroll=unroll, remat=remat)
  # Sums in another order differ by what is added up, however small the sum: that of the key's bias is 0.
  largest = max(np.abs(x).max() for x in jax.tree.leaves(kept))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * largest), kept, again)


def test_shared_layers_draw_their_own_dropout():
  c = dataclasses.replace(config("all", 1, 1), hidden_dropout=0.5, num_layers=2)
  hidden = jnp.ones((1, 1, 8))
  sequence_ids = jnp.ones((1, 1), jnp.int32)
  params = jax.tree.map(jnp.zeros_like, stack(c))  # every sublayer gives its bias alone
  params["ffn"]["output"]["bias"] = jnp.arange(1.0, 9.0)[None]
  params["ffn_norm"]["scale"] = jnp.ones((1, 8))
  apply = jax.jit(
    lambda key: Layers(c).apply({"params": params}, hidden, sequence_ids, False, True, rngs={"dropout": key})
  )
  states = [apply(jax.random.key(seed)) for seed in range(20)]
  # The same mask in both layers would always give the same norm.
  assert not all(jnp.allclose(one, two, atol=1e-3) for _, one, two in states)


@pytest.mark.parametrize(
  ("size", "expected"),
  [("base", 11_813_810), ("large", 17_847_474), ("xlarge", 59_021_490), ("xxlarge", 223_158_450)],
)
def test_parameter_counts_of_the_published_sizes(size, expected):
  shapes = parameter_shapes(EncoderConfig(30_000, **ALBERT_SIZES[size]))
  assert sum(int(np.prod(shape)) for shape in shapes.values()) == expected


def test_the_optimizer_holds_one_copy_too():
  params = stack(config("all", 1, 1))
  tx, _ = make(OptimizerConfig(ScheduleConfig(1.0, 0)), 10)
  moments = tx.init({"layers": params})[1].mu
  assert {x.shape[0] for x in jax.tree.leaves(moments)} == {1}


@pytest.mark.parametrize(
  ("fields", "said"),
  [
    ({"num_groups": 3}, "num_groups=3 does not divide model.num_layers=4"),
    ({"num_groups": 0}, "model.num_groups must be at least 1"),
    ({"inner_groups": 0}, "model.inner_groups must be at least 1"),
    ({"sharing": "some"}, "model.sharing='some' is not one of none, all, attention, ffn"),
    ({"sharing": "none", "num_groups": 2}, "says nothing while model.sharing='none'"),
    ({"embedding_size": 16}, "embedding_size=16 is larger than model.hidden_size=8"),
  ],
)
def test_a_field_that_makes_no_sense_is_named(fields, said):
  with pytest.raises(ValueError, match=said):
    dataclasses.replace(config("all", 1, 1), **fields)
