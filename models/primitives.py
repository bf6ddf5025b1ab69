"""The pieces every family shares: dense layers, layer norm, activations and dropout, with BERT's defaults."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from models.config import EncoderConfig

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
  "gelu": lambda x: jax.nn.gelu(x, approximate=False),
  "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
  "relu": jax.nn.relu,
}


def initializer(config: EncoderConfig) -> nn.initializers.Initializer:
  """Normal with standard deviation `initializer_range`, cut at two of them.

  As in the original (modeling.py: create_initializer, tf.truncated_normal_initializer), the values are not rescaled
  after the cut, so that their standard deviation is 0.88 of `initializer_range`.
  """
  return nn.initializers.truncated_normal(config.initializer_range)


def dense(config: EncoderConfig, features: int, name: str | None = None) -> nn.Dense:
  """A dense layer with bias, in the compute dtype."""
  return nn.Dense(features, dtype=config.dtype, kernel_init=initializer(config), name=name)


def layer_norm(config: EncoderConfig, name: str | None = None) -> nn.LayerNorm:
  """Layer norm with float32 statistics; eps is too small for the variance to be E[x²] - E[x]², which can round below 0."""
  return nn.LayerNorm(config.layer_norm_eps, dtype=config.dtype, use_fast_variance=False, name=name)


class Dropout(nn.Module):
  """Sets each value to zero with probability `rate` and scales the others by 1 / (1 - rate)."""

  rate: float

  @nn.compact
  def __call__(self, x: Float[Array, "..."], deterministic: bool) -> Float[Array, "..."]:
    if deterministic or self.rate == 0:
      return x
    keep = keep_mask(self.make_rng("dropout"), self.rate, x.shape)
    return jnp.where(keep, x / jnp.asarray(1 - self.rate, x.dtype), jnp.zeros((), x.dtype))


def keep_mask(key: Array, rate: float, shape: tuple[int, ...]) -> Array:
  """True with probability 1 - rate."""
  return jax.random.bernoulli(key, 1 - rate, shape)
