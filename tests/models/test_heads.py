"""The heads: which positions they read, the tied table, masked slots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.pretraining import PretrainingModel
from models.primitives import ACTIVATIONS
from tests.models import tiny


@pytest.fixture(scope="module")
def output():
  rows, targets = tiny.rows(), tiny.targets()
  return jax.jit(lambda p: PretrainingModel(tiny.CONFIG).apply({"params": p}, *rows, targets))(tiny.params())


def test_shapes(output):
  assert output.mlm_logits.shape == (2, 3, 50)
  assert output.pair_logits.shape == (2, 2)


def test_words_are_predicted_from_the_target_positions_alone(output):
  """By hand: gather, dense, activation, layer norm, word table, bias."""
  params = tiny.params()
  hidden = PretrainingModel(tiny.CONFIG).apply({"params": params}, *tiny.rows(), method="hidden")[-1]
  head = jax.tree.map(np.asarray, params["mlm_head"])
  x = np.asarray(hidden)[:, [1, 2, 5]] @ head["dense"]["kernel"] + head["dense"]["bias"]
  x = np.asarray(ACTIVATIONS["gelu"](jnp.asarray(x)))
  x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
  x = x * head["norm"]["scale"] + head["norm"]["bias"]
  logits = x @ np.asarray(params["encoder"]["embeddings"]["word"]["embedding"]).T + head["bias"]
  np.testing.assert_allclose(output.mlm_logits, logits, atol=1e-5)


def test_the_pair_is_decided_from_the_first_position(output):
  params = tiny.params()
  hidden = PretrainingModel(tiny.CONFIG).apply({"params": params}, *tiny.rows(), method="hidden")[-1]
  pooled = np.tanh(hidden[:, 0] @ params["pooler"]["kernel"] + params["pooler"]["bias"][None])
  logits = pooled @ params["pair_head"]["kernel"] + params["pair_head"]["bias"][None]
  np.testing.assert_allclose(output.pair_logits, logits, atol=1e-6)


def test_the_word_table_learns_from_both_its_uses():
  """Words that are read get gradient through the embedding, all words through the output."""
  rows, targets = tiny.rows((3, 3)), tiny.targets()

  def gradient(loss):
    run = lambda p: PretrainingModel(tiny.CONFIG).apply({"params": p}, *rows, targets)
    return jax.jit(jax.grad(lambda p: loss(run(p))))(tiny.params())["encoder"]["embeddings"]["word"]["embedding"]

  read = gradient(lambda output: output.pair_logits.sum())
  assert set(np.flatnonzero(np.abs(read).max(axis=1))) == set(np.unique(np.where(rows[2] > 0, rows[0], rows[0][0, 0])))
  assert np.abs(gradient(lambda output: output.mlm_logits.sum())).max(axis=1).min() > 0


def test_added_vocabulary_slots_are_never_predicted():
  config = tiny.config(vocab_multiple=16)
  rows, targets = tiny.rows(), tiny.targets()

  def loss(params):
    log_probs = jax.nn.log_softmax(PretrainingModel(config).apply({"params": params}, *rows, targets).mlm_logits)
    return -log_probs[..., 7].mean(), jnp.exp(log_probs)

  gradient, probabilities = jax.jit(jax.grad(loss, has_aux=True))(tiny.params(config))
  assert probabilities.shape[-1] == 64
  assert not probabilities[..., 50:].any()
  assert probabilities.sum(-1) == pytest.approx(1, abs=1e-5)
  assert not gradient["mlm_head"]["bias"][50:].any()
  assert not gradient["encoder"]["embeddings"]["word"]["embedding"][50:].any()


def test_gelu_is_erf_and_gelu_new_is_tanh():
  """Values at 1, by a calculator: Φ(1) = 0.841345 and its tanh form 0.841192."""
  one = jnp.ones(())
  assert ACTIVATIONS["gelu"](one) == pytest.approx(0.8413447, abs=1e-6)
  assert ACTIVATIONS["gelu_new"](one) == pytest.approx(0.8411920, abs=1e-6)
