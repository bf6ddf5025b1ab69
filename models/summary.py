"""One vector a sequence (XLNet's modeling.py: summarize_sequence)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from models.attention import MASKED
from models.primitives import Dropout, ModelConfig, dense, initializer

KINDS = ("last", "first", "mean", "attention")


class SequenceSummary(nn.Module):
  """The summary of `kind`, then tanh(dense(·)) unless `projection` is False, then dropout.

  "last" and "first" take the vector at a row's last and first position: XLNet's <cls> stands last, behind padding on
  the left. "mean" is over the real positions (the original's, over padding too). "attention" asks all real positions
  with one learned query, heads as the model has them; no kernel has a bias, as elsewhere in XLNet, and no position
  counts.

  Raises:
    ValueError: `kind` is not one of KINDS.
  """

  config: ModelConfig
  kind: str = "last"
  projection: bool = True

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "batch length width"], real: Bool[Array, "batch length"], deterministic: bool = True
  ) -> Float[Array, "batch width"]:
    """Args:
    hidden: last hidden vectors.
    real: False at padding.
    deterministic: no dropout.
    """
    config = self.config
    if self.kind not in KINDS:
      raise ValueError(f"a summary of kind {self.kind!r} is unknown; use one of {', '.join(KINDS)}")
    if self.kind == "mean":
      weights = real.astype(jnp.float32)[:, :, None]
      summary = (hidden * weights).sum(axis=1) / jnp.maximum(weights.sum(axis=1), 1)
    elif self.kind == "attention":
      summary = self._attend(hidden, real, deterministic)
    else:
      summary = hidden[:, -1 if self.kind == "last" else 0]
    summary = summary.astype(config.dtype)
    if self.projection:
      summary = jnp.tanh(dense(config, config.hidden_size, "projection")(summary))
    return Dropout(config.hidden_dropout)(summary, deterministic)

  def _attend(self, hidden, real, deterministic: bool) -> Float[Array, "batch width"]:
    config = self.config
    heads = (config.num_heads, config.hidden_size // config.num_heads)
    asked = self.param("query_vector", initializer(config), (config.hidden_size,)).astype(config.dtype)
    project = lambda name, x: dense(config, config.hidden_size, name, use_bias=False)(x)
    query = project("query", asked[None]).reshape(heads)
    key, value = (project(name, hidden).reshape(*hidden.shape[:2], *heads) for name in ("key", "value"))
    scores = jnp.einsum("hd,bkhd->bhk", query, key, preferred_element_type=jnp.float32) * heads[1] ** -0.5
    probabilities = jax.nn.softmax(jnp.where(real[:, None], scores, MASKED), axis=-1).astype(value.dtype)
    probabilities = Dropout(config.attention_dropout)(probabilities, deterministic)
    context = jnp.einsum("bhk,bkhd->bhd", probabilities, value)
    return project("output", context.reshape(-1, config.hidden_size))
