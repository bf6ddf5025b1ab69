"""Permutation language modelling in training: what memory is good for, meshes and micro-batches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from models.xlnet import PermutationLM
from models.xlnet_config import XLNetConfig
from objectives import plm
from objectives.objective import mean_loss
from objectives.vocabulary import Vocabulary
from tests.objectives.plm_rows import VOCABULARY, config, model, rows
from training import optimizer, programs, sharding
from training.optimizer import OptimizerConfig
from training.schedule import ScheduleConfig
from training.state import create

pytestmark = pytest.mark.slow  # compiles for minutes: `make slow`

SYMBOLS, DISTANCE, ROWS = 8, 16, 32


def losses(mem_len: int, steps: int) -> np.ndarray:
  """The loss of every step on text in which each 16 random symbols are said twice.

  A row is 16 tokens long and moves on by 8, so what a token copies never lies in its row, and always in a memory of 16.
  Of four steps, one has rows of copies alone, two have half of them, and one has none. Every other row is backward.
  """
  text = np.random.default_rng(0).integers(3, 3 + SYMBOLS, (ROWS, steps // 4 + 1, 1, DISTANCE)).repeat(2, 2)
  text = jnp.asarray(text.reshape(ROWS, -1), jnp.int32)
  size = 3 + SYMBOLS
  special, ones = np.arange(size) < 3, np.ones(size, int)
  vocabulary = Vocabulary(0, special, ones > 0, ones, ones, special)
  still = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "ffn_dropout": 0.0}
  lm = PermutationLM(XLNetConfig(size, 32, 2, 2, 64, mem_len=mem_len, initializer_range=0.1, **still))
  recipe = plm.PLMConfig(num_predict=8, reuse_len=DISTANCE // 2, perm_size=DISTANCE // 2, max_span=3, alpha=1)
  objective, tx = plm.make(lm, recipe, vocabulary), optax.adam(3e-3)

  def step(state, i):
    params, opt_state, carry = state
    tokens = jax.lax.dynamic_slice_in_dim(text, i * recipe.reuse_len, DISTANCE, axis=1)
    same = jnp.ones_like(tokens)
    number = jnp.arange(ROWS)
    batch = {"tokens": tokens, "segment_ids": 0 * same, "sequence_ids": same, "document_ids": same}
    batch |= {"backward": number % 2 == 1, "row": number}

    def loss(params):
      terms, _, after = objective.loss_fn(params, carry, batch, jax.random.fold_in(jax.random.key(1), i))
      return mean_loss(terms), after

    (value, carry), gradient = jax.value_and_grad(loss, has_aux=True)(params)
    updates, opt_state = tx.update(gradient, opt_state)
    return (optax.apply_updates(params, updates), opt_state, carry), value

  params = objective.init(jax.random.key(0))
  run = jax.jit(functools.partial(jax.lax.scan, step))
  return np.asarray(run((params, tx.init(params), objective.init_carry(ROWS)), jnp.arange(steps))[1])


def test_what_only_the_memory_reaches_is_copied_with_memory_and_not_without():
  chance = np.log(SYMBOLS)
  with_memory, without = (losses(mem_len, 300)[-100:].reshape(25, 4).mean(0) for mem_len in (DISTANCE, 0))
  assert with_memory[2] < 0.4 * chance  # rows of copies
  assert with_memory[0] > chance  # rows of anything
  assert without.min() > 0.97 * chance


def train(steps: int, *, data: int = 1, fsdp: int = 1, accumulate: int = 1, **fields) -> tuple[list, dict]:
  """(losses and metrics of each step, carry after the last) of the tiny model on a mesh."""
  objective = plm.make(model(**fields), config(memory_reset="document"), VOCABULARY)
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(1e-2, 0)), steps=10)
  mesh = sharding.make_mesh(sharding.MeshConfig(data, fsdp), jax.devices()[: data * fsdp])
  batches = []
  for seed in range(steps):
    batch = rows(8, seed)
    del batch["row"]
    batch["sequence_ids"] = batch["sequence_ids"].at[5].set(0)  # so that weights are uneven
    batches.append(jax.tree.map(np.asarray, batch))
  shapes = [programs.shapes_of(batches[0], 8)]
  compiled = programs.compile_stage(objective, tx, shapes, 8, mesh, seed=0, accumulate=accumulate)
  state, numbers = create(objective, tx, 8, 0, mesh), []
  for batch in batches:
    state, values = compiled.train(state, sharding.put_batch(batch, mesh))
    numbers.append({name: float(value) for name, value in values.items()})
  return numbers, jax.device_get(state.carry)


def assert_close(one, other) -> None:
  jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-5), one, other)


def test_meshes_agree_with_dropout_on():
  one = train(3)
  assert_close(train(3, data=2, fsdp=2), one)
  assert one[0][0]["plm_loss"] == pytest.approx(one[0][0]["loss"])
  assert np.abs(one[1]["memory"]).max() > 0.1


def test_micro_batches_equal_the_whole_batch():
  still = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "ffn_dropout": 0.0}
  assert_close(train(3, accumulate=4, **still), train(3, **still))
