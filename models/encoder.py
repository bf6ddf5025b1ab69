"""The Transformer encoder, layer norm after each residual sum (Vaswani et al. 2017; modeling.py: transformer_model)."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from models.attention import SelfAttention, attention_mask
from models.config import EncoderConfig
from models.embeddings import Embeddings, positions_of
from models.primitives import ACTIVATIONS, Dropout, dense, layer_norm


class FeedForward(nn.Module):
  """Dense, activation, dense: the paper's FFN; no dropout between."""

  config: EncoderConfig

  @nn.compact
  def __call__(self, hidden: Float[Array, "batch length width"]) -> Float[Array, "batch length width"]:
    inner = dense(self.config, self.config.intermediate_size, "intermediate")(hidden)
    return dense(self.config, self.config.hidden_size, "output")(ACTIVATIONS[self.config.activation](inner))


class EncoderLayer(nn.Module):
  """LN(x + dropout(attention(x))), then LN(x + dropout(ffn(x)))."""

  config: EncoderConfig

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "batch length width"], mask: Bool[Array, "batch length length"], deterministic: bool
  ) -> Float[Array, "batch length width"]:
    config = self.config
    update = SelfAttention(config, name="attention")(hidden, mask, deterministic)
    hidden = layer_norm(config, "attention_norm")(hidden + Dropout(config.hidden_dropout)(update, deterministic))
    update = FeedForward(config, name="ffn")(hidden)
    return layer_norm(config, "ffn_norm")(hidden + Dropout(config.hidden_dropout)(update, deterministic))


_REMAT_POLICIES = {"full": None, "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable}


class Encoder(nn.Module):
  """Embeddings and `num_layers` layers whose parameters are stacked on a leading axis under `layers/`.

  The stack is scanned; `unroll` and `remat` change how it is run, and neither the parameters nor the values.
  """

  config: EncoderConfig

  def setup(self):
    config = self.config
    layer = EncoderLayer
    if config.remat != "none":
      # Unrolled, the compiler could see that what the backward pass computes again is there already, and keep it.
      unrolled, policy = config.unroll != 1, _REMAT_POLICIES[config.remat]
      layer = nn.remat(layer, prevent_cse=unrolled, static_argnums=(3,), policy=policy)
    self.embeddings = Embeddings(config)
    if config.embedding_width != config.hidden_size:
      self.embedding_projection = dense(config, config.hidden_size)
    self.layers = layer(config)

  def __call__(
    self,
    tokens: Int[Array, "batch length"],
    segment_ids: Int[Array, "batch length"],
    sequence_ids: Int[Array, "batch length"],
    positions: Int[Array, "batch length"] | None = None,
    *,
    deterministic: bool = True,
    every_layer: bool = False,
  ) -> Float[Array, "batch length width"] | Float[Array, "states batch length width"]:
    """Returns the last hidden states, or with `every_layer` the input of the first layer and the output of each.

    Args:
      tokens: ids below vocab_size.
      segment_ids: 0 for the first segment of a pair (and for padding), 1 for the second.
      sequence_ids: 0 for padding, 1..n for the sequences packed in the row; attention stays inside a sequence.
      positions: default: count from 0 in every sequence of the row.
      deterministic: no dropout; else a `dropout` key is required.
      every_layer: num_layers + 1 states instead of the last.
    """
    config = self.config
    if positions is None:
      positions = positions_of(sequence_ids)
    hidden = self.embeddings(tokens, segment_ids, positions, deterministic)
    if config.embedding_width != config.hidden_size:
      hidden = self.embedding_projection(hidden)
    mask = attention_mask(sequence_ids)

    def step(layer, hidden, _):
      output = layer(hidden, mask, deterministic)
      return output, hidden if every_layer else None

    last, inputs = nn.scan(
      step,
      variable_axes={"params": 0},
      split_rngs={"params": True, "dropout": True},
      length=config.num_layers,
      unroll=config.unroll or config.num_layers,
    )(self.layers, hidden, None)
    return jnp.concatenate([inputs, last[None]]) if every_layer else last
