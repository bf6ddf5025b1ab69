"""Learning rates by step: warm-up, then decay."""

import dataclasses
import math

import jax.numpy as jnp
import optax

# Share of the way to the last step that is left → share of the fall that is left.
DECAY = {
  "linear": lambda left: left,
  "cosine": lambda left: 0.5 * (1 + jnp.cos(jnp.pi * (1 - left))),
  "constant": jnp.ones_like,
}


@dataclasses.dataclass(frozen=True)
class ScheduleConfig:
  """A learning rate over a run of `steps` steps.

  Attributes:
    peak: the rate after warm-up.
    warmup_steps: steps of linear warm-up from 0.
    decay: "linear" or "cosine" to `final` × peak at the last step, or "constant".
    final: share of the peak that is left at the last step (XLNet's min_lr_ratio).
    shifted: decay from the end of warm-up. False is the originals' BERT and ALBERT (`optimization.py:
      create_optimizer`): the line falls from step 0, so that the rate drops from peak to peak × (1 - warmup/steps)
      when warm-up ends.
  """

  peak: float
  warmup_steps: int
  decay: str = "linear"
  final: float = 0.0
  shifted: bool = False

  def __post_init__(self):
    if self.decay not in DECAY:
      raise ValueError(f"config.optimizer.decay={self.decay!r} is unknown; use one of {', '.join(DECAY)}")
    for name, value in (("learning_rate", self.peak), ("warmup_steps", self.warmup_steps)):
      if not 0 <= value < math.inf:
        raise ValueError(f"config.optimizer.{name}={value} must be at least 0")
    if not 0 <= self.final <= 1:
      raise ValueError(f"config.optimizer.final={self.final} must lie in 0 … 1")


def learning_rate(config: ScheduleConfig, steps: int) -> optax.Schedule:
  """Returns step (from 0) → learning rate of that step's update, for a run of `steps` steps."""

  def schedule(step):
    step = jnp.asarray(step, jnp.float32)
    start = config.warmup_steps if config.shifted else 0
    left = DECAY[config.decay](jnp.clip((steps - step) / max(steps - start, 1), 0.0, 1.0))
    warm = step / max(config.warmup_steps, 1)
    return config.peak * jnp.where(step < config.warmup_steps, warm, config.final + (1 - config.final) * left)

  return schedule
