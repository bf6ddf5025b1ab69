"""Permutation language modelling through the real model: leaks, factorisation, memory, numbers."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.xlnet import Embeddings
from objectives import memory, permutation, plm
from objectives.mlm import cross_entropy
from objectives.objective import ratio
from tests.objectives.plm_rows import (
  LENGTH,
  MEMORY,
  REUSE,
  SIZE,
  VOCABULARY,
  carry,
  config,
  model,
  params,
  rows,
)


def predict(lm, recipe, weights, before, batch, permuted):
  """Logits at the targets."""
  tokens, shown = plm.shown(batch, permuted, recipe.reuse_len)
  return plm.apply(lm, recipe, weights, before, batch, tokens, **shown)[0].logits


@functools.partial(jax.jit, static_argnames="recipe")
def influences(weights, batch, before, key, recipe):
  """(permuted, [batch, targets, length]): the largest gradient of each target's loss by the content's input."""
  lm = model()
  permuted = permutation.permute(key, batch, VOCABULARY, recipe)

  def losses(delta):
    def add(call, args, kwargs, context):
      embeds = isinstance(context.module, Embeddings) and context.method_name == "__call__"
      return call(*args, **kwargs) + delta if embeds else call(*args, **kwargs)

    with nn.intercept_methods(add):
      logits = predict(lm, recipe, weights, before, batch, permuted)
    return cross_entropy(logits, permuted.targets).sum(0)  # rows do not meet

  gradients = jax.jacrev(losses)(jnp.zeros((*batch["tokens"].shape, lm.config.hidden_size)))
  return permuted, jnp.abs(gradients).max(-1).swapaxes(0, 1)


@pytest.mark.parametrize("targets", permutation.TARGETS)
@pytest.mark.parametrize("memory_reset", memory.RESET)
def test_no_target_learns_from_itself_or_from_what_comes_later(targets, memory_reset):
  """Exactly zero at the target itself, at later ones and at what sees them; not zero at all that it may see: in both
  halves and directions, with a memory, through three layers."""
  recipe = config(targets=targets, memory_reset=memory_reset)
  was_target = np.zeros(LENGTH, bool)
  for seed in range(3):
    drawn = influences(params(model()), rows(8, seed), carry(8), jax.random.key(seed), recipe)
    permuted, influence = jax.tree.map(np.asarray, drawn)
    np.testing.assert_array_equal(permuted.weights, 1)
    np.testing.assert_array_equal(influence != 0, permuted.target_visible)
    positions, rank = permuted.target_positions, permuted.rank
    was_target[positions.ravel()] = True
    # Among the targets of a half, the gradient is not zero exactly at those that come before, which masked language
    # modelling could not give.
    among = np.take_along_axis(influence, positions[:, None, :].repeat(positions.shape[1], 1), 2)
    first = positions < REUSE
    same_half = first[:, None, :] == first[:, :, None]
    assert same_half.sum() == 8 * (4 * 4 + 3 * 3)
    np.testing.assert_array_equal((among != 0)[same_half], (rank[:, None, :] < rank[:, :, None])[same_half])
  assert was_target[[*range(11), 12, 13]].all()


def completions(permuted, batch, symbols: int):
  """The row's batch once for every way to fill the targets, and the tokens that stand there."""
  count = permuted.targets.shape[1]
  filled = np.stack(np.meshgrid(*[np.arange(3, 3 + symbols)] * count, indexing="ij"), -1).reshape(-1, count)
  batch = jax.tree.map(lambda x: jnp.repeat(x, len(filled), 0), batch)
  tokens = batch["tokens"].at[:, permuted.target_positions[0]].set(jnp.asarray(filled, jnp.int32))
  permuted = jax.tree.map(lambda x: jnp.repeat(x, len(filled), 0), permuted)
  return permuted._replace(targets=jnp.asarray(filled, jnp.int32)), batch | {"tokens": tokens}


