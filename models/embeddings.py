"""Word + position + segment embeddings (BERT section 3; modeling.py: embedding_postprocessor)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models.config import EncoderConfig
from models.primitives import Dropout, initializer, layer_norm, lookup


def positions_of(sequence_ids: Int[Array, "batch length"]) -> Int[Array, "batch length"]:
  """Counts from 0 within each run of equal `sequence_ids`, so that every packed sequence starts at position 0."""
  index = jnp.broadcast_to(jnp.arange(sequence_ids.shape[1])[None, :], sequence_ids.shape)
  starts = jnp.concatenate(
    [jnp.ones_like(sequence_ids[:, :1], bool), sequence_ids[:, 1:] != sequence_ids[:, :-1]], axis=1
  )
  return index - jax.lax.cummax(jnp.where(starts, index, 0), axis=1)


class Embeddings(nn.Module):
  """Sums the three embeddings in float32, then layer norm and dropout."""

  config: EncoderConfig

  def setup(self):
    config = self.config
    self.word, self.position, self.segment = (
      nn.Embed(rows, config.embedding_width, embedding_init=initializer(config))
      for rows in (config.vocab_slots, config.max_length, config.type_vocab_size)
    )
    self.norm = layer_norm(config)
    self.dropout = Dropout(config.hidden_dropout)

  def __call__(
    self,
    tokens: Int[Array, "batch length"],
    segment_ids: Int[Array, "batch length"],
    positions: Int[Array, "batch length"],
    deterministic: bool,
  ) -> Float[Array, "batch length width"]:
    if tokens.shape[1] > self.config.max_length:
      raise ValueError(f"rows of {tokens.shape[1]} tokens exceed model.max_length={self.config.max_length}")
    tables = ((self.word, tokens), (self.position, positions), (self.segment, segment_ids))
    word, position, segment = (lookup(jnp.asarray(table.embedding), ids) for table, ids in tables)
    return self.dropout(self.norm(word + position + segment), deterministic)
