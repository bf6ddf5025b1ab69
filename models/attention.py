"""Multi-head self-attention (Vaswani et al. 2017, section 3.2; modeling.py: attention_layer)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from models import fused
from models.config import EncoderConfig
from models.primitives import Dropout, dense, split_by_row

# The score of what must not be seen. Its exp() beside any other score's is exactly 0 in float32; the original adds
# -10,000, to the same effect.
MASKED = -1e9
# apply(..., mutable=[WATCHED]) gives the probabilities besides; without it they are not kept.
WATCHED = "intermediates"


def attention_mask(
  sequence_ids: Int[Array, "batch length"], causal: bool = False
) -> Bool[Array, "batch length length"]:
  """True where query position q may see key position k: both lie in the same sequence of the row, and k is not behind q
  where attention is `causal`.

  Padding (0) sees padding, so that no row of the softmax is empty.
  """
  same = sequence_ids[:, :, None] == sequence_ids[:, None, :]
  return jnp.tril(same) if causal else same


class SelfAttention(nn.Module):
  """Softmax in float32, dropout on the probabilities, output projection; the caller adds dropout, residual and norm."""

  config: EncoderConfig

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "batch length width"], sequence_ids: Int[Array, "batch length"], deterministic: bool
  ) -> Float[Array, "batch length width"]:
    config = self.config
    heads = (*hidden.shape[:2], config.num_heads, config.hidden_size // config.num_heads)
    query, key, value = (
      split_by_row(dense(config, config.hidden_size, name)(hidden).reshape(heads), tensor=2)
      for name in ("query", "key", "value")
    )
    dropout = config.attention_dropout > 0 and not deterministic
    kernel = fused.kernel_of(config, hidden.shape[1], dropout)
    if kernel == "explicit":
      context = self._explicit(query, key, value, attention_mask(sequence_ids, config.causal), deterministic)
    else:
      context = fused.attend(kernel, query, key, value, sequence_ids, config.causal)
    return dense(config, config.hidden_size, "output")(split_by_row(context, tensor=2).reshape(hidden.shape))

  def _explicit(self, query, key, value, mask, deterministic: bool):
    """The path that training takes, as the papers do: with dropout on the probabilities."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key, preferred_element_type=jnp.float32) * query.shape[-1] ** -0.5
    scores = jnp.where(mask[:, None, :, :], scores, MASKED)
    probabilities = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    self.sow(WATCHED, "probabilities", probabilities)
    probabilities = Dropout(self.config.attention_dropout)(probabilities, deterministic)
    return jnp.einsum("bhqk,bkhd->bqhd", probabilities, value)
