"""XLNet's pretraining runs, of any words and pairs, before anything is compiled."""

import re

import jax
import pytest

from configs import quickstart
from models.flops import xlnet_flops
from models.xlnet_config import XLNetConfig
from parts import pretraining


def config(**fields):
  c = quickstart.get_config("xlnet")
  c.model.vocab_size = 100
  c.update_from_flattened_dict({name.replace("__", "."): value for name, value in fields.items()})
  return c


@pytest.mark.parametrize(("words", "pair"), [("plm", "none"), ("dae", "none"), ("plm", "nsp"), ("dae", "nsp")])
def test_a_run_of_any_words_and_pairs(words, pair):
  c = config(objective__words=words, objective__pair=pair)
  plan = pretraining.plan(c)
  (shapes,), _ = plan.shapes(plan.stages[0])
  assert shapes["pair_label"].shape == (c.batch_size,)
  params = jax.eval_shape(plan.objective.init, jax.random.key(0))
  assert ("pair_head" in params) == ("pooler" in params) == (pair == "nsp")
  carry = plan.objective.init_carry(c.batch_size)
  batch = shapes | {"row": jax.ShapeDtypeStruct((c.batch_size,), "int32")}
  terms, _, after = jax.eval_shape(plan.objective.loss_fn, params, carry, batch, jax.random.key(0))
  assert set(terms) == {words} | ({"nsp"} if pair == "nsp" else set())
  assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), carry)
  model = XLNetConfig(**c.model)
  one = {"query": words == "plm", "pair": pair == "nsp"}
  expected = 3 * xlnet_flops(model, c.batch_size, c.length, c.objective.num_predict, **one)
  assert plan.flops(c.batch_size, c.length) == expected


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_pairs_of_one_kind_are_refused(rate):
  said = f"config.objective.pair='nsp' with config.data.random_rate={rate}: segments of one kind teach nothing"
  with pytest.raises(ValueError, match=re.escape(said)):
    pretraining.plan(config(objective__pair="nsp", data__random_rate=rate))
  pretraining.plan(config(data__random_rate=rate))
