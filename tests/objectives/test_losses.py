"""Losses and metrics as sums and weights, against arithmetic done by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from objectives import mlm, objective, pair
from objectives.masking import Corrupted
from objectives.vocabulary import Vocabulary


def test_cross_entropy_is_minus_the_log_of_the_softmax():
  logits = np.random.default_rng(0).standard_normal((3, 4, 7)).astype(np.float32)
  labels = np.random.default_rng(1).integers(0, 7, (3, 4))
  p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  expected = -np.log(np.take_along_axis(p, labels[..., None], -1)[..., 0])
  np.testing.assert_allclose(mlm.cross_entropy(jnp.asarray(logits), jnp.asarray(labels)), expected, rtol=1e-5)


def test_the_gradient_of_cross_entropy_is_softmax_minus_one_hot():
  logits, labels = jnp.asarray([[1.0, 2.0, 3.0]]), jnp.asarray([1])
  gradient = jax.grad(lambda x: mlm.cross_entropy(x, labels).sum())(logits)
  np.testing.assert_allclose(gradient, jax.nn.softmax(logits) - jnp.asarray([[0.0, 1.0, 0.0]]), atol=1e-6)


def corrupted(targets, weights) -> Corrupted:
  targets, weights = jnp.asarray(targets), jnp.asarray(weights, jnp.float32)
  return Corrupted(jnp.zeros((2, 9), jnp.int32), jnp.zeros_like(targets), targets, weights, jnp.asarray([0.0, 2.0]))


def test_unused_slots_count_for_nothing():
  logits = jnp.asarray([[[4.0, 0, 0], [0, 0, 0]], [[0, 0, 9.0], [9.0, 0, 0]]])
  terms, metrics = mlm.sums(logits, corrupted([[0, 0], [2, 1]], [[1, 0], [1, 0]]))
  total, weight = terms["mlm"]
  assert float(weight) == 2
  assert float(total) == pytest.approx(np.log(1 + 2 * np.exp(-4)) + np.log(1 + 2 * np.exp(-9)), rel=1e-4)
  assert [float(x) for x in metrics["mlm_accuracy"]] == [2, 2]
  assert [float(x) for x in metrics["mask_shortfall"]] == [2, 2]  # tokens, rows


def test_evaluation_by_hand():
  special = np.array([True, False, False, False])
  vocabulary = Vocabulary(0, special, ~special, np.array([1, 2, 3, 4]), np.array([90, 5, 2, 0]))
  targets = corrupted([[1, 2], [1, 3]], [[1, 1], [1, 0]])
  # Of the three targets the first is hidden by [MASK] (0), the others are shown as they are.
  targets = targets._replace(tokens=jnp.asarray([[0, 2], [1, 0]]), positions=jnp.asarray([[0, 1], [0, 1]]))
  logits = jnp.log(jnp.asarray([[[0.1, 0.2, 0.4, 0.3], [0, 0, 1, 0]], [[0, 1, 0, 0], [0, 0, 0, 1]]]) + 1e-9)
  mean = {name: float(objective.ratio(*value)) for name, value in mlm.evaluation(logits, targets, vocabulary).items()}
  # Add-one over the three ordinary ids: 6/10, 3/10, 1/10.
  assert mean["unigram_loss"] == pytest.approx(-(2 * np.log(0.6) + np.log(0.3)) / 3, rel=1e-5)
  assert mean["masked_unigram_loss"] == pytest.approx(-np.log(0.6), rel=1e-5)
  assert mean["most_frequent_accuracy"] == pytest.approx(2 / 3)
  assert mean["masked_loss"] == pytest.approx(-np.log(0.2), rel=1e-5)
  assert mean["masked_accuracy"] == 0
  assert mean["bits_per_byte"] == pytest.approx(-np.log2(0.2) / (2 + 3 + 2), rel=1e-5)
  unmasked = mlm.evaluation(logits, targets, vocabulary, hides=False)  # nothing is hidden by [MASK]: 0 would be no loss
  assert unmasked.keys() == {"unigram_loss", "most_frequent_accuracy", "bits_per_byte"}


def test_copying_what_is_shown_earns_nothing_on_what_is_hidden():
  """A model that says what it sees: right on kept targets, and blind on hidden ones."""
  targets = corrupted([[1, 2], [1, 3]], [[1, 1], [1, 1]])
  targets = targets._replace(tokens=jnp.asarray([[0, 2], [0, 3]]), positions=jnp.asarray([[0, 1], [0, 1]]))
  special = np.array([True, False, False, False])
  vocabulary = Vocabulary(0, special, ~special, np.ones(4, int), np.ones(4, int))
  copying = 9.0 * jax.nn.one_hot(targets.tokens, 4)
  _, metrics = mlm.sums(copying, targets)
  assert float(objective.ratio(*metrics["mlm_accuracy"])) == 0.5
  assert float(objective.ratio(*mlm.evaluation(copying, targets, vocabulary)["masked_accuracy"])) == 0


def test_rows_of_padding_are_no_pairs():
  batch = {"pair_label": jnp.asarray([0, 1, 0]), "sequence_ids": jnp.asarray([[1, 1], [1, 0], [0, 0]])}
  logits = jnp.asarray([[5.0, 0], [5.0, 0], [0, 5.0]])
  terms, metrics = pair.sums("nsp", logits, batch)
  assert float(terms["nsp"][1]) == 2
  assert float(objective.ratio(*metrics["nsp_accuracy"])) == 0.5
  assert float(objective.ratio(*metrics["nsp_positive"])) == 0.5


def test_a_term_without_targets_is_zero_and_so_is_its_gradient():
  loss = lambda x: objective.mean_loss({"mlm": (x * 0, jnp.float32(0))})
  assert float(loss(jnp.float32(3))) == 0
  assert float(jax.grad(loss)(jnp.float32(3))) == 0
