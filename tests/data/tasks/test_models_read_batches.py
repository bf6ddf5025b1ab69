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
  for sequence in np.argsort(features.lengths, kind="stable")[[0, len(features.lengths) // 2, -1]].tolist():
    own = features.slice(sequence)
    alone = {"tokens": features.tokens[own][None], "segment_ids": features.segment_ids[own][None].astype(np.int32)}
    alone |= {"sequence_ids": np.ones_like(alone["tokens"]), "cls_positions": features.cls[[sequence]][None]}
    np.testing.assert_allclose(found[0][sequence], logits(alone)[0, 0], atol=1e-5)


@pytest.mark.parametrize("pack", [True, False])
def test_xlnets_summary_is_of_the_last_token_which_is_cls_and_no_memory_enters(pack):
  tokenizer = small.TOKENIZERS["xlnet"]()
  config = dataclasses.replace(CONFIGS["xlnet"], vocab_size=tokenizer.vocab_size)
  source = TaskSource(features_of("choice", "xlnet", count=8), LENGTH, 8, pack=pack)
  batch = {name: jnp.asarray(x) for name, x in source.batch(0).items()}
  model, params = TaskModel(config, HEAD), parameters(config, HEAD)
  inputs = [batch[name] for name in INPUTS]
  rows, slots = np.nonzero(batch["sequences"] >= 0)
  last = np.array(
    [np.flatnonzero(batch["sequence_ids"][row] == slot + 1)[-1] for row, slot in zip(rows, slots, strict=True)]
  )
  assert (batch["tokens"][rows, last] == tokenizer.cls_id).all()
  if not pack:
    assert (last == batch["tokens"].shape[1] - 1).all()  # padding stands before it
    assert (batch["sequence_ids"][:, 0] == 0).any()
  hidden = np.asarray(model.apply({"params": params}, *inputs[:3], method="hidden"))[rows, last]
  read = lambda x, layer: x @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])
  expected = read(np.tanh(read(hidden, params["summary"]["projection"])), params["classifier"])
  found = model.apply({"params": params}, *inputs)
  np.testing.assert_allclose(found[rows, slots], expected, atol=1e-5)
  remembering = TaskModel(dataclasses.replace(config, mem_len=4), HEAD)
  np.testing.assert_array_equal(remembering.apply({"params": params}, *inputs), found)
