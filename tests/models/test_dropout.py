"""Dropout's statistics, and that neither sharding nor anything else changes its masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from models.attention import SelfAttention
from models.encoder import Encoder
from models.pretraining import PretrainingModel
from models.primitives import Dropout, keep_mask
from tests.models import tiny

SIZE = 1_000_000


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.013])
def test_rate_is_within_three_standard_errors(rate):
  keep, scale = keep_mask(jax.random.key(0), rate, (SIZE // 100, 100))
  assert scale == pytest.approx(1 / (1 - rate), rel=1e-4)
  assert keep.mean() == pytest.approx(1 - rate, abs=3 * np.sqrt(rate * (1 - rate) / SIZE))


def test_neighbours_and_lines_are_independent():
  """Two values share a random word: that both are dropped must have probability rate², along either axis."""
  keep, _ = keep_mask(jax.random.key(1), 0.1, (1000, 1000))
  dropped = ~np.asarray(keep)
  for both in (dropped[:, 0::2] & dropped[:, 1::2], dropped[:, 1:-1:2] & dropped[:, 2::2], dropped[:-1] & dropped[1:]):
    assert both.mean() == pytest.approx(0.01, abs=3 * np.sqrt(0.01 * 0.99 / both.size))


def test_rates_near_the_ends():
  keep, scale = keep_mask(jax.random.key(0), 1e-9, (100, 100))
  assert keep.mean() > 0.99
  assert scale == pytest.approx(1, abs=2e-5)
  assert keep_mask(jax.random.key(0), 1 - 1e-9, (100, 100))[1] == 2**16


@pytest.mark.parametrize("width", [1, 2, 7])
def test_any_width(width):
  keep, _ = keep_mask(jax.random.key(2), 0.5, (3000, width))
  assert keep.shape == (3000, width)
  assert np.all(np.abs(keep.mean(axis=0) - 0.5) < 0.04)


def test_kept_values_are_scaled_and_the_rest_are_zero():
  x = jnp.full((1000, 64), 2.0)
  y = Dropout(0.25).apply({}, x, False, rngs={"dropout": jax.random.key(0)})
  assert set(np.unique(y)) == {0.0, np.float32(2 / 0.75)}
  assert Dropout(0.25).apply({}, x, True) is x
  assert Dropout(0.0).apply({}, x, False) is x


def test_sharding_does_not_change_the_mask():
  mesh = jax.make_mesh((4, 2), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
  one = keep_mask(jax.random.key(0), 0.1, (8, 6, 32))[0]
  for spec in (P("data"), P("data", None, "tensor"), P(None, None, ("data", "tensor"))):
    many = jax.jit(lambda key: keep_mask(key, 0.1, (8, 6, 32))[0], out_shardings=NamedSharding(mesh, spec))
    np.testing.assert_array_equal(many(jax.random.key(0)), one)


@pytest.mark.parametrize("prng", ["threefry2x32", "rbg"])
def test_a_share_of_the_rows_has_masks_of_its_own(prng):
  """Given by hand, as to copies of the parameters; with threefry those that the batch has in one place."""
  mesh = jax.make_mesh((4, 2), ("data", "fsdp"), axis_types=(AxisType.Auto,) * 2)
  draw = lambda key: keep_mask(key, 0.5, (2, 6, 32))[0]
  key = jax.random.key(0, impl=prng)
  with jax.set_mesh(mesh):
    places = {"in_specs": P(), "out_specs": P("data"), "axis_names": {"data"}, "check_vma": False}
    shares = np.asarray(jax.jit(jax.shard_map(draw, **places))(key))
  assert all((shares[i] == shares[j]).mean() < 0.7 for i in range(8) for j in range(i))
  if prng == "threefry2x32":
    np.testing.assert_array_equal(shares, keep_mask(key, 0.5, (8, 6, 32))[0])


def test_a_model_with_dropout_gives_the_same_on_a_mesh():
  mesh = jax.make_mesh((4, 2), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
  rows, targets, params = tiny.rows((12, 7, 5, 9)), tiny.targets(4), tiny.params()

  def run(params, rows, targets):
    rngs = {"dropout": jax.random.key(0)}
    return PretrainingModel(tiny.CONFIG).apply({"params": params}, *rows, targets, deterministic=False, rngs=rngs)

  by_width = lambda x: NamedSharding(mesh, P(*[None] * (x.ndim - 1), "tensor" if x.shape[-1] % 2 == 0 else None))
  by_row = jax.tree.map(lambda _: NamedSharding(mesh, P("data")), (rows, targets))
  sharded = jax.jit(run, in_shardings=(jax.tree.map(by_width, params), *by_row))
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5),
    jax.jit(run)(params, rows, targets),
    sharded(params, rows, targets),
  )


def test_every_layer_and_key_has_its_own_masks():
  """With all parameters 0, but 100 as the attention's output and norms that pass it on, signs show the masks."""
  config = tiny.config(hidden_dropout=0.5, attention_dropout=0.0)
  params = jax.tree.map(jnp.zeros_like, tiny.params(config)["encoder"])
  layers = params["layers"]
  layers["attention"]["output"]["bias"] += 100
  layers["attention_norm"]["scale"] += 1
  layers["ffn_norm"]["scale"] += 1

  @jax.jit
  def masks(key):
    rows = tiny.rows((12, 12))
    states = Encoder(config).apply(
      {"params": params}, *rows, deterministic=False, every_layer=True, rngs={"dropout": key}
    )
    return states[1:] > 0

  first, other = masks(jax.random.key(0)), masks(jax.random.key(1))
  np.testing.assert_array_equal(first, masks(jax.random.key(0)))
  drawn = [*first, *other]
  for i, a in enumerate(drawn):
    for b in drawn[:i]:
      assert (a == b).mean() == pytest.approx(0.5, abs=0.12)  # 384 values


def test_attention_dropout_acts_on_the_probabilities():
  """With even attention and values of one, the context counts the keys that were kept, for each query and head."""
  config = tiny.config(attention_dropout=0.5)
  params = jax.tree.map(lambda x: jnp.zeros_like(x[0]), tiny.params(config)["encoder"]["layers"]["attention"])
  params["value"]["bias"] += 1
  params["output"]["kernel"] += jnp.eye(16)
  rngs = {"dropout": jax.random.key(0)}
  context = SelfAttention(config).apply(
    {"params": params}, jnp.zeros((2, 12, 16)), jnp.ones((2, 12), jnp.int32), False, rngs=rngs
  )
  kept = np.asarray(context * 12 / 2).reshape(2, 12, 4, 4)
  np.testing.assert_allclose(kept, kept.round(), atol=1e-5)
  np.testing.assert_allclose(kept, kept[..., :1].repeat(4, axis=-1), atol=1e-6)
  assert kept[..., 0].mean() == pytest.approx(6, abs=3 * np.sqrt(12 / 4 / 96))
  assert len({tuple(head) for head in kept[..., 0].round().astype(int).transpose(0, 2, 1).reshape(8, 12)}) == 8
