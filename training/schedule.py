"""Learning rates by step: warm-up, then decay to zero."""

import dataclasses
import math

import jax.numpy as jnp
import optax

DECAY = ("linear", "constant")


@dataclasses.dataclass(frozen=True)
class ScheduleConfig:
  """A learning rate over a run of `steps` steps.

  Attributes:
    peak: the rate after warm-up.
    warmup_steps: steps of linear warm-up from 0.
    decay: "linear" to 0 at the last step, or "constant".
    shifted: decay from the end of warm-up. False is the originals' BERT and ALBERT (`optimization.py:
      create_optimizer`): the line falls from step 0, so that the rate drops from peak to peak × (1 - warmup/steps)
      when warm-up ends.
  """

  peak: float
  warmup_steps: int
  decay: str = "linear"
  shifted: bool = False

  def __post_init__(self):
    if self.decay not in DECAY:
      raise ValueError(f"config.optimizer.decay={self.decay!r} is unknown; use one of {', '.join(DECAY)}")
    for name, value in (("learning_rate", self.peak), ("warmup_steps", self.warmup_steps)):
      if not 0 <= value < math.inf:
        raise ValueError(f"config.optimizer.{name}={value} must be at least 0")


def learning_rate(config: ScheduleConfig, steps: int) -> optax.Schedule:
  """Returns step (from 0) → learning rate of that step's update, for a run of `steps` steps."""

  def schedule(step):
    step = jnp.asarray(step, jnp.float32)
    start = config.warmup_steps if config.shifted else 0
    left = 1.0 if config.decay == "constant" else jnp.clip((steps - step) / max(steps - start, 1), 0.0, 1.0)
    warm = step / max(config.warmup_steps, 1)
    return jnp.where(step < config.warmup_steps, config.peak * warm, config.peak * left)

  return schedule
