"""Attention by relative position (Transformer-XL section 3.3; XLNet section 2.3 and appendix A; modeling.py:
rel_attn_core), for both of XLNet's streams."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from models.attention import MASKED, WATCHED
from models.primitives import Dropout, dense, initializer, split_by_row, whole
from models.xlnet_config import XLNetConfig

BIASES = ("content_bias", "position_bias", "segment_bias")


class Stream(NamedTuple):
  """What the vectors of one stream see of the keys: memory, then content."""

  visible: Bool[Array, "batch queries keys"]
  other_segment: Bool[Array, "batch queries keys"]  # whether the key lies in another segment than the query
  positions: Int[Array, "batch queries"] | None  # where the queries stand in the content; None = one at each position


class Distances(NamedTuple):
  """The encoding R of every distance from a query to a key, from `keys` down to 1 - `length`."""

  encoding: Float[Array, "distances width"]  # first half sines, second half cosines
  signs: Float[Array, " batch"] | None  # -1 for a row that is read backwards: its distances count the other way


def distance_encoding(length: int, keys: int, config: XLNetConfig) -> Float[Array, "distances width"]:
  """R of the distances that `length` queries have to `keys` keys (modeling.py: relative_positional_encoding).

  Sines of all frequencies and then cosines, not interleaved. Both are float32: frequencies of a distance in bfloat16
  would be off by whole turns.
  """
  distances = jnp.arange(keys, -length, -1, dtype=jnp.float32)
  if config.clamp_length:
    distances = jnp.clip(distances, -config.clamp_length, config.clamp_length)
  frequencies = 10_000.0 ** -(jnp.arange(0, config.hidden_size, 2, dtype=jnp.float32) / config.hidden_size)
  angles = distances[:, None] * frequencies[None, :]
  return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=1)


def align(
  by_distance: Float[Array, "batch heads queries distances"], positions: Int[Array, "batch queries"] | None, keys: int
) -> Float[Array, "batch heads queries keys"]:
  """Scores by distance → scores by key: the query at position i has its `keys` keys from place length - i on.

  Args:
    by_distance: scores at the distances keys, keys - 1, …, 1 - length.
    positions: None = query i is at position i, which makes it a reshaping (modeling.py: rel_shift).
    keys: number of keys.
  """
  if positions is None:
    return _shift(by_distance)
  return _windows(by_distance, by_distance.shape[-1] - keys - positions, keys)


def _windows(x: Float[Array, "b h q n"], starts: Int[Array, "b q"], size: int) -> Float[Array, "b h q m"]:
  """The `size` values from `starts` on, which differ by row and query."""
  of_heads = lambda x, start: jax.lax.dynamic_slice_in_dim(x, start, size, axis=1)
  return jax.vmap(jax.vmap(of_heads, in_axes=(1, 0), out_axes=1))(x, starts)


@jax.custom_vjp
def _shift(by_distance: Float[Array, "b h q n"]) -> Float[Array, "b h q m"]:
  """`align` for a query at each position: as many queries as there are distances more than keys."""
  *outer, queries, distances = by_distance.shape
  # Read on from place `queries`, in rows one shorter: each row then begins one distance earlier than the one before.
  flat = by_distance.reshape(*outer, queries * distances)
  return flat[..., queries:].reshape(*outer, queries, distances - 1)[..., : distances - queries]


def _unshift(gradient: Float[Array, "b h q m"]) -> Float[Array, "b h q n"]:
  """The transpose of `_shift`: every row back to its place among zeros."""
  *outer, queries, keys = gradient.shape
  distances = keys + queries

  def by_reshaping(x):
    x = jnp.concatenate([x, jnp.zeros((*outer, queries, queries - 1), x.dtype)], axis=-1)
    x = x.reshape(*outer, queries * (distances - 1))
    return jnp.concatenate([jnp.zeros((*outer, queries), x.dtype), x], axis=-1).reshape(*outer, queries, distances)

  def by_windows(x):
    x = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (queries, queries)))
    return _windows(x, jnp.broadcast_to(jnp.arange(queries)[None], (outer[0], queries)), distances)

  # XLA on a CPU divides for the place of each element of a reshaped array: five times the time of copying windows.
  return jax.lax.platform_dependent(gradient, cpu=by_windows, default=by_reshaping)


_shift.defvjp(lambda x: (_shift(x), None), lambda _, gradient: (_unshift(gradient),))


class PositionHeads(nn.Module):
  """Projects the encoding of every distance to the heads, once for all rows of a direction.

  A distance and its negative have equal cosines, and sines of opposite sign: so one product serves rows of both
  directions.
  """

  config: XLNetConfig

  @nn.compact
  def __call__(self, distances: Distances) -> Float[Array, "distances features"] | Float[Array, "b distances features"]:
    config = self.config
    features = config.num_heads * config.head_width
    kernel = self.param("kernel", initializer(config), (config.hidden_size, features))
    kernel = whole(kernel.astype(config.dtype), tensor=1)
    encoding, signs = distances
    if signs is None:
      return encoding @ kernel
    half = config.hidden_size // 2
    sines, cosines = encoding[:, :half] @ kernel[:half], encoding[:, half:] @ kernel[half:]
    return signs[:, None, None] * sines[None] + cosines[None]


class RelativeAttention(nn.Module):
  """Softmax in float32 over ((q + u)·k + (q + v)·r + (q + w)·s) / √d, dropout on the probabilities, output projection.

  k is the key of a vector, r of its distance, and s of whether it lies in the query's segment; u, v and w are the
  content, position and segment biases (the original's r_w_bias, r_r_bias and r_s_bias). Nothing else has a bias. A
  query that sees nothing gets nothing: the first target in the factorization order of a row without context or memory
  must not see the average of what it is to predict.
  """

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
    """Returns the update of `hidden`, whose vectors belong to `streams`, one stream after another."""
    config = self.config
    per_head = (config.num_heads, config.head_width)
    project = lambda name, x: dense(config, per_head[0] * per_head[1], name, use_bias=False)(x)
    query = split_by_row(project("query", hidden).reshape(*hidden.shape[:2], *per_head), tensor=2)
    key, value = (
      split_by_row(project(name, keys).reshape(*keys.shape[:2], *per_head), tensor=2) for name in ("key", "value")
    )
    distance_key = PositionHeads(config, name="position")(distances)
    distance_key = distance_key.reshape(*distance_key.shape[:-1], *per_head)

    init = initializer(config)
    content_bias, position_bias, segment_bias = (
      self.param(name, init, per_head).astype(config.dtype)[None, None] for name in BIASES
    )
    segments = self.param("segment_embedding", init, (2, *per_head))  # 0 = the query's segment, 1 = another
    # What every key of a query has in common, softmax does not see: so the query's own segment counts 0.
    other_segment_key = (segments[1] - segments[0]).astype(config.dtype)[None, None]

    contexts, start = [], 0
    for stream in streams:
      q = query[:, start : start + stream.visible.shape[1]]
      start += q.shape[1]
      content = _scores(q + content_bias, key)
      position = align(_scores(q + position_bias, distance_key), stream.positions, key.shape[1])
      segment = jnp.sum((q + segment_bias) * other_segment_key, axis=-1, dtype=jnp.float32).transpose(0, 2, 1)
      segment = jnp.where(stream.other_segment[:, None], segment[..., None], 0.0)
      scores = jnp.where(stream.visible[:, None], (content + position + segment) * per_head[1] ** -0.5, MASKED)
      probabilities = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
      self.sow(WATCHED, "probabilities", probabilities)
      probabilities = Dropout(config.attention_dropout)(probabilities, deterministic)
      context = jnp.einsum("bhqk,bkhd->bqhd", probabilities, value)
      if stream.positions is not None:  # a vector of the content sees itself
        context = jnp.where(stream.visible.any(axis=-1)[:, :, None, None], context, jnp.zeros((), context.dtype))
      contexts.append(context)
    context = split_by_row(jnp.concatenate(contexts, axis=1), tensor=2).reshape(*hidden.shape[:2], -1)
    return dense(config, config.hidden_size, "output", use_bias=False)(context)


def _scores(query: Float[Array, "batch queries heads depth"], key: Float[Array, "... keys heads depth"]):
  """Products of queries and keys in float32, [batch, heads, queries, keys]; `key` may be the same for all rows."""
  keys = "bkhd" if key.ndim == 4 else "khd"
  return jnp.einsum(f"bqhd,{keys}->bhqk", query, key, preferred_element_type=jnp.float32)
