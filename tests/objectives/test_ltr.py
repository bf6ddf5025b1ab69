"""Left-to-right language modelling: targets by hand, nothing seen from behind, what does not go together."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.head_config import HeadConfig
from models.pretraining import PretrainingModel
from models.tasks import TaskModel
from objectives import ltr, pretraining
from objectives.masking import MaskingConfig
from objectives.vocabulary import Vocabulary
from tests.models import tiny

CAUSAL = tiny.config(causal=True, hidden_dropout=0.0, attention_dropout=0.0)
SPECIAL = np.arange(tiny.CONFIG.vocab_size) < 5  # 2 is [CLS], 3 is [SEP]
ONE = np.ones(len(SPECIAL), np.int64)
VOCABULARY = Vocabulary(4, SPECIAL, ~SPECIAL, ONE, ONE)


def packed() -> dict[str, jax.Array]:
  """Two sequences in a row, and padding."""
  tokens = jnp.asarray([[2, 10, 11, 3, 12, 3, 2, 13, 14, 3, 0, 0]])
  ids = jnp.asarray([[1] * 6 + [2] * 4 + [0] * 2])
  return {"tokens": tokens, "segment_ids": jnp.zeros_like(tokens), "sequence_ids": ids, "row": jnp.arange(1)}


def test_targets_by_hand():
  found = ltr.targets(packed(), VOCABULARY)
  used = np.asarray(found.weights[0]) > 0
  assert found.positions[0][used].tolist() == [0, 1, 3, 6, 7]  # each the place before its target
  assert found.targets[0][used].tolist() == [10, 11, 12, 13, 14]
  assert found.positions.shape[1] == ltr.slots(12) == 11
  np.testing.assert_array_equal(found.tokens, packed()["tokens"])


def test_a_target_depends_on_nothing_at_or_behind_it():
  batch, params = packed(), tiny.params(CAUSAL)
  corrupted = ltr.targets(batch, VOCABULARY)

  @jax.jit
  def logits(tokens):
    rest = batch["segment_ids"], batch["sequence_ids"], corrupted.positions
    return PretrainingModel(CAUSAL).apply({"params": params}, tokens, *rest).mlm_logits[0]

  before = logits(batch["tokens"])
  for changed in range(10):
    after = logits(batch["tokens"].at[0, changed].set(20))
    differs = np.asarray(jnp.abs(after - before).max(-1) > 1e-6)
    sequence = batch["sequence_ids"][0]
    expected = [p >= changed and sequence[p] == sequence[changed] for p in range(11)]
    assert differs.tolist() == expected, changed


def test_a_task_reads_the_last_token_of_each_sequence():
  head = HeadConfig("classification", ("a", "b"))
  batch, model = packed(), TaskModel(CAUSAL, head)
  row = batch["tokens"], batch["segment_ids"], batch["sequence_ids"]
  first = jnp.asarray([[0, 6]])
  params = jax.jit(model.init)(jax.random.key(0), *row, first)["params"]
  apply = jax.jit(lambda *row: model.apply({"params": params}, *row))
  both = apply(*row, first)[0]
  for i, part in enumerate((slice(0, 6), slice(6, 10))):
    one = jnp.ones_like(row[2][:, part])
    alone = apply(*(x[:, part] for x in row[:2]), one)
    np.testing.assert_allclose(both[i], alone[0, 0], atol=1e-5)
    changed = row[0][:, part].at[0, 1].set(20)  # the second token, which [CLS] does not see
    other = apply(changed, row[1][:, part], one)
    assert jnp.abs(other - alone).max() > 1e-4


def test_the_objective_says_so():
  recipe = pretraining.PretrainingConfig(MaskingConfig(), "none", "ltr")
  objective = pretraining.make(PretrainingModel(CAUSAL), recipe, VOCABULARY)
  params = tiny.params(CAUSAL)
  terms, metrics, _ = objective.loss_fn(params, {}, packed(), jax.random.key(0))
  assert terms.keys() == {"ltr"}
  assert metrics.keys() == {"ltr_accuracy"}
  assert float(terms["ltr"][1]) == 5
  again, measured, _, _ = objective.eval_fn(params, {}, packed(), jax.random.key(1))
  np.testing.assert_array_equal(again["ltr"], terms["ltr"])  # nothing is drawn
  assert {"unigram_loss", "bits_per_byte"} <= measured.keys()
  assert not {"masked_loss", "mask_shortfall"} & measured.keys()


def test_what_does_not_go_together():
  with pytest.raises(ValueError, match=r"objective.words='ltr' with objective.pair='nsp'.*set objective.pair='none'"):
    pretraining.PretrainingConfig(MaskingConfig(), "nsp", "ltr")
  with pytest.raises(ValueError, match=r"objective.words='rtl' is unknown; use one of mlm, ltr"):
    pretraining.PretrainingConfig(MaskingConfig(), "none", "rtl")
  for causal, words, needed in ((True, "mlm", "model.causal=False"), (False, "ltr", "model.causal=True")):
    recipe = pretraining.PretrainingConfig(MaskingConfig(), "none", words)
    with pytest.raises(ValueError, match=f"needs {needed}"):
      pretraining.make(PretrainingModel(tiny.config(causal=causal)), recipe, VOCABULARY)
