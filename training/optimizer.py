"""Optimizers with the originals' arithmetic, and the standard ones.

Layers are stacked on the first axis of one array; every rule here acts as if they were separate arrays.
"""

import dataclasses
import math
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from training.schedule import ScheduleConfig, learning_rate
from training.trees import path_name

NO_DECAY = r"(norm/scale|(^|/)bias)$"  # but XLNet's content_bias, position_bias, segment_bias: they decay, as there
STACKED = "layers/"  # in the path of a parameter whose first axis counts copies
BODY = ("encoder/", "xlnet/")  # the path of a parameter that is no head's begins so


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
  """One row of the table of optimizers, and its numbers.

  Attributes:
    name: one of OPTIMIZERS. The originals' have no bias correction: "bert_adamw" (`optimization.py:
      AdamWeightDecayOptimizer`) and "albert_lamb" (`lamb_optimizer.py`); "adamw" and "lamb" (You et al., 2020) have.
    b1, b2, eps: Adam's; eps is outside the square root.
    weight_decay: decoupled, times the learning rate; layer norms and biases are exempt.
    clip: largest global norm of the gradient; 0 for none.
    no_decay: regular expression over parameter paths that are exempt from decay, and from LAMB's trust ratio.
    layer_decay: the rate of the topmost layer's copy times this for each layer below it, embeddings being below all;
      1 = the same rate everywhere. Heads have the full rate. (XLNet's code scales gradients, which Adam undoes.)
    schedule: the learning rate.
  """

  schedule: ScheduleConfig
  name: str = "bert_adamw"
  b1: float = 0.9
  b2: float = 0.999
  eps: float = 1e-6
  weight_decay: float = 0.01
  clip: float = 1.0
  no_decay: str = NO_DECAY
  layer_decay: float = 1.0

  def __post_init__(self):
    if self.name not in OPTIMIZERS:
      raise ValueError(f"config.optimizer.name={self.name!r} is unknown; use one of {', '.join(OPTIMIZERS)}")
    for name in ("b1", "b2"):
      if not 0 <= getattr(self, name) < 1:
        raise ValueError(f"config.optimizer.{name}={getattr(self, name)} must be at least 0 and below 1")
    if not 0 < self.eps < math.inf:
      raise ValueError(f"config.optimizer.eps={self.eps} must be above 0")
    if not 0 < self.layer_decay <= 1:
      raise ValueError(f"config.optimizer.layer_decay={self.layer_decay} must be above 0 and at most 1")
    for name in ("weight_decay", "clip"):
      if not 0 <= getattr(self, name) < math.inf:
        raise ValueError(f"config.optimizer.{name}={getattr(self, name)} must be at least 0")


class UncorrectedAdamState(NamedTuple):
  """First and second moments, of the parameters' shapes."""

  mu: optax.Updates
  nu: optax.Updates


def scale_by_uncorrected_adam(b1: float, b2: float, eps: float) -> optax.GradientTransformation:
  """Adam without bias correction: m / (sqrt(v) + eps). Source: BERT's `AdamWeightDecayOptimizer`."""

  def init(params):
    zeros = lambda: jax.tree.map(jnp.zeros_like, params)
    return UncorrectedAdamState(zeros(), zeros())

  def update(gradients, state, params=None):
    del params
    mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, gradients)
    nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * jnp.square(g), state.nu, gradients)
    updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
    return updates, UncorrectedAdamState(mu, nu)

  return optax.GradientTransformation(init, update)


def scale_by_trust_ratio(exempt: str) -> optax.GradientTransformation:
  """Multiplies each update by ‖parameter‖ / ‖update‖ (LAMB, algorithm 2, with φ the identity).

  The ratio is 1 for parameters whose path matches `exempt` and where a norm is 0. Every copy of a stacked parameter has
  a ratio of its own.
  """

  def scale(path, update, param):
    name = path_name(path)
    if re.search(exempt, name):
      return update
    axes = tuple(range(1 if STACKED in name else 0, update.ndim))
    norm = lambda x: jnp.sqrt(jnp.square(x).sum(axes, keepdims=True))
    weight, step = norm(param), norm(update)
    return update * jnp.where((weight > 0) & (step > 0), weight / jnp.where(step > 0, step, 1), 1)

  def update(updates, state, params):
    return jax.tree.map_with_path(scale, updates, params), state

  return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def scale_by_depth(decay: float) -> optax.GradientTransformation:
  """Multiplies the update of layer l of n by decay^(n - 1 - l), and of what lies below the layers by decay^n.

  Behind the optimizer's own scaling, so that it is the rate that changes. Layers are counted as they are stored: those
  that share parameters are one.
  """

  def update(updates, state, params=None):
    del params
    named = [(path_name(path), x) for path, x in jax.tree.leaves_with_path(updates)]
    layers = max((len(x) for name, x in named if STACKED in name), default=0)

    def scale(path, x):
      name = path_name(path)
      if STACKED in name:
        below = jnp.arange(len(x) - 1, -1, -1, dtype=x.dtype)
        return x * (decay**below).reshape(-1, *[1] * (x.ndim - 1))
      return x * decay**layers if name.startswith(BODY) else x

    return jax.tree.map_with_path(scale, updates), state

  return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


# Name → (how gradients are scaled, whether by trust ratio too).
OPTIMIZERS = {
  "bert_adamw": (scale_by_uncorrected_adam, False),
  "adamw": (optax.scale_by_adam, False),
  "albert_lamb": (scale_by_uncorrected_adam, True),
  "lamb": (optax.scale_by_adam, True),
}


def decay_mask(params: optax.Params, no_decay: str) -> optax.Params:
  """Returns True for each parameter that decays: those whose path does not match `no_decay`."""
  return jax.tree.map_with_path(lambda path, _: not re.search(no_decay, path_name(path)), params)


def make(config: OptimizerConfig, steps: int) -> tuple[optax.GradientTransformation, optax.Schedule]:
  """Returns the optimizer and its learning-rate schedule for a run of `steps` steps."""
  schedule = learning_rate(config.schedule, steps)
  scale, by_trust_ratio = OPTIMIZERS[config.name]
  optimizer = optax.chain(
    optax.clip_by_global_norm(config.clip) if config.clip else optax.identity(),
    scale(config.b1, config.b2, config.eps),
    optax.add_decayed_weights(config.weight_decay, lambda params: decay_mask(params, config.no_decay)),
    scale_by_trust_ratio(config.no_decay) if by_trust_ratio else optax.identity(),
    optax.scale_by_learning_rate(schedule),
  )
  if config.layer_decay < 1:
    optimizer = optax.chain(optimizer, scale_by_depth(config.layer_decay))
  return optimizer, schedule
