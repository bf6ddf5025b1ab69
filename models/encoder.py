"""The Transformer encoder, layer norm after each residual sum (Vaswani et al. 2017; modeling.py: transformer_model)."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from models.attention import WATCHED, SelfAttention
from models.config import PARTS, EncoderConfig
from models.embeddings import Embeddings, positions_of
from models.primitives import ACTIVATIONS, Dropout, dense, layer_norm, split_by_row


class FeedForward(nn.Module):
  """Dense, activation, dense: the paper's FFN; no dropout between."""

  config: EncoderConfig

  @nn.compact
  def __call__(self, hidden: Float[Array, "batch length width"]) -> Float[Array, "batch length width"]:
    inner = split_by_row(dense(self.config, self.config.intermediate_size, "intermediate")(hidden), tensor=2)
    return dense(self.config, self.config.hidden_size, "output")(ACTIVATIONS[self.config.activation](inner))


class EncoderLayer(nn.Module):
  """LN(x + dropout(attention(x))), then LN(x + dropout(ffn(x)))."""

  config: EncoderConfig

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "batch length width"], sequence_ids: Int[Array, "batch length"], deterministic: bool
  ) -> Float[Array, "batch length width"]:
    config = self.config
    update = SelfAttention(config, name="attention")(hidden, sequence_ids, deterministic)
    hidden = layer_norm(config, "attention_norm")(hidden + Dropout(config.hidden_dropout)(update, deterministic))
    hidden = split_by_row(hidden)
    update = FeedForward(config, name="ffn")(hidden)
    return split_by_row(layer_norm(config, "ffn_norm")(hidden + Dropout(config.hidden_dropout)(update, deterministic)))


REMAT_POLICIES = {"full": None, "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable}


class Layers(nn.Module):
  """The stack of layers. Each part's parameters lie in one array with a leading axis: one entry a copy.

  A part that is not shared has a copy for each layer (BERT). A shared one has a copy for each group: layer i of L uses
  group i·G // L (ALBERT section 3.1; modeling.py: transformer_model). A layer is `inner_groups` blocks one after
  another, each with copies of its own. Layers are scanned; `unroll` and `remat` change how that is run, and neither
  parameters nor values.
  """

  config: EncoderConfig

  @nn.compact
  def __call__(
    self,
    hidden: Float[Array, "batch length width"],
    sequence_ids: Int[Array, "batch length"],
    deterministic: bool,
    every_layer: bool = False,
  ) -> Float[Array, "batch length width"] | Float[Array, "states batch length width"]:
    """Returns the last layer's output, or with `every_layer` the input of the first layer and the output of each."""
    config = self.config
    plain = dataclasses.replace(config, attention="explicit")  # parameters are made on rows that no kernel takes
    block = EncoderLayer(plain if self.is_initializing() else config, parent=None)

    def copies(part: str):
      """Initial values of `part`, one copy after another."""
      row = jnp.zeros((1, 1, config.hidden_size)), jnp.ones((1, 1), jnp.int32)
      one = lambda key: EncoderLayer(plain, parent=None).init(key, *row, True)["params"][part]
      return self.param(part, lambda key: jax.vmap(one)(jax.random.split(key, config.copies(part))))

    parts = {part: copies(part) for part in PARTS}
    groups, layers, blocks = config.loop_groups, config.num_layers // config.loop_groups, config.inner_groups
    shared = {part: _split(tree, groups, blocks) for part, tree in parts.items() if config.is_shared(part)}
    own = {part: _split(tree, groups, layers, blocks) for part, tree in parts.items() if part not in shared}
    watched = [WATCHED] if self.is_mutable_collection(WATCHED) else []
    keys = None
    if not deterministic and (config.hidden_dropout or config.attention_dropout):
      keys = jax.random.split(self.make_rng("dropout"), (groups, layers, blocks))

    def run_block(params, key, hidden):
      rngs = {} if key is None else {"dropout": key}
      return block.apply({"params": params}, hidden, sequence_ids, deterministic, rngs=rngs, mutable=watched)

    if config.remat != "none":
      # Unrolled, the compiler could see that what the backward pass computes again is there already, and keep it.
      run_block = jax.checkpoint(run_block, prevent_cse=config.unroll != 1, policy=REMAT_POLICIES[config.remat])

    def run_layer(shared, hidden, own_and_keys):
      output, seen = hidden, []
      for i in range(blocks):
        own, key = jax.tree.map(lambda x: x[i], own_and_keys)  # noqa: B023, used at once
        output, inside = run_block(jax.tree.map(lambda x: x[i], shared) | own, key, output)  # noqa: B023
        seen.append(inside)
      return output, (output if every_layer else None, seen)

    def run_group(hidden, group):
      shared, own_and_keys = group
      unroll = min(config.unroll or layers, layers)
      return jax.lax.scan(functools.partial(run_layer, shared), hidden, own_and_keys, length=layers, unroll=unroll)

    last, (outputs, seen) = jax.lax.scan(run_group, hidden, (shared, (own, keys)), length=groups, unroll=True)
    if watched:  # [groups, layers, …] of each block of a layer → [blocks of all layers, …]
      of_blocks = lambda *some: jnp.stack(some, axis=2).reshape(-1, *some[0].shape[2:])
      self.sow(WATCHED, "blocks", jax.tree.map(of_blocks, *seen)[WATCHED])
    return jnp.concatenate([hidden[None], outputs.reshape(-1, *hidden.shape)]) if every_layer else last


def _split(tree, *sizes: int):
  """Splits the leading axis of every leaf into axes of `sizes`."""
  return jax.tree.map(lambda x: x.reshape(*sizes, *x.shape[1:]), tree)


class Encoder(nn.Module):
  """Embeddings, their projection to the layers' width where it is another, and the layers."""

  config: EncoderConfig

  def setup(self):
    config = self.config
    self.embeddings = Embeddings(config)
    if config.embedding_width != config.hidden_size:
      self.embedding_projection = dense(config, config.hidden_size)
    self.layers = Layers(config)

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
    hidden = split_by_row(self.embeddings(tokens, segment_ids, positions, deterministic))
    if config.embedding_width != config.hidden_size:
      hidden = self.embedding_projection(hidden)
    return self.layers(hidden, sequence_ids, deterministic, every_layer)
