"""Next-sentence prediction beside an XLNet's words: what its head reads, and that the words do not notice it."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.xlnet import Embeddings, PermutationLM
from objectives import dae, mlm, permutation, plm
from objectives.objective import ratio
from tests.objectives import plm_rows
from tests.objectives.plm_rows import LENGTH, VOCABULARY, carry, config, halves, model, rows

KEY = jax.random.key(7)
MAKE = {"plm": plm.make, "dae": dae.make}


def with_head(**fields) -> PermutationLM:
  return PermutationLM(model(**fields).config, pair=True)


@functools.cache
def params(lm: PermutationLM):
  """Those of the model without the head, and the head's."""
  rng = np.random.default_rng(1)
  shapes = {"pooler": {"kernel": (16, 16), "bias": (16,)}, "pair_head": {"kernel": (16, 2), "bias": (2,)}}
  own = jax.tree.map(lambda s: rng.normal(0, 0.4, s).astype(np.float32), shapes, is_leaf=lambda x: isinstance(x, tuple))
  return plm_rows.params(PermutationLM(lm.config)) | own


@functools.cache
def compiled(words: str, pair: str):
  lm = with_head() if pair == "nsp" else model()
  return jax.jit(MAKE[words](lm, config(words=words, pair=pair), VOCABULARY).eval_fn)


def padded(count: int) -> dict:
  batch = rows(count)
  return batch | {"sequence_ids": batch["sequence_ids"].at[-1].set(0)}


def test_the_head_has_the_only_parameters_that_are_new():
  lm = with_head()
  objective = plm.make(lm, config(pair="nsp"), VOCABULARY)
  without = plm.make(model(), config(), VOCABULARY)
  shapes, bare = (jax.eval_shape(o.init, KEY) for o in (objective, without))
  assert shapes.keys() - bare.keys() == {"pooler", "pair_head"}
  assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, params(lm))
  assert {name: shapes[name] for name in bare} == bare


@pytest.mark.parametrize("words", MAKE)
def test_the_words_and_the_memory_are_what_they_are_without_the_head(words):
  batch, before = padded(5), carry(5)
  one = compiled(words, "none")(plm_rows.params(model()), before, batch, KEY)
  both = compiled(words, "nsp")(params(with_head()), before, batch, KEY)
  assert both[0].keys() - one[0].keys() == {"nsp"}
  assert both[1].keys() - one[1].keys() == {"nsp_accuracy", "nsp_positive"}
  for ours, theirs in zip(both[:2], one[:2], strict=True):
    for name, value in theirs.items():
      np.testing.assert_allclose(ours[name], value, rtol=1e-5, err_msg=name)
  jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-5), both[2], one[2])


@pytest.mark.parametrize("words", MAKE)
def test_the_pair_is_told_by_the_content_of_cls(words):
  """By hand: every position of the last layer, tanh(dense(·)) of the last one, and the head; rows of padding count for
  nothing."""
  lm, batch, before = with_head(), padded(5), carry(5)
  recipe, draw_key = config(words=words, pair="nsp"), jax.random.split(KEY)[0]

  def by_hand(weights):
    if words == "plm":
      permuted = permutation.permute(draw_key, batch, VOCABULARY, recipe)
      tokens, seen = batch["tokens"], permuted.visible
    else:
      corrupted = dae.corrupt(draw_key, batch, VOCABULARY, recipe)
      tokens = corrupted.tokens
      seen = (batch["sequence_ids"] > 0)[:, None] & halves(tokens)
    options = {"visible": seen, "memory": before["memory"], "backward": batch["backward"]}
    output = lm.apply({"params": weights}, tokens, batch["segment_ids"], **options, method="hidden")
    dense = lambda name, x: x @ weights[name]["kernel"] + weights[name]["bias"][None]
    logits = dense("pair_head", jnp.tanh(dense("pooler", output.content[:, -1])))
    loss = mlm.cross_entropy(logits, batch["pair_label"])
    return loss[:4].sum(), (logits.argmax(-1) == batch["pair_label"])[:4].sum()

  loss, correct = jax.jit(by_hand)(params(lm))
  terms, metrics, _, _ = compiled(words, "nsp")(params(lm), before, batch, KEY)
  assert float(terms["nsp"][0]) == pytest.approx(float(loss), rel=1e-5)
  assert float(terms["nsp"][1]) == 4
  assert float(metrics["nsp_accuracy"][0]) == correct
  assert [float(x) for x in metrics["nsp_positive"]] == [int(batch["pair_label"][:4].sum()), 4]


def test_no_target_learns_from_itself_with_the_head_on():
  """The gradient of a target's loss by the content's input is zero at the target, and is not where it may look."""
  lm, recipe, batch = with_head(), config(pair="nsp"), rows(4)
  permuted = jax.jit(lambda: permutation.permute(KEY, batch, VOCABULARY, recipe))()
  tokens, shown = plm.shown(batch, permuted, recipe.reuse_len)

  def losses(delta, weights):
    def add(call, args, kwargs, context):
      embeds = isinstance(context.module, Embeddings) and context.method_name == "__call__"
      return call(*args, **kwargs) + delta if embeds else call(*args, **kwargs)

    with nn.intercept_methods(add):
      output, _ = plm.apply(lm, recipe, weights, carry(4), batch, tokens, **shown)
    return mlm.cross_entropy(output.logits, permuted.targets).sum(0)

  gradients = jax.jit(jax.jacrev(losses))(jnp.zeros((4, LENGTH, 16)), params(lm))  # [targets, batch, length, width]
  influence = np.asarray(jnp.abs(gradients).max(-1)).swapaxes(0, 1)
  np.testing.assert_array_equal(influence != 0, permuted.target_visible)
  assert not np.take_along_axis(influence, np.asarray(permuted.target_positions)[:, :, None], 2).any()


@pytest.mark.parametrize("words", MAKE)
def test_a_step_gives_numbers_and_moves_the_head(words):
  lm, batch = with_head(num_layers=1), padded(4)
  objective = MAKE[words](lm, config(words=words, pair="nsp"), VOCABULARY)

  def loss(params):
    terms, _, after = objective.loss_fn(params, objective.init_carry(4), batch, KEY)
    return sum(ratio(*term) for term in terms.values()), after

  (value, after), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params(lm))
  assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((value, after, gradient)))
  assert np.abs(gradient["pooler"]["kernel"]).max() > 0
  assert np.abs(gradient["pair_head"]["kernel"]).max() > 0


def test_a_model_without_the_head_is_refused():
  with pytest.raises(ValueError, match=r"objective.pair='nsp' and a model with pair=False do not belong together"):
    plm.make(model(), config(pair="nsp"), VOCABULARY)
  with pytest.raises(ValueError, match=r"objective.pair='sop' is unknown; use one of none, nsp"):
    config(pair="sop")
