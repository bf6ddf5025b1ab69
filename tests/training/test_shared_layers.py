"""Shared layers are stored once: in the parameters, in the optimizer's state, on disk."""

import jax
import jax.numpy as jnp
import pytest

from models.config import ALBERT_SIZES, EncoderConfig
from models.pretraining import PretrainingModel
from training import optimizer
from training.checkpoint import Checkpoints
from training.optimizer import OptimizerConfig
from training.schedule import ScheduleConfig
from training.state import TrainState


def albert_base():
  """Random parameters of ALBERT-base with both heads."""
  row = jnp.ones((1, 8), jnp.int32)
  model = PretrainingModel(EncoderConfig(30_000, **ALBERT_SIZES["base"]))
  return jax.jit(model.init)(jax.random.key(0), row, row, row, row[:, :1])["params"]


@pytest.mark.parametrize("name", ["albert_lamb", "bert_adamw", "adamw", "lamb"])
def test_the_optimizer_holds_two_moments_of_one_copy(name):
  params = jax.eval_shape(albert_base)
  tx, _ = optimizer.make(OptimizerConfig(ScheduleConfig(1e-3, 0, "constant"), name), steps=10)
  count = lambda tree: sum(x.size for x in jax.tree.leaves(tree) if x.ndim)
  assert count(params) == 11_813_810
  assert count(jax.eval_shape(tx.init, params)) == 2 * 11_813_810


def test_the_weights_of_a_checkpoint_of_albert_base_take_less_than_60_mb(tmp_path):
  checkpoints = Checkpoints(str(tmp_path), keep_last=1, keep_best=0)
  checkpoints.save(TrainState(jnp.int32(0), albert_base(), (), {}), None)
  checkpoints.close()
  files = [path for path in (tmp_path / "checkpoints" / "0" / "params").rglob("*") if path.is_file()]
  assert 40e6 < sum(path.stat().st_size for path in files) < 60e6
