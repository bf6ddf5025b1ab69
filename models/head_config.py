"""What a fine-tuned model predicts: one frozen dataclass for every family."""

import dataclasses
from collections.abc import Sequence

from models.features import KINDS as FEATURES
from models.summary import KINDS as SUMMARIES


@dataclasses.dataclass(frozen=True)
class HeadKind:
  """What a kind of head works on and gives.

  Attributes:
    pooled: it sees one vector a sequence; else every token's.
    outputs: numbers it gives for each; 0 = one a label.
  """

  pooled: bool
  outputs: int = 0


HEAD_KINDS = {
  "classification": HeadKind(pooled=True),
  "regression": HeadKind(pooled=True, outputs=1),
  "choice": HeadKind(pooled=True, outputs=1),  # a score of one option; the softmax runs over a question's options
  "tagging": HeadKind(pooled=False),
  "span": HeadKind(pooled=False, outputs=2),  # start and end, independent (BERT section 4.2)
  "conditional_span": HeadKind(pooled=False, outputs=2),  # the end given the start, and whether there is an answer
}


@dataclasses.dataclass(frozen=True)
class HeadConfig:
  """A fine-tuned model's head.

  Raises:
    ValueError: an unknown kind, summary or feature, labels that a kind needs or has no use for, a rate outside [0, 1),
      or an LSTM of nothing.
  """

  kind: str  # one of HEAD_KINDS
  labels: Sequence[str] = ()  # names of the classes or tags, in the order of the logits
  dropout: float = 0.1  # before the last dense layer (BERT's run_classifier.py); an XLNet has hidden_dropout there
  summary: str = "last"  # XLNet: how a sequence becomes one vector; models.summary.KINDS
  projection: bool = True  # XLNet: tanh(dense(·)) over that vector
  features: str = ""  # what a BiLSTM below the head reads, of models.features.KINDS; "" = there is none
  lstm_layers: int = 2
  lstm_width: int = 768  # units of each direction
  freeze: bool = False  # the body is not trained: no gradient and no dropout in it

  def __post_init__(self):
    object.__setattr__(self, "labels", tuple(self.labels))  # a list, from JSON
    if self.kind not in HEAD_KINDS:
      raise ValueError(f"head.kind={self.kind!r} is not one of {', '.join(HEAD_KINDS)}")
    if self.summary not in SUMMARIES:
      raise ValueError(f"head.summary={self.summary!r} is not one of {', '.join(SUMMARIES)}")
    if self.features and self.features not in FEATURES:
      raise ValueError(f"head.features={self.features!r} is not one of {', '.join(FEATURES)}")
    for name in ("lstm_layers", "lstm_width"):
      if getattr(self, name) < 1:
        raise ValueError(f"head.{name} must be at least 1, not {getattr(self, name)}")
    if self.features and self.is_pooled and (self.summary != "last" or not self.projection):
      raise ValueError("head.features: the head reads the BiLSTM at the cls piece; leave head.summary and .projection")
    if not 0 <= self.dropout < 1:
      raise ValueError(f"head.dropout must lie in [0, 1), not {self.dropout}")
    if HEAD_KINDS[self.kind].outputs and self.labels:
      raise ValueError(f"head.kind={self.kind!r} has no labels, and head.labels names {len(self.labels)}")
    if not HEAD_KINDS[self.kind].outputs and len(self.labels) < 2:
      raise ValueError(f"head.kind={self.kind!r} needs at least two head.labels, not {len(self.labels)}")
    if len(set(self.labels)) < len(self.labels):
      raise ValueError("head.labels names a label twice")

  @property
  def is_pooled(self) -> bool:
    return HEAD_KINDS[self.kind].pooled

  @property
  def num_outputs(self) -> int:
    return HEAD_KINDS[self.kind].outputs or len(self.labels)
