"""What a head reads of a body's layers in the feature-based approach: the rows of BERT's table 7."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Kind(NamedTuple):
  """Which of the states, the input of the first layer and the output of each, and how several become one vector.

  Attributes:
    first, last: the first and the last state, counted from the end (-1) where negative.
    joined: "sum" or "concat", where there are several.
  """

  first: int
  last: int
  joined: str = ""


KINDS = {
  "embeddings": Kind(0, 0),
  "second_to_last": Kind(-2, -2),
  "last": Kind(-1, -1),
  "weighted_sum_last_four": Kind(-4, -1, "sum"),
  "concat_last_four": Kind(-4, -1, "concat"),
  "weighted_sum_all": Kind(1, -1, "sum"),  # "all 12 layers": without their input
}


def width_of(kind: str, hidden_size: int) -> int:
  """How many numbers a token's features are."""
  first, last, joined = KINDS[kind]
  return hidden_size * (last - first + 1) if joined == "concat" else hidden_size


class Features(nn.Module):
  """States of a body → a vector a token, in float32.

  A weighted sum is ELMo's (Peters et al., 2018, equation 1): γ Σ softmax(s)_j h_j, at first the mean. BERT's paper does
  not say which it means.

  Raises:
    ValueError: the body has too few layers.
  """

  kind: str

  @nn.compact
  def __call__(self, states: Float[Array, "states batch length width"]) -> Float[Array, "batch length features"]:
    first, last, joined = KINDS[self.kind]
    layers = len(states) - 1
    if -first > layers:
      raise ValueError(f"config.head.features={self.kind!r} needs {-first} layers, and the model has {layers}")
    some = states[first : last + 1 or None].astype(jnp.float32)
    if joined == "concat":
      return jnp.concatenate(list(some), axis=-1)
    if joined == "sum":
      weights = self.param("weights", nn.initializers.zeros, (len(some),))
      scale = self.param("scale", nn.initializers.ones, ())
      return sum(weight * state for weight, state in zip(scale * jax.nn.softmax(weights), some, strict=True))
    return some[0]