@pytest.mark.parametrize("targets", permutation.TARGETS)
def test_the_conditionals_multiply_to_a_distribution(targets):
  """Over four symbols and five targets, both halves together, 1024 completions have probability one."""
  recipe, lm = config(targets=targets, num_predict=5), model()
  row = jax.tree.map(lambda x: x[1:2], rows(2))
  drawn = permutation.permute(jax.random.key(5), row, VOCABULARY, recipe)
  permuted, batch = completions(drawn, row, symbols=4)
  before = jax.tree.map(lambda x: jnp.repeat(x, len(batch["row"]), 0), carry(1))

  @jax.jit
  def of_all(weights, permuted):
    logits = predict(lm, recipe, weights, before, batch, permuted)
    possible = (jnp.arange(SIZE) >= 3) & (jnp.arange(SIZE) < 7)
    logits = jnp.where(possible[None, None, :], logits, -jnp.inf)
    return jnp.exp(-cross_entropy(logits, permuted.targets).sum(1))

  probabilities = lambda permuted: np.asarray(of_all(params(lm), permuted))
  p = probabilities(permuted)
  assert len(p) == 1024
  assert p.sum() == pytest.approx(1, abs=2e-5)
  assert p.max() > 20 * np.median(p)  # far from even
  # A target that sees itself breaks it.
  itself = permuted.target_positions[:, :, None] == jnp.arange(LENGTH)[None, None, :]
  leaking = permuted._replace(target_visible=permuted.target_visible | itself)
  assert abs(probabilities(leaking).sum() - 1) > 1e-3


@functools.cache
def compiled(recipe, lm):
  return jax.jit(plm.make(lm, recipe, VOCABULARY).eval_fn)


def evaluate(recipe, lm, batch, before):
  return compiled(recipe, lm)(params(lm), before, batch, jax.random.key(0))


def test_the_memory_holds_the_documents_of_the_halves_before():
  objective = plm.make(model(mem_len=12), config(), VOCABULARY)
  before = objective.init_carry(2)
  assert jax.tree.map(jnp.shape, before) == {"memory": (2, 3, 12, 16), "document_ids": (2, 12)}
  assert not any(x.any() for x in before.values())
  batch = rows(2) | {"document_ids": jnp.asarray([[1] * 6 + [2] * 10, [3] * 16], jnp.int32)}
  documents = memory.remember(before["document_ids"], batch, REUSE)
  np.testing.assert_array_equal(documents, [[0] * 4 + [1] * 6 + [2] * 2, [0] * 4 + [3] * 8])
  documents = memory.remember(documents, batch, REUSE)
  np.testing.assert_array_equal(documents, [[1, 1, 2, 2] + [1] * 6 + [2] * 2, [3] * 12])
  short = memory.remember(jnp.zeros((2, 3), jnp.int32), batch, REUSE)
  np.testing.assert_array_equal(short, [[1, 2, 2], [3, 3, 3]])
  visible = np.asarray(memory.visible({"document_ids": jnp.asarray([[0, 1, 2], [0, 3, 4]])}, batch))
  np.testing.assert_array_equal(visible[0, 5], [False, True, False])
  np.testing.assert_array_equal(visible[0, 6], [False, False, True])
  np.testing.assert_array_equal(visible[1], [[False, True, False]] * LENGTH)


def test_a_reset_hides_other_documents_and_never_hides_nothing():
  batch, noise, other = rows(4), carry(4), carry(4, seed=2)
  loss = lambda reset, before: float(evaluate(config(memory_reset=reset), model(), batch, before)[0]["plm"][0])
  assert loss("never", noise) != loss("never", other)
  assert loss("document", noise) == pytest.approx(loss("never", noise), rel=1e-5)  # all of one document
  for document in (0, 2):  # nothing there yet, and another document
    elsewhere = [x | {"document_ids": jnp.full((4, MEMORY), document, jnp.int32)} for x in (noise, other)]
    assert loss("document", elsewhere[0]) == loss("document", elsewhere[1])
  assert loss("never", elsewhere[0]) == loss("never", noise)


def test_a_row_may_lie_in_two_documents():
  """A boundary inside the row: tokens on one side read the memory, those on the other read none of it."""
  batch = rows(2) | {"document_ids": jnp.asarray([[1] * 5 + [2] * 11] * 2, jnp.int32)}
  visible = np.asarray(memory.visible(carry(2), batch))
  np.testing.assert_array_equal(visible.all(2), visible.any(2))
  np.testing.assert_array_equal(visible.any(2), np.arange(LENGTH)[None].repeat(2, 0) < 5)


def test_without_a_memory_nothing_is_carried():
  lm = model(mem_len=0)
  assert plm.make(lm, config(), VOCABULARY).init_carry(4) == {}
  terms, _, after, _ = evaluate(config(memory_reset="document"), lm, rows(4), {})
  assert after == {}
  assert np.isfinite(terms["plm"][0])


