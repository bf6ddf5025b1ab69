"""The smallest run that uses every part of the spine: a linear model whose objective carries a counter from step to
step.

python -m tests.training.toy --config=tests/training/toy_config.py --workdir=DIR
"""

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

import train
from objectives.objective import Objective
from parts import Parts
from parts.parts import LocalRows
from training.programs import shapes_of
from training.stages import Stage, make_stages

WIDTH = 4


def objective() -> Objective:
  """Regression on x plus how often the row's slot was seen before; a target in three rows of four, so weights are
  uneven."""

  def init(key):
    return {"layers": {"kernel": jax.random.normal(key, (1, WIDTH, WIDTH))}, "bias": jnp.zeros(())}

  def loss_fn(params, carry, batch, key):
    noise = jax.vmap(lambda row: jax.random.normal(jax.random.fold_in(key, row)))(batch["row"])
    seen = carry["seen"] + 1
    guess = (batch["x"] @ params["layers"]["kernel"][0]).sum(-1) + params["bias"]
    error = guess - (batch["y"] + 0.1 * noise + 0.01 * seen)
    weights = (batch["row"] % 4 != 3).astype(jnp.float32)
    terms = {"toy": ((weights * error**2).sum(), weights.sum())}
    return terms, {"seen": (seen.sum(), jnp.float32(seen.size))}, {"seen": seen}

  eval_fn = lambda *args: (*loss_fn(*args), {})
  return Objective(init, lambda rows: {"seen": jnp.zeros(rows)}, loss_fn, eval_fn)


def rows(stage: Stage, at: int, local: LocalRows = np.arange) -> dict:
  """The rows that `local` says of the batch of stage-step `at`."""
  rng = np.random.default_rng([stage.index, at])
  x = rng.standard_normal((stage.batch_size, WIDTH)).astype(np.float32)
  batch = {"x": x, "y": x.sum(-1), "sequence_ids": np.ones((stage.batch_size, stage.length), np.int32)}
  return {name: value[local(stage.batch_size)] for name, value in batch.items()}


def build(config: ConfigDict) -> Parts:
  """Returns the toy's parts, in the place of `parts.build`."""
  return Parts(
    objective=objective(),
    stages=make_stages(config.steps, config.length, config.batch_size, [stage.to_dict() for stage in config.stages]),
    shapes=lambda stage: ([shapes_of(rows(stage, 0), stage.batch_size)], []),
    train_batches=lambda stage, first, local: (
      rows(stage, at, local) for at in range(first - stage.start, stage.stop - stage.start)
    ),
    eval_batches=lambda stage, local: (rows(stage, 10**6 + at, local) for at in range(config.eval_batches)),
    flops=lambda rows, length: 6.0 * rows * WIDTH**2,
    initial=lambda params: params,
    facts={},
    save_assets=lambda workdir: None,
  )


def get_config() -> ConfigDict:
  """Returns a run of 20 steps in two stages."""
  from configs import base

  c = base.get_config()
  c.steps, c.batch_size, c.length = 20, 16, 4
  c.stages = (ConfigDict({"steps": 12, "length": 4}), ConfigDict({"steps": 8, "length": 8, "batch_size": 32}))
  c.log_every, c.eval_every, c.eval_batches, c.checkpoint_every = 1, 10, 2, 5
  c.optimizer.warmup_steps = 4
  return c


if __name__ == "__main__":
  train.run(build)
