"""XLNet: a Transformer over two streams that share all weights (Yang et al. 2019, sections 2.3 to 2.5).

The content stream reads tokens; the query stream knows where it predicts, but not what stands there. Both attend to
the content and, before it, to memory: the layer's input at earlier positions (Transformer-XL).
"""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from models.attention import WATCHED
from models.encoder import REMAT_POLICIES
from models.heads import gather_positions, tied_logits
from models.primitives import ACTIVATIONS, Dropout, dense, initializer, layer_norm, lookup, split_by_row
from models.relative import BIASES, Distances, RelativeAttention, Stream, distance_encoding
from models.xlnet_config import XLNetConfig

PARTS = ("attention", "attention_norm", "ffn", "ffn_norm")


class XLNetOutput(NamedTuple):
  """Hidden vectors in the compute dtype; with `every_layer` with a leading axis of states."""

  content: Float[Array, "*states batch length width"] | None
  query: Float[Array, "*states batch targets width"] | None
  memory: Float[Array, "batch layers kept width"] | None  # for the next segment; None if model.mem_len is 0
  read: Float[Array, "batch read width"] | None = None  # the content behind the last layer, where it is read


class Final(NamedTuple):
  """What alone is computed in the last layer: the content where it is read, then the query stream."""

  read: Int[Array, "batch read"] | None  # positions of the content; None = nowhere
  stream: Stream  # what all of these see


class FeedForward(nn.Module):
  """Dense, activation, dropout, dense."""

  config: XLNetConfig

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "batch length width"], deterministic: bool
  ) -> Float[Array, "batch length width"]:
    config = self.config
    inner = split_by_row(dense(config, config.intermediate_size, "intermediate")(hidden), tensor=2)
    inner = Dropout(config.ffn_dropout)(ACTIVATIONS[config.activation](inner), deterministic)
    return dense(config, config.hidden_size, "output")(inner)


class XLNetLayer(nn.Module):
  """LN(x + dropout(attention(x))), then LN(x + dropout(ffn(x))), for the vectors of all streams at once."""

  config: XLNetConfig

  @nn.compact
  def __call__(
    self,
    hidden: Float[Array, "batch queries width"],
    keys: Float[Array, "batch keys width"],
    streams: tuple[Stream, ...],
    distances: Distances,
    deterministic: bool,
  ) -> Float[Array, "batch queries width"]:
    config = self.config
    update = RelativeAttention(config, name="attention")(hidden, keys, streams, distances, deterministic)
    hidden = layer_norm(config, "attention_norm")(hidden + Dropout(config.hidden_dropout)(update, deterministic))
    hidden = split_by_row(hidden)
    update = FeedForward(config, name="ffn")(hidden, deterministic)
    return split_by_row(layer_norm(config, "ffn_norm")(hidden + Dropout(config.hidden_dropout)(update, deterministic)))


