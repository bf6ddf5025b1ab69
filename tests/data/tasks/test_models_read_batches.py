"""A model says the same of a sequence packed, padded and alone, on both families' rows."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from data.tasks import predictions
from data.tasks.packing import TaskSource
from models.head_config import HeadConfig
from models.tasks import TaskModel
from tests.data.tasks import small
from tests.data.tasks.test_packing import LENGTH, features_of
from tests.models import tiny, tiny_xlnet
from tests.models.test_tasks import parameters

CONFIGS = {"bert": tiny.config(max_length=LENGTH), "xlnet": tiny_xlnet.CONFIG}
INPUTS = ("tokens", "segment_ids", "sequence_ids", "cls_positions")
HEAD = HeadConfig("choice")


@pytest.mark.parametrize("family", CONFIGS)
def test_packed_padded_and_alone_are_the_same(family):
  config = dataclasses.replace(CONFIGS[family], vocab_size=small.TOKENIZERS[family]().vocab_size)
  features = features_of("choice", family, count=8)
  model, params = TaskModel(config, HEAD), parameters(config, HEAD)

  @jax.jit
  def apply(*inputs):
    return model.apply({"params": params}, *inputs)

  def logits(batch):
    return np.asarray(apply(*(jnp.asarray(batch[name]) for name in INPUTS)))

  found = []
  for pack in (True, False):
    batch = TaskSource(features, LENGTH, 8, pack=pack).batch(0)
    found.append(predictions.of_slots(batch, logits(batch)))
  assert found[0].keys() == found[1].keys() == set(range(features.num_sequences))
  for sequence in found[0]:
    np.testing.assert_allclose(found[0][sequence], found[1][sequence], atol=1e-5)
  sequence = int(features.lengths.argmin())
  own = features.slice(sequence)
  alone = {"tokens": features.tokens[own][None], "segment_ids": features.segment_ids[own][None].astype(np.int32)}
  alone |= {"sequence_ids": np.ones_like(alone["tokens"]), "cls_positions": features.cls[[sequence]][None]}
  np.testing.assert_allclose(found[0][sequence], logits(alone)[0, 0], atol=1e-5)
