"""Models for tasks: an encoder or an XLNet with one head. The same heads on every family.

What one sequence is, is the row's affair: rows may hold several (`sequence_ids`), and a sequence's result is the same
as alone in a row.
"""

import dataclasses

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from models.attention import attention_mask
from models.bilstm import BiLSTM
from models.encoder import Encoder
from models.features import Features
from models.head_config import HeadConfig
from models.heads import gather_positions
from models.primitives import Dropout, ModelConfig, dense, split_by_row
from models.span import Beams, ConditionalSpanHead, SpanLogits
from models.summary import SequenceSummary
from models.xlnet import XLNet
from models.xlnet_config import XLNetConfig

# What the last dense layer of a head is called in the parameters.
OUTPUTS = {
  "classification": "classifier",
  "regression": "classifier",
  "choice": "classifier",
  "tagging": "tagger",
  "span": "span_head",
  "conditional_span": "conditional_span_head",
}


class TaskModel(nn.Module):
  """A body and a head, with `head.features` a BiLSTM between them.

  One vector a sequence comes from BERT's pooler over [CLS] (over the last token where attention is causal), from
  XLNet's summary of the sequence, or is the BiLSTM's output at the cls piece. Dropout follows it, and it precedes a
  tagger; a span head has none (BERT's run_squad.py).
  """

  config: ModelConfig
  head: HeadConfig

  def setup(self):
    config = self.config
    if self.is_xlnet:
      self.xlnet = XLNet(dataclasses.replace(config, mem_len=0))  # a task has no segment before it
      if self.head.is_pooled and not self.head.features:
        self.summary = SequenceSummary(config, self.head.summary, self.head.projection)
    else:
      self.encoder = Encoder(config)
      if self.head.is_pooled and not self.head.features:
        self.pooler = dense(config, config.hidden_size)
    if self.head.features:
      self.features = Features(self.head.features)
      self.bilstm = BiLSTM(self.head.lstm_layers, self.head.lstm_width)
    self.dropout = Dropout(self.head.dropout)
    exact = dataclasses.replace(config, dtype="float32")
    if self.head.kind == "conditional_span":
      self.conditional_span_head = ConditionalSpanHead(config, self.head.dropout)
    else:
      setattr(self, OUTPUTS[self.head.kind], dense(exact, self.head.num_outputs))

  @property
  def is_xlnet(self) -> bool:
    return isinstance(self.config, XLNetConfig)

  @property
  def body(self) -> str:
    """What the body is called in the parameters."""
    return "xlnet" if self.is_xlnet else "encoder"

  def __call__(
    self,
    tokens: Int[Array, "batch length"],
    segment_ids: Int[Array, "batch length"],
    sequence_ids: Int[Array, "batch length"],
    cls_positions: Int[Array, "batch sequences"] | None = None,
    *,
    allowed: Bool[Array, "batch length"] | None = None,
    start_positions: Int[Array, "batch sequences"] | None = None,
    deterministic: bool = True,
  ) -> Float[Array, "batch sequences outputs"] | Float[Array, "batch length outputs"] | SpanLogits:
    """Returns float32 logits: of each sequence for a pooled head (the score of an option for choice), else of each
    token; of a conditional span head, SpanLogits.

    Args:
      tokens: ids below vocab_size.
      segment_ids: as the family has them, see data/rows.py.
      sequence_ids: 0 for padding, 1..n for the sequences packed in the row; attention stays inside a sequence.
      cls_positions: where the cls piece of sequence 1..n stands in the row. Unused slots hold anything. None = a row
        is one sequence, with the cls piece first, or last in an XLNet.
      allowed: conditional span: where an answer may begin and end.
      start_positions: conditional span: where the answers begin.
      deterministic: no dropout; else a `dropout` key is required.
    """
    cls_positions = self._cls(tokens, cls_positions)
    hidden = self.hidden(tokens, segment_ids, sequence_ids, deterministic)
    if self.head.kind == "conditional_span":
      summary = self._summary(sequence_ids, cls_positions)
      return self.conditional_span_head(
        hidden, sequence_ids, allowed, summary, start_positions, deterministic=deterministic
      )
    if self.head.is_pooled:
      hidden = self._pool(hidden, sequence_ids, cls_positions, deterministic)
    elif self.head.kind == "tagging":
      hidden = self.dropout(hidden, deterministic)
    return getattr(self, OUTPUTS[self.head.kind])(hidden)

  def hidden(
    self,
    tokens: Int[Array, "batch length"],
    segment_ids: Int[Array, "batch length"],
    sequence_ids: Int[Array, "batch length"],
    deterministic: bool = True,
  ) -> Float[Array, "batch length width"]:
    """What the head reads: the body's last hidden vectors, or the BiLSTM's (`apply(..., method="hidden")`)."""
    head = self.head
    options = {
      "deterministic": deterministic or head.freeze,
      "every_layer": head.features not in ("", "last"),
    }
    if self.is_xlnet:
      hidden = self.xlnet(tokens, segment_ids, visible=attention_mask(sequence_ids), **options).content
    else:
      hidden = self.encoder(tokens, segment_ids, sequence_ids, **options)
    if head.freeze:
      hidden = jax.lax.stop_gradient(hidden)
    if not head.features:
      return hidden
    read = self.features(hidden) if options["every_layer"] else hidden  # all states only where they are read
    return self.bilstm(read, sequence_ids)

  def beams(
    self,
    tokens: Int[Array, "batch length"],
    segment_ids: Int[Array, "batch length"],
    sequence_ids: Int[Array, "batch length"],
    allowed: Bool[Array, "batch length"],
    cls_positions: Int[Array, "batch sequences"] | None = None,
    starts: int = 5,
    ends: int = 5,
  ) -> Beams:
    """The likeliest answers of a conditional span head (`apply(..., method="beams")`)."""
    hidden = self.hidden(tokens, segment_ids, sequence_ids)
    summary = self._summary(sequence_ids, self._cls(tokens, cls_positions))
    return self.conditional_span_head.beams(hidden, sequence_ids, allowed, summary, starts, ends)

  def _cls(self, tokens, cls_positions) -> Int[Array, "batch sequences"]:
    batch, length = tokens.shape
    one = length - 1 if self.is_xlnet else 0
    return jnp.full((batch, 1), one, jnp.int32) if cls_positions is None else cls_positions

  def _summary(self, sequence_ids, cls_positions) -> Int[Array, "batch sequences"]:
    """Where a vector of the head's input has seen all of sequence 1..n: the cls piece; where attention is causal and no
    BiLSTM follows it, the last position (0 of a sequence that is not there)."""
    if self.is_xlnet or not self.config.causal or self.head.features:
      return cls_positions
    at = jnp.arange(sequence_ids.shape[1])
    mine = sequence_ids[:, None, :] == 1 + jnp.arange(cls_positions.shape[1])[None, :, None]
    return jnp.where(mine, at, 0).max(axis=-1)

  def _pool(self, hidden, sequence_ids, cls_positions, deterministic) -> Float[Array, "batch sequences width"]:
    if self.head.features:
      return self.dropout(gather_positions(hidden, cls_positions), deterministic)
    cls_positions = self._summary(sequence_ids, cls_positions)
    if not self.is_xlnet:
      pooled = split_by_row(self.pooler(split_by_row(gather_positions(hidden, cls_positions))))
      return self.dropout(jnp.tanh(pooled), deterministic)
    batch, sequences = cls_positions.shape
    width = hidden.shape[-1]
    if self.head.summary == "last":  # the cls piece, wherever the sequence ends
      rows = gather_positions(hidden, cls_positions).reshape(-1, 1, width)
      real = jnp.ones(rows.shape[:2], bool)
    else:
      real = sequence_ids[:, None, :] == 1 + jnp.arange(sequences)[None, :, None]  # [batch, sequences, length]
      if self.head.summary == "first":
        rows = gather_positions(hidden, real.argmax(axis=-1)).reshape(-1, 1, width)
        real = jnp.ones(rows.shape[:2], bool)
      else:
        rows = jnp.broadcast_to(hidden[:, None], (batch, sequences, *hidden.shape[1:])).reshape(-1, *hidden.shape[1:])
        real = real.reshape(-1, hidden.shape[1])
    return self.summary(rows, real, deterministic).reshape(batch, sequences, width)


def parameter_shapes(config: ModelConfig, head: HeadConfig) -> dict[str, tuple[int, ...]]:
  """The shape of every parameter of TaskModel, by path."""
  row = jax.ShapeDtypeStruct((1, 1), jnp.int32)
  more = {}
  if head.kind == "conditional_span":
    more = {"allowed": jax.ShapeDtypeStruct((1, 1), jnp.bool_), "start_positions": row}
  init = lambda key, row, more: TaskModel(config, head).init(key, row, row, row, **more)
  variables = jax.eval_shape(init, jax.random.key(0), row, more)
  return {path: x.shape for path, x in flax.traverse_util.flatten_dict(variables["params"], sep="/").items()}