class Layers(nn.Module):
  """The stack of layers. Each part's parameters lie in one array with a leading axis: one entry a layer.

  Biases of the attention that are tied (see untie_biases) have one entry. Layers are scanned; `unroll` and `remat`
  change how that is run, and neither parameters nor values.
  """

  config: XLNetConfig

  @nn.compact
  def __call__(
    self,
    hidden: Float[Array, "batch queries width"],
    length: int,
    memory: Float[Array, "layers batch remembered width"] | None,
    streams: tuple[Stream, ...],
    distances: Distances,
    reuse_len: int,
    deterministic: bool,
    every_layer: bool = False,
    final: Final | None = None,
  ) -> tuple[Array, Array | None, Array | None]:
    """Returns (last output, inputs of all layers if `every_layer`, new memory [layers, batch, kept, width] or None).

    Args:
      hidden: `length` vectors of the content, then those of the query stream, where there is one.
      length: number of content vectors.
      memory: inputs of each layer at earlier positions.
      streams: what the content sees, and what the query stream sees.
      distances: encodings of all distances.
      reuse_len: how many positions from the first go into memory.
      deterministic: no dropout.
      every_layer: also return the input of every layer.
      final: what the last layer computes, and the output holds: its content feeds the memory nowhere, and the loss only
        where it is read. None = everything.
    """
    config = self.config
    block = XLNetLayer(config, parent=None)

    def copies(part: str):
      """Initial values of `part`, one layer after another."""
      one = jnp.zeros((1, 1, config.hidden_size))
      stream = Stream(jnp.ones((1, 1, 1), bool), jnp.zeros((1, 1, 1), bool), None)
      row = one, one, (stream,), Distances(jnp.zeros((2, config.hidden_size)), None)
      init = lambda key: block.init(key, *row, True)["params"][part]

      def every(key):
        tree = jax.vmap(init)(jax.random.split(key, config.num_layers))
        return {name: x[:1] if name in BIASES and not config.untie_biases else x for name, x in tree.items()}

      return self.param(part, every)

    params = {part: copies(part) for part in PARTS}
    spread = lambda x: jnp.broadcast_to(x, (config.num_layers, *x.shape[1:]))
    params["attention"] = {name: spread(x) if name in BIASES else x for name, x in params["attention"].items()}
    keys = None
    if not deterministic and (config.hidden_dropout or config.attention_dropout or config.ffn_dropout):
      keys = jax.random.split(self.make_rng("dropout"), config.num_layers)

    # Where there are targets, the last layer has not the streams of the others.
    watched = [WATCHED] if self.is_mutable_collection(WATCHED) and final is None else []

    def run_block(params, key, hidden, keys, streams):
      rngs = {} if key is None else {"dropout": key}
      arguments = hidden, keys, streams, distances, deterministic
      return block.apply({"params": params}, *arguments, rngs=rngs, mutable=watched)

    if config.remat != "none":
      run_block = jax.checkpoint(run_block, prevent_cse=config.unroll != 1, policy=REMAT_POLICIES[config.remat])

    def run_layer(hidden, layer, queries=lambda hidden: hidden, streams=streams):
      """Runs one layer for the vectors that `queries` picks."""
      params, key, memory = layer
      content = hidden[:, :length]
      remembered = content if memory is None else jnp.concatenate([memory, content], axis=1)
      kept = None
      if config.mem_len:
        kept = content if not reuse_len else content[:, :reuse_len]
        kept = kept if memory is None else jnp.concatenate([memory, kept], axis=1)
        kept = jax.lax.stop_gradient(kept[:, -config.mem_len :])
      output, seen = run_block(params, key, queries(hidden), remembered, streams)
      return output, (kept, hidden if every_layer else None, seen)

    layers = params, keys, memory
    scanned = config.num_layers
    if final is not None:
      scanned -= 1
      layers, last = (
        jax.tree.map(lambda x: x[:scanned], layers),
        jax.tree.map(lambda x: x[scanned], layers),
      )
    unroll = max(min(config.unroll or scanned, scanned), 1)
    hidden, outputs = jax.lax.scan(run_layer, hidden, layers, length=scanned, unroll=unroll)
    if final is not None:

      def computed(hidden):
        query = hidden[:, length:]
        if final.read is None:
          return query
        return split_by_row(jnp.concatenate([gather_positions(hidden, final.read), query], axis=1))

      hidden, output = run_layer(hidden, last, computed, (final.stream,))
      outputs = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), outputs, output)
    kept, inputs, seen = outputs
    if watched:
      self.sow(WATCHED, "blocks", seen[WATCHED])
    return hidden, inputs, kept


class Embeddings(nn.Module):
  """The word table."""

  config: XLNetConfig

  def setup(self):
    config = self.config
    self.word = nn.Embed(config.vocab_slots, config.hidden_size, embedding_init=initializer(config))

  def __call__(self, tokens: Int[Array, "batch length"]) -> Float[Array, "batch length width"]:
    return lookup(jnp.asarray(self.word.embedding), tokens).astype(self.config.dtype)


def _mask_embedding(key, shape: tuple[int]) -> Float[Array, " width"]:
  """The original gives none, and TensorFlow then draws from Glorot's uniform distribution, for shape [1, 1, width]."""
  limit = (6 / (1 + shape[0])) ** 0.5
  return jax.random.uniform(key, shape, jnp.float32, -limit, limit)


