"""The masked-word head (BERT section 3.1; run_pretraining.py: get_masked_lm_output)."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from models.attention import MASKED
from models.config import EncoderConfig
from models.primitives import (
  ACTIVATIONS,
  ModelConfig,
  dense,
  is_tensor_parallel,
  layer_norm,
  product,
  split_by_row,
  whole,
)


def gather_positions(
  hidden: Shaped[Array, "batch length width"], positions: Int[Array, "batch targets"]
) -> Shaped[Array, "batch targets width"]:
  """The vectors at `positions` of each row."""
  return jnp.take_along_axis(hidden, positions[:, :, None], axis=1)


class MaskedLMHead(nn.Module):
  """Dense, activation, layer norm, then the word table itself as output matrix, plus a bias a word."""

  config: EncoderConfig

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "batch targets width"], word_table: Float[Array, "vocab embedding"]
  ) -> Float[Array, "batch targets vocab"]:
    """Returns float32 logits; the slots past vocab_size (see vocab_multiple) are masked."""
    config = self.config
    hidden = ACTIVATIONS[config.activation](dense(config, config.embedding_width, "dense")(hidden))
    hidden = layer_norm(config, "norm")(hidden)
    bias = self.param("bias", nn.initializers.zeros, (config.vocab_slots,))
    return tied_logits(config, hidden, word_table, bias)


def tied_logits(
  config: ModelConfig,
  hidden: Float[Array, "batch targets embedding"],
  word_table: Float[Array, "vocab embedding"],
  bias: Float[Array, " vocab"],
) -> Float[Array, "batch targets vocab"]:
  """The word table as output matrix, plus a bias a word: float32 logits, those of slots past vocab_size masked."""
  word_table = word_table.astype(hidden.dtype)
  if is_tensor_parallel():
    # Each device takes its share of the words; of the width, sums of all logits would be sent. Both at once, to gather
    # over "fsdp" and to split another axis, is more than the compiler can do without the whole table.
    word_table = whole(whole(word_table, tensor=1), tensor=0)
  logits = product(hidden, word_table.T, preferred_element_type="float32")
  logits = split_by_row(logits + bias[None, None, :], tensor=2)
  if config.vocab_slots == config.vocab_size:
    return logits
  return jnp.where((jnp.arange(config.vocab_slots) < config.vocab_size)[None, None, :], logits, MASKED)
