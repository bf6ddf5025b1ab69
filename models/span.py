"""The span head of XLNet and ALBERT v2: an end that knows the start, and whether there is an answer.

XLNet's function_builder.py: get_qa_outputs; ALBERT's squad_utils.py: create_v2_model. Rows may be packed: a sequence's
start, end and answer depend on its own tokens alone.
"""

import dataclasses
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from models.attention import MASKED
from models.heads import gather_positions
from models.primitives import Dropout, ModelConfig, dense, layer_norm


class SpanLogits(NamedTuple):
  """Float32. Positions that may not be chosen hold MASKED."""

  start: Float[Array, "batch length"]
  end: Float[Array, "batch length"]  # given the start
  answer: Float[Array, "batch sequences"]  # of a sigmoid: 1 = there is no answer


class Beams(NamedTuple):
  """The likeliest starts of each sequence, and for each the likeliest ends; positions are those of the row."""

  start: Int[Array, "batch sequences starts"]
  start_log_probability: Float[Array, "batch sequences starts"]
  end: Int[Array, "batch sequences starts ends"]
  end_log_probability: Float[Array, "batch sequences starts ends"]  # given the start
  answer: Float[Array, "batch sequences"]


class Dense2(nn.Module):
  """dense, tanh, layer norm if `norm`, dropout, then dense to one number."""

  config: ModelConfig
  norm: bool
  bias: bool
  rate: float = 0.0

  @nn.compact
  def __call__(self, x: Float[Array, "*rows inputs"], deterministic: bool) -> Float[Array, "*rows"]:
    x = jnp.tanh(dense(self.config, self.config.hidden_size, "dense")(x))
    x = layer_norm(self.config, "norm")(x) if self.norm else x
    x = Dropout(self.rate)(x, deterministic)
    return dense(self.config, 1, "output", use_bias=self.bias)(x)[..., 0]


class ConditionalSpanHead(nn.Module):
  """start: a dense layer. end: over [h; h at the start]. answer: over [Σ p(start) h; h of the cls piece]."""

  config: ModelConfig
  dropout: float

  def setup(self):
    config = dataclasses.replace(self.config, dtype="float32")
    self.start = dense(config, 1)
    self.end = Dense2(config, norm=True, bias=True)
    self.answer = Dense2(config, norm=False, bias=False, rate=self.dropout)

  def __call__(
    self,
    hidden: Float[Array, "batch length width"],
    sequence_ids: Int[Array, "batch length"],
    allowed: Bool[Array, "batch length"],
    cls_positions: Int[Array, "batch sequences"],
    start_positions: Int[Array, "batch sequences"],
    deterministic: bool = True,
  ) -> SpanLogits:
    """Returns logits with the true starts given, as in training.

    Args:
      hidden: last hidden vectors.
      sequence_ids: 0 for padding, 1..n for the sequences of a row.
      allowed: where an answer may begin and end: the passage, and the cls piece, which stands for no answer.
      cls_positions: where the cls piece of sequence 1..n stands in the row; unused slots hold anything.
      start_positions: where the answer of sequence 1..n begins; unused slots hold anything.
      deterministic: no dropout.
    """
    start = self._start(hidden, allowed)
    at_start = _of_sequence(gather_positions(hidden, start_positions), sequence_ids)
    end = jnp.where(allowed, self.end(_pair(hidden, at_start), deterministic), MASKED)
    answer = self._answer(hidden, start, _own(sequence_ids, allowed, cls_positions), cls_positions, deterministic)
    return SpanLogits(start, end, answer)

  def beams(
    self,
    hidden: Float[Array, "batch length width"],
    sequence_ids: Int[Array, "batch length"],
    allowed: Bool[Array, "batch length"],
    cls_positions: Int[Array, "batch sequences"],
    starts: int = 5,
    ends: int = 5,
  ) -> Beams:
    """Returns the `starts` likeliest starts and, for each, the `ends` likeliest ends; arguments as in training."""
    length = hidden.shape[1]
    starts, ends = min(starts, length), min(ends, length)
    own = _own(sequence_ids, allowed, cls_positions)
    start = self._start(hidden, allowed)
    log_p = jax.nn.log_softmax(jnp.where(own, start[:, None, :], MASKED), axis=-1)
    start_p, start_at = jax.lax.top_k(log_p, starts)  # [batch, sequences, starts]

    flat = gather_positions(hidden, start_at.reshape(len(hidden), -1))
    at_start = flat.reshape(*start_at.shape, hidden.shape[-1])
    own_starts = _of_sequence(at_start, sequence_ids)  # [batch, length, starts, width]
    every = jnp.broadcast_to(hidden[:, :, None, :], own_starts.shape)
    end = jnp.moveaxis(self.end(_pair(every, own_starts), True), 2, 1)  # [batch, starts, length]
    log_p = jax.nn.log_softmax(jnp.where(own[:, :, None, :], end[:, None], MASKED), axis=-1)
    end_p, end_at = jax.lax.top_k(log_p, ends)
    return Beams(start_at, start_p, end_at, end_p, self._answer(hidden, start, own, cls_positions, True))

  def _start(self, hidden, allowed) -> Float[Array, "batch length"]:
    return jnp.where(allowed, self.start(hidden)[..., 0], MASKED)

  def _answer(self, hidden, start, own, cls_positions, deterministic) -> Float[Array, "batch sequences"]:
    p = jax.nn.softmax(jnp.where(own, start[:, None, :], MASKED), axis=-1)
    expected = jnp.einsum("bsk,bkw->bsw", p, hidden.astype(p.dtype))
    return self.answer(_pair(expected, gather_positions(hidden, cls_positions)), deterministic)


def _own(sequence_ids, allowed, cls_positions) -> Bool[Array, "batch sequences length"]:
  """Where sequence 1..n of a row may be answered."""
  number = 1 + jnp.arange(cls_positions.shape[1])
  return (sequence_ids[:, None, :] == number[None, :, None]) & allowed[:, None, :]


def _of_sequence(values: Float[Array, "batch sequences ..."], sequence_ids) -> Float[Array, "batch length ..."]:
  """For every token, the entry of its sequence (of the first, at padding)."""
  return jax.vmap(lambda row, ids: row[jnp.maximum(ids - 1, 0)])(values, sequence_ids)


def _pair(a, b):
  return jnp.concatenate([a, b.astype(a.dtype)], axis=-1)