class XLNet(nn.Module):
  """Word embeddings and the layers, for one stream or two."""

  config: XLNetConfig

  def setup(self):
    config = self.config
    self.embeddings = Embeddings(config)
    self.mask_embedding = self.param("mask_embedding", _mask_embedding, (config.hidden_size,))
    self.layers = Layers(config)
    self.dropout = Dropout(config.hidden_dropout)
    self.encoding_dropout = Dropout(config.hidden_dropout, by_row=False)

  def __call__(
    self,
    tokens: Int[Array, "batch length"],
    segment_ids: Int[Array, "batch length"],
    *,
    visible: Bool[Array, "batch length length"] | None = None,
    memory: Float[Array, "batch layers remembered width"] | None = None,
    memory_visible: Bool[Array, "batch length remembered"] | None = None,
    backward: Bool[Array, " batch"] | None = None,
    target_positions: Int[Array, "batch targets"] | None = None,
    target_visible: Bool[Array, "batch targets length"] | None = None,
    read_positions: Int[Array, "batch read"] | None = None,
    reuse_len: int = 0,
    deterministic: bool = True,
    every_layer: bool = False,
  ) -> XLNetOutput:
    """Runs the content stream, and with `target_positions` the query stream beside it.

    Args:
      tokens: ids below vocab_size.
      segment_ids: any numbers; what counts is whether two are equal. Those of memory are 0, as in the original.
      visible: whether the content at position q may see the content at position k; it always sees itself. None = all.
      memory: inputs of each layer at the positions before these, as an earlier call returned it.
      memory_visible: whether position q (in either stream) may see a position of memory. None = all.
      backward: rows that are read from right to left: their distances are negative. None = no row.
      target_positions: where the query stream predicts. An unused slot may hold any position (0, say).
      target_visible: whether a target may see the content at position k, by its place in the factorization order; all
        False in an unused slot. None = everything but its own position.
      read_positions: where alone the content behind the last layer is computed. None = everywhere, or with targets
        nowhere.
      reuse_len: how many positions from the first go into memory; 0 = all.
      deterministic: no dropout; else a `dropout` key is required.
      every_layer: return states of all layers, on a leading axis: num_layers + 1 of them, or num_layers of the content
        where there are targets or `read_positions`.

    Returns:
      Content without targets, and the query stream with them: the content behind the last layer would feed nothing.
      With `read_positions` it is in `read`.
    """
    config = self.config
    batch, length = tokens.shape
    remembered = 0 if memory is None else memory.shape[2]
    itself = jnp.eye(length, dtype=bool)[None]
    visible = itself | (jnp.ones((batch, 1, 1), bool) if visible is None else visible)
    memory_visible = jnp.ones((batch, length, remembered), bool) if memory_visible is None else memory_visible
    key_segments = jnp.concatenate([jnp.zeros((batch, remembered), segment_ids.dtype), segment_ids], axis=1)

    def stream(positions, visible, memory_visible, segment_ids) -> Stream:
      visible = jnp.concatenate([memory_visible, visible], axis=2)
      return Stream(visible, segment_ids[:, :, None] != key_segments[:, None, :], positions)

    def stream_at(positions, visible) -> Stream:
      segments = gather_positions(segment_ids[:, :, None], positions)[:, :, 0]
      return stream(positions, visible, gather_positions(memory_visible, positions), segments)

    streams = (stream(None, visible, memory_visible, segment_ids),)
    hidden = split_by_row(self.dropout(self.embeddings(tokens), deterministic))
    last = ()  # the streams of the last layer, where not all of it is computed
    if read_positions is not None:
      last += (stream_at(read_positions, gather_positions(visible, read_positions)),)
    if target_positions is not None:
      if target_visible is None:
        target_visible = ~gather_positions(jnp.broadcast_to(itself, visible.shape), target_positions)
      streams += (stream_at(target_positions, target_visible),)
      last += streams[1:]
      query = jnp.broadcast_to(self.mask_embedding, (*target_positions.shape, config.hidden_size))
      query = self.dropout(query.astype(config.dtype), deterministic)
      hidden = jnp.concatenate([hidden, split_by_row(query)], axis=1)

    # One draw for all rows and layers: the original draws for each row, which makes each row's projection another.
    encoding = self.encoding_dropout(distance_encoding(length, remembered + length, config), deterministic)
    signs = None if backward is None else jnp.where(backward, -1.0, 1.0).astype(config.dtype)
    distances = Distances(encoding.astype(config.dtype), signs)
    if memory is not None:
      memory = jnp.moveaxis(jax.lax.stop_gradient(memory).astype(config.dtype), 1, 0)
    final = Final(read_positions, jax.tree.map(lambda *x: jnp.concatenate(x, axis=1), *last)) if last else None
    output, inputs, kept = self.layers(
      hidden, length, memory, streams, distances, reuse_len, deterministic, every_layer, final
    )
    output = self.dropout(output, deterministic)

    count = 0 if read_positions is None else read_positions.shape[1]
    content = None if last else output
    query = None if target_positions is None else output[:, count:]
    read = output[:, :count] if count else None
    if every_layer:
      outputs = lambda inputs, last: inputs if last is None else jnp.concatenate([inputs, last[None]])
      content = outputs(inputs[:, :, :length], content)
      query = None if query is None else outputs(inputs[:, :, length:], query)
    return XLNetOutput(content, query, None if kept is None else jnp.moveaxis(kept, 0, 1), read)