def test_evaluation_by_hand():
  targets = jnp.asarray([[3, 4, 3, 19, 5], [3, 3, 3, 3, 0]])
  weights = jnp.asarray([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]], jnp.float32)
  positions = jnp.asarray([[0, 1, 2, 3, 9], [1, 2, 8, 9, 0]])
  rank = jnp.asarray([[3, 0, 2, 1, 0], [0, 1, 1, 0, 0]])
  permuted = permutation.Permuted(positions, targets, weights, rank, *[jnp.zeros((2, n, 16), bool) for n in (16, 5)])
  loss = jnp.asarray([[1.0, 2, 4, 8, 16], [32, 64, 128, 256, 512]])
  values = {name: float(ratio(*value)) for name, value in plm.by_place(loss, permuted, REUSE).items()}
  # First row: 4 targets of the first half at places 3, 0, 2, 1, and one of the second. Second row: two and two.
  assert values == pytest.approx(
    {
      "plm_loss_quarter_1": (2 + 16 + 32 + 256) / 4,
      "plm_loss_quarter_2": 8,
      "plm_loss_quarter_3": (4 + 64 + 128) / 3,
      "plm_loss_quarter_4": 1,
    }
  )
  logits = jnp.zeros((2, 5, SIZE)).at[:, :, 3].set(np.log(2))  # 3 is twice as likely as any other
  terms, metrics = plm.sums("plm", logits, permuted, rows(2))
  assert float(ratio(*terms["plm"])) == pytest.approx(np.log(10.5) + 3 * np.log(2) / 9, rel=1e-5)
  assert float(ratio(*metrics["plm_accuracy"])) == pytest.approx(6 / 9)
  assert [float(x) for x in metrics["target_shortfall"]] == [1, 2]


def test_evaluation_measures_the_text_and_counts_rows_of_padding_for_nothing():
  batch, before = rows(6), carry(6)
  padded = batch | {"sequence_ids": batch["sequence_ids"].at[4:].set(0)}
  terms, metrics, _, _ = evaluate(config(), model(), padded, before)
  half = jax.tree.map(lambda x: x[:4], (batch, before))
  expected_terms, expected, _, _ = evaluate(config(), model(), *half)
  assert set(metrics) == {
    "plm_accuracy", "target_shortfall", "unigram_loss", "most_frequent_accuracy", "bits_per_byte",
    *(f"plm_loss_quarter_{i}" for i in plm.QUARTERS),
  }  # fmt: skip
  assert float(terms["plm"][1]) == 4 * 7
  for name, value in (expected | expected_terms).items():
    np.testing.assert_allclose((metrics | terms)[name], value, rtol=1e-5, err_msg=name)
  quarters = [metrics[f"plm_loss_quarter_{i}"] for i in plm.QUARTERS]
  np.testing.assert_allclose(np.sum(quarters, 0), terms["plm"], rtol=1e-5)


def test_empty_slots_rows_of_padding_and_an_empty_memory_give_numbers():
  lm = model()
  objective = plm.make(lm, config(memory_reset="document"), VOCABULARY)
  batch = rows(4)
  batch["tokens"] = batch["tokens"].at[0, :REUSE].set(0)  # a half without a candidate
  batch["sequence_ids"] = batch["sequence_ids"].at[3].set(0)

  def loss(params):
    terms, _, after = objective.loss_fn(params, objective.init_carry(4), batch, jax.random.key(0))
    return ratio(*terms["plm"]), (terms["plm"][1], after)

  (value, (weight, after)), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params(lm))
  assert float(weight) == 3 * 7 - 4
  for leaf in jax.tree.leaves((value, gradient, after)):
    assert np.isfinite(leaf).all()


def test_the_memory_is_of_the_compute_dtype_and_the_loss_is_not():
  objective = plm.make(model(dtype="bfloat16"), config(), VOCABULARY)
  before = objective.init_carry(4)
  terms, _, after = jax.eval_shape(objective.loss_fn, params(model()), before, rows(4), jax.random.key(0))
  assert before["memory"].dtype == after["memory"].dtype == jnp.bfloat16
  assert terms["plm"][0].dtype == jnp.float32


@pytest.mark.parametrize(
  ("fields", "said"),
  [
    ({"memory_reset": "step"}, "objective.memory_reset='step' is unknown; use one of never, document"),
    ({"dropout_prng": "dice"}, "objective.dropout_prng='dice' is unknown"),
    ({"num_predict": 0}, "objective.num_predict=0"),
  ],
)
def test_fields_that_make_no_sense_are_named(fields, said):
  with pytest.raises(ValueError, match=said) as raised:
    config(**fields)
  assert len(str(raised.value).splitlines()) == 1
