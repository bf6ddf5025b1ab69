"""How the encoder is run changes nothing; who sees whom; precision."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.embeddings import positions_of
from models.encoder import Encoder, EncoderLayer
from models.pretraining import PretrainingModel
from models.primitives import layer_norm
from tests.models import tiny


def encode(config, params, rows, **options):
  options.setdefault("deterministic", True)
  return jax.jit(lambda p: Encoder(config).apply({"params": p["encoder"]}, *rows, **options))(params)


def test_stacked_layers_equal_separate_ones():
  params, rows = tiny.params(), tiny.rows()
  states = encode(tiny.CONFIG, params, rows, every_layer=True)
  assert states.shape == (4, 2, tiny.LENGTH, 16)
  hidden, sequence_ids = states[0], rows[2]
  for i in range(3):
    layer = jax.tree.map(lambda x, i=i: x[i], params["encoder"]["layers"])
    hidden = EncoderLayer(tiny.CONFIG).apply({"params": layer}, hidden, sequence_ids, True)
    np.testing.assert_allclose(states[i + 1], hidden, atol=1e-6)
  np.testing.assert_array_equal(states[-1], encode(tiny.CONFIG, params, rows))


def loss_and_gradient(config):
  """With dropout."""
  params, rows, rngs = tiny.params(), tiny.rows(), {"dropout": jax.random.key(3)}

  def loss(params):
    hidden = Encoder(config).apply({"params": params["encoder"]}, *rows, deterministic=False, rngs=rngs)
    return jnp.square(hidden).mean()

  return jax.jit(jax.value_and_grad(loss))(params)


@pytest.fixture(scope="module")
def plain():
  return loss_and_gradient(tiny.CONFIG)


@pytest.mark.parametrize("fields", [{"unroll": 2}, {"remat": "full"}, {"remat": "dots", "unroll": 0}])
def test_unroll_and_remat_change_no_value(plain, fields):
  """Nor the dropout masks."""
  other = loss_and_gradient(tiny.config(**fields))
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6, rtol=1e-5), plain, other)


def test_packed_sequences_equal_separate_rows():
  tokens, segment_ids, _ = tiny.rows((5, 6), seed=1)
  separate = encode(tiny.CONFIG, tiny.params(), tiny.rows((5, 6), seed=1))
  pack = lambda x: jnp.concatenate([x[0, :5], x[1, :6], jnp.zeros(1, jnp.int32)])[None]
  sequence_ids = jnp.asarray([[1] * 5 + [2] * 6 + [0]], jnp.int32)
  packed = encode(tiny.CONFIG, tiny.params(), (pack(tokens), pack(segment_ids), sequence_ids))
  np.testing.assert_allclose(packed[0, :5], separate[0, :5], atol=1e-6)
  np.testing.assert_allclose(packed[0, 5:11], separate[1, :6], atol=1e-6)


def test_positions_count_within_each_sequence():
  sequence_ids = jnp.asarray([[1, 1, 1, 2, 2, 0, 0], [1, 2, 3, 3, 3, 3, 3]], jnp.int32)
  assert positions_of(sequence_ids).tolist() == [[0, 1, 2, 0, 1, 0, 1], [0, 0, 0, 1, 2, 3, 4]]


def test_padding_changes_nothing_real():
  tokens, segment_ids, sequence_ids = tiny.rows((7,))
  other = jnp.where(sequence_ids > 0, tokens, 13)
  real, padding = sequence_ids[0] > 0, sequence_ids[0] == 0
  before = encode(tiny.CONFIG, tiny.params(), (tokens, segment_ids, sequence_ids))
  after = encode(tiny.CONFIG, tiny.params(), (other, segment_ids, sequence_ids))
  short = encode(tiny.CONFIG, tiny.params(), (tokens[:, :7], segment_ids[:, :7], sequence_ids[:, :7]))
  np.testing.assert_array_equal(before[0, real], after[0, real])
  np.testing.assert_allclose(before[0, real], short[0], atol=1e-6)
  assert abs(before - after)[0, padding].max() > 1e-3


def test_gradients_do_not_cross_sequences():
  """The word vectors of one sequence get no gradient, not even a small one, from the other's output."""
  tokens = jnp.asarray([[1, 2, 3, 4, 5, 21, 22, 23, 24, 0, 0, 0]], jnp.int32)
  sequence_ids = jnp.asarray([[1] * 5 + [2] * 4 + [0] * 3], jnp.int32)

  def loss(params):
    return Encoder(tiny.CONFIG).apply({"params": params["encoder"]}, tokens, tokens * 0, sequence_ids)[0, 5:9, 0].sum()

  gradient = jax.jit(jax.grad(loss))(tiny.params())["encoder"]["embeddings"]["word"]["embedding"]
  reached = np.flatnonzero(np.abs(gradient).max(axis=1))
  assert reached.tolist() == [21, 22, 23, 24]


def test_a_row_longer_than_the_position_table_is_refused():
  row = jnp.ones((1, 17), jnp.int32)
  with pytest.raises(ValueError, match=r"rows of 17 tokens exceed model\.max_length=16"):
    Encoder(tiny.CONFIG).apply({"params": tiny.params()["encoder"]}, row, row, row)


def test_bfloat16_is_close_to_float32():
  params, rows, targets = tiny.params(), tiny.rows(), tiny.targets()
  rngs = {"dropout": jax.random.key(0)}
  outputs, gradients = [], []
  for dtype in ("float32", "bfloat16"):
    model = PretrainingModel(tiny.config(dtype=dtype))

    def loss(params, model=model):
      output = model.apply({"params": params}, *rows, targets, deterministic=False, rngs=rngs)
      return jax.nn.logsumexp(output.mlm_logits, axis=-1).mean() + output.pair_logits[:, 0].mean(), output

    gradient, output = jax.jit(jax.grad(loss, has_aux=True))(params)
    outputs.append(output)
    gradients.append(gradient)
  for name in ("mlm_logits", "pair_logits"):
    exact, rounded = (getattr(output, name) for output in outputs)
    assert rounded.dtype == jnp.float32
    assert 0 < np.abs(exact - rounded).max() < 0.03 * np.abs(exact).max()
  assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(gradients[1]))
  norms = [np.sqrt(sum(np.square(leaf).sum() for leaf in jax.tree.leaves(gradient))) for gradient in gradients]
  assert norms[1] == pytest.approx(norms[0], rel=0.03)


def test_bfloat16_hidden_states_are_bfloat16():
  assert encode(tiny.config(dtype="bfloat16"), tiny.params(), tiny.rows()).dtype == jnp.bfloat16


def test_layer_norm_of_nearly_equal_values():
  """Two-pass variance: values of 1000 ± 0.01 have one; E[x²] - E[x]² in float32 has none left."""
  x = jnp.asarray([[1000.0, 1000.01, 1000.02, 1000.03]])
  scale = {"params": {"scale": jnp.ones(4), "bias": jnp.zeros(4)}}
  normed = layer_norm(dataclasses.replace(tiny.CONFIG, hidden_size=4, num_heads=1)).apply(scale, x)
  exact = np.asarray(x, np.float64)
  np.testing.assert_allclose(normed, (exact - exact.mean()) / exact.std(), atol=1e-3)
