"""The denoising auto-encoder on XLNet's rows: its targets, what the model sees of them, its memory and its numbers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from objectives import dae, mlm, permutation
from objectives.objective import ratio
from tests.objectives.plm_rows import MEMORY, REUSE, SIZE, VOCABULARY, carry, config, halves, model, params, rows

KEY = jax.random.key(7)
recipe = functools.partial(config, words="dae")


@functools.partial(jax.jit, static_argnames="fields")
def corrupt(key, batch, fields=()):
  return dae.corrupt(key, batch, VOCABULARY, recipe(**dict(fields)))


@functools.cache
def compiled(fields=(), **model_fields):
  return jax.jit(dae.make(model(**dict(model_fields)), recipe(**dict(fields)), VOCABULARY).eval_fn)


@pytest.mark.parametrize("targets", permutation.TARGETS)
def test_targets_are_those_of_permutation_language_modelling(targets):
  batch = rows(16)
  batch["sequence_ids"] = batch["sequence_ids"].at[15].set(0)
  corrupted = corrupt(KEY, batch, (("targets", targets),))
  permuted = jax.jit(lambda: permutation.permute(KEY, batch, VOCABULARY, config(targets=targets)))()
  np.testing.assert_array_equal(corrupted.positions, permuted.target_positions)
  np.testing.assert_array_equal(corrupted.targets, permuted.targets)
  np.testing.assert_array_equal(corrupted.weights, permuted.weights)
  np.testing.assert_array_equal(corrupted.shortfall, [0] * 15 + [7])
  changed = np.asarray(corrupted.tokens != batch["tokens"])
  is_target = np.zeros_like(changed)
  np.put_along_axis(is_target[:15], np.asarray(corrupted.positions)[:15], True, 1)
  assert not (changed & ~is_target).any()


def test_targets_are_replaced_as_bert_does_whatever_stands_beside_a_row():
  batch = rows(1500)
  corrupted = corrupt(KEY, batch)
  shown = np.take_along_axis(np.asarray(corrupted.tokens), np.asarray(corrupted.positions), 1)
  hidden, kept = shown == VOCABULARY.mask_id, shown == np.asarray(corrupted.targets)
  same = 1 / 17  # of the random tokens: the target itself
  count = shown.size
  for share, expected in ((hidden, 0.8), (kept, 0.1 + 0.1 * same), (~hidden & ~kept, 0.1 - 0.1 * same)):
    assert abs(share.sum() - expected * count) < 4.5 * np.sqrt(count * expected * (1 - expected))
  assert not VOCABULARY.special[shown[~hidden]].any()
  part = corrupt(KEY, jax.tree.map(lambda x: x[40:48], batch))
  for whole, some in zip(corrupted, part, strict=True):
    np.testing.assert_array_equal(whole[40:48], some)


@pytest.mark.parametrize("reset", ["never", "document"])
def test_the_loss_is_that_of_a_masked_row_read_by_the_content_stream(reset):
  """By hand: the row with its targets replaced, its halves and the memory seen, every position of the last layer
  computed, logits at the targets."""
  lm, batch, before = model(), rows(4), carry(4)
  batch["document_ids"] = batch["document_ids"].at[:, 5:].set(2)
  key = jax.random.split(KEY)[0]
  corrupted = corrupt(key, batch)

  def by_hand(weights):
    seen = batch["document_ids"][:, :, None] == before["document_ids"][:, None]
    output = lm.apply(
      {"params": weights},
      corrupted.tokens,
      batch["segment_ids"],
      visible=halves(corrupted.tokens),
      memory=before["memory"],
      memory_visible=seen if reset == "document" else None,
      backward=batch["backward"],
      reuse_len=REUSE,
      every_layer=True,
      method="hidden",
    )
    word = weights["xlnet"]["embeddings"]["word"]["embedding"]
    logits = output.content[-1] @ word.T + weights["lm_head"]["bias"][None, None]
    at = jnp.take_along_axis(logits, corrupted.positions[:, :, None], 1)
    return mlm.cross_entropy(at, corrupted.targets).sum(), output

  loss, output = jax.jit(by_hand)(params(lm))
  terms, metrics, after, _ = compiled((("memory_reset", reset),))(params(lm), before, batch, KEY)
  assert set(terms) == {"dae"}
  assert float(terms["dae"][0]) == pytest.approx(float(loss), rel=1e-5)
  assert float(terms["dae"][1]) == 4 * 7
  np.testing.assert_allclose(after["memory"], output.memory, atol=1e-5)
  inputs = jnp.moveaxis(output.content[:-1], 0, 1)  # of the layers, of the corrupted row
  np.testing.assert_allclose(after["memory"], inputs[:, :, :REUSE], atol=1e-5)
  np.testing.assert_array_equal(after["document_ids"], batch["document_ids"][:, :REUSE])
  assert set(metrics) == {
    "dae_accuracy", "target_shortfall", "masked_loss", "masked_accuracy", "masked_unigram_loss", "unigram_loss",
    "most_frequent_accuracy", "bits_per_byte",
  }  # fmt: skip


def test_what_the_model_sees_says_nothing_of_a_target_that_is_hidden():
  """Other words at the targets give the same row."""
  batch, fields = rows(8), (("mask", 1.0), ("random", 0.0))
  one = corrupt(KEY, batch, fields)
  targets = np.asarray(one.targets)
  others = np.asarray(batch["tokens"]).copy()  # three ids on, a word begins or goes on as before
  np.put_along_axis(others, np.asarray(one.positions), np.where(targets + 3 < SIZE, targets + 3, targets - 3), 1)
  other = corrupt(KEY, batch | {"tokens": jnp.asarray(others)}, fields)
  np.testing.assert_array_equal(other.tokens, one.tokens)
  np.testing.assert_array_equal(other.positions, one.positions)
  assert (np.asarray(other.targets) != targets).all()
  tokens, shown = dae.shown(batch, one, REUSE)
  assert tokens is one.tokens
  np.testing.assert_array_equal(shown["visible"], halves(tokens))


def test_the_memory_knows_nothing_of_what_the_next_row_hides():
  """What is kept of a row is the same whatever stands in its second half, where the next row's targets are."""
  lm, batch = model(), rows(4)
  fields = (("mask", 0.0), ("random", 0.0))  # so that all of it is shown
  change = lambda where: batch | {"tokens": batch["tokens"].at[:, where].set(batch["tokens"][:, where] // 2 + 8)}
  kept = lambda rows: compiled(fields)(params(lm), carry(4), rows, KEY)[2]["memory"]
  np.testing.assert_array_equal(kept(batch), kept(change(REUSE + 1)))
  assert np.abs(kept(batch) - kept(change(REUSE - 1))).max() > 1e-3


def test_rows_of_padding_count_for_nothing_and_a_step_gives_numbers():
  lm, batch = model(num_layers=1), rows(4)
  batch["sequence_ids"] = batch["sequence_ids"].at[3].set(0)
  objective = dae.make(lm, recipe(memory_reset="document"), VOCABULARY)

  def loss(params):
    terms, metrics, after = objective.loss_fn(params, objective.init_carry(4), batch, KEY)
    return ratio(*terms["dae"]), (terms["dae"][1], metrics, after)

  (value, (weight, metrics, after)), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params(lm))
  assert float(weight) == 3 * 7
  assert [float(x) for x in metrics["target_shortfall"]] == [0, 3]
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((value, gradient, after)))
  assert after["memory"].shape == (4, 1, MEMORY, 16)
  assert not gradient["xlnet"]["mask_embedding"].any()  # of the query stream, which there is none of


@pytest.mark.parametrize(
  ("fields", "said"),
  [
    ({"words": "mlm"}, "objective.words='mlm' is unknown; use one of plm, dae"),
    ({"mask": 0.95}, "objective: mask=0.95 and random=0.1 must be shares that add up to 1 at most"),
    ({"random": -0.1}, "objective: mask=0.8 and random=-0.1 must be shares"),
  ],
)
def test_fields_that_make_no_sense_are_named(fields, said):
  with pytest.raises(ValueError, match=said):
    config(**fields)


def test_another_objectives_recipe_is_refused():
  with pytest.raises(ValueError, match=r"objective.words='plm' is made by objectives.plm.make"):
    dae.make(model(), config(), VOCABULARY)