class TiedHead(nn.Module):
  """The word table as output matrix, plus a bias a word; no transformation before it (modeling.py: lm_loss)."""

  config: XLNetConfig

  @nn.compact
  def __call__(
    self, hidden: Float[Array, "batch targets width"], word_table: Float[Array, "vocab width"]
  ) -> Float[Array, "batch targets vocab"]:
    """Returns float32 logits; the slots past vocab_size (see vocab_multiple) are masked."""
    bias = self.param("bias", nn.initializers.zeros, (self.config.vocab_slots,))
    return tied_logits(self.config, hidden, word_table, bias)


class PermutationLMOutput(NamedTuple):
  """What pretraining asks for. Logits are float32 whatever the compute dtype."""

  logits: Float[Array, "batch targets vocab"]
  memory: Float[Array, "batch layers kept width"] | None  # for the next segment
  pair_logits: Float[Array, "batch 2"]  # 0 = the second segment follows the first, 1 = it does not


class PermutationLM(nn.Module):
  """XLNet for pretraining: predicts the words at the target positions.

  Attributes:
    config: its shape and arithmetic.
    pair: with a head that tells whether the second segment follows the first. The released models have none.
  """

  config: XLNetConfig
  pair: bool = False

  def setup(self):
    self.xlnet = XLNet(self.config)
    self.lm_head = TiedHead(self.config)
    if self.pair:
      self.pooler = dense(self.config, self.config.hidden_size)
      self.pair_head = dense(dataclasses.replace(self.config, dtype="float32"), 2)

  def __call__(
    self, tokens: Int[Array, "batch length"], segment_ids: Int[Array, "batch length"], **options
  ) -> tuple[Float[Array, "batch targets vocab"], Float[Array, "batch layers kept width"] | None]:
    """Returns (logits, new memory). Arguments are XLNet's; without `target_positions` the content stream predicts, at
    `read_positions` or everywhere."""
    output = self.xlnet(tokens, segment_ids, **options)
    return self._words(output, output.read), output.memory

  def with_pair(
    self,
    tokens: Int[Array, "batch length"],
    segment_ids: Int[Array, "batch length"],
    *,
    read_positions: Int[Array, "batch read"] | None = None,
    **options,
  ) -> PermutationLMOutput:
    """What `__call__` returns, and the pair's logits, from tanh(dense(·)) of the content at each row's last position,
    <cls> (`apply(..., method="with_pair")`). There must be targets or `read_positions`."""
    cls = jnp.full((len(tokens), 1), tokens.shape[1] - 1, jnp.int32)
    read = cls if read_positions is None else jnp.concatenate([read_positions, cls], axis=1)
    output = self.xlnet(tokens, segment_ids, read_positions=read, **options)
    pooled = jnp.tanh(split_by_row(self.pooler(split_by_row(output.read[:, -1]))))
    return PermutationLMOutput(self._words(output, output.read[:, :-1]), output.memory, self.pair_head(pooled))

  def hidden(
    self, tokens: Int[Array, "batch length"], segment_ids: Int[Array, "batch length"], **options
  ) -> XLNetOutput:
    """XLNet's own output (`apply(..., method="hidden")`)."""
    return self.xlnet(tokens, segment_ids, **options)

  def _words(
    self, output: XLNetOutput, read: Float[Array, "batch read width"] | None
  ) -> Float[Array, "batch targets vocab"]:
    hidden = next(x for x in (output.query, read, output.content) if x is not None)
    return self.lm_head(hidden, self.xlnet.embeddings.word.embedding)


def parameter_shapes(config: XLNetConfig, pair: bool = False) -> dict[str, tuple[int, ...]]:
  """The shape of every parameter of PermutationLM, by path."""
  row = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  model = PermutationLM(config, pair)
  init = lambda key, row: model.init(key, row, row, target_positions=row, method="with_pair" if pair else None)
  variables = jax.eval_shape(init, jax.random.key(0), row)
  return {path: x.shape for path, x in flax.traverse_util.flatten_dict(variables["params"], sep="/").items()}
