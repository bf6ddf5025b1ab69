"""BERT for pretraining: encoder, pooler, masked-word head and pair head (BERT section 3.1)."""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models.config import EncoderConfig
from models.encoder import Encoder
from models.heads import MaskedLMHead, gather_positions
from models.primitives import dense, split_by_row


class PretrainingOutput(NamedTuple):
  """Logits, float32 whatever the compute dtype."""

  mlm_logits: Float[Array, "batch targets vocab"]
  pair_logits: Float[Array, "batch 2"]  # 0 = the second segment follows the first, 1 = it does not


class PretrainingModel(nn.Module):
  """Predicts the words at the target positions, and whether the two segments of a row belong together."""

  config: EncoderConfig

  def setup(self):
    self.encoder = Encoder(self.config)
    self.pooler = dense(self.config, self.config.hidden_size)
    self.mlm_head = MaskedLMHead(self.config)
    self.pair_head = dense(dataclasses.replace(self.config, dtype="float32"), 2)

  def __call__(
    self,
    tokens: Int[Array, "batch length"],
    segment_ids: Int[Array, "batch length"],
    sequence_ids: Int[Array, "batch length"],
    target_positions: Int[Array, "batch targets"],
    *,
    deterministic: bool = True,
  ) -> PretrainingOutput:
    """Encodes the rows and applies both heads; arguments as Encoder's.

    Args:
      target_positions: where words are predicted: only these vectors pass through the head and the word table. Unused
        slots may hold any position (0, say): the caller gives them weight 0.
    """
    hidden = self.encoder(tokens, segment_ids, sequence_ids, deterministic=deterministic)
    return PretrainingOutput(self.mlm_logits(hidden, target_positions), self.pair_head(self.pool(hidden)))

  def hidden(
    self,
    tokens: Int[Array, "batch length"],
    segment_ids: Int[Array, "batch length"],
    sequence_ids: Int[Array, "batch length"],
  ) -> Float[Array, "states batch length width"]:
    """The input of the first layer and the output of each, without dropout (`apply(..., method="hidden")`)."""
    return self.encoder(tokens, segment_ids, sequence_ids, every_layer=True)

  def mlm_logits(
    self, hidden: Float[Array, "batch length width"], positions: Int[Array, "batch targets"]
  ) -> Float[Array, "batch targets vocab"]:
    return self.mlm_head(gather_positions(hidden, positions), self.encoder.embeddings.word.embedding)

  def pool(self, hidden: Float[Array, "batch length width"]) -> Float[Array, "batch width"]:
    """tanh(dense(h)) of the vector at each row's first position, [CLS]."""
    return jnp.tanh(split_by_row(self.pooler(split_by_row(hidden[:, 0]))))


def parameter_shapes(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
  """The shape of every parameter of the pretraining model, by path."""
  row = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  variables = jax.eval_shape(PretrainingModel(config).init, jax.random.key(0), row, row, row, row)
  return {path: x.shape for path, x in flax.traverse_util.flatten_dict(variables["params"], sep="/").items()}
