"""Token sequences, with what a head needs beside them.

A sequence is what the model reads at a time: a text or a pair, an option with its context, a part of a sentence, a
window of a context with its question. All sequences of a split lie in flat arrays, one after another.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from data import rows
from data.tokenizers import Tokenizer

IGNORED = -100  # the target of a token that is in no loss


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
  """The sequences of a split. T tokens, S sequences, E examples.

  Attributes:
    kind: the task's, one of table.KINDS.
    tokens: int32 [T], special tokens included.
    segment_ids: int8 [T], see data.rows.
    starts: int64 [S + 1]: sequence s is tokens[starts[s] : starts[s + 1]].
    first: int64 [E + 1]: example e has the sequences first[e] … first[e + 1] - 1.
    cls_last: rows end with the cls piece.
    pad_id: the padding piece.
    labels: classification: int32 [E], the class; regression: float32 [E]; choice: int32 [E], the right option.
      -1 or NaN where it is not known.
    targets: tagging: int32 [T], the tag of the word whose first piece the token is, else IGNORED.
    words: tagging: int32 [T], the number in its sentence of the word whose first piece the token is, else -1.
    spans: span: int32 [T, 2], the characters [start, end) of the context that the token stands for, else (-1, -1).
    max_context: span: bool [T]: of all windows that hold this token of the context, this one shows most around it.
    allowed: span: bool [T]: where an answer may begin or end: the context, and the cls piece, which says there is none.
    answers: span: int32 [S, 2], first and last token of the answer in the sequence; both are the cls piece's where the
      window holds no answer, and -1 where the answer is not known.
    truncated: what lost tokens: of texts and choices sequences, of tagging words, of span questions.
  """

  kind: str
  tokens: np.ndarray
  segment_ids: np.ndarray
  starts: np.ndarray
  first: np.ndarray
  cls_last: bool
  pad_id: int
  labels: np.ndarray | None = None
  targets: np.ndarray | None = None
  words: np.ndarray | None = None
  spans: np.ndarray | None = None
  max_context: np.ndarray | None = None
  allowed: np.ndarray | None = None
  answers: np.ndarray | None = None
  truncated: int = 0

  @property
  def num_examples(self) -> int:
    return len(self.first) - 1

  @property
  def num_sequences(self) -> int:
    return len(self.starts) - 1

  @functools.cached_property
  def lengths(self) -> np.ndarray:
    """int64 [S]: tokens of each sequence."""
    return np.diff(self.starts)

  @functools.cached_property
  def example(self) -> np.ndarray:
    """int64 [S]: the example of each sequence."""
    return np.repeat(np.arange(self.num_examples), np.diff(self.first))

  @functools.cached_property
  def cls(self) -> np.ndarray:
    """int64 [S]: where the cls piece stands in its sequence."""
    return self.lengths - 1 if self.cls_last else np.zeros(self.num_sequences, np.int64)

  @functools.cached_property
  def units(self) -> np.ndarray:
    """int64 [U + 1]: unit u is the sequences units[u] … units[u + 1] - 1.

    A unit is what counts as one in a batch, and gives one term of the loss: a question with all its options; else a
    sequence. (The originals' batches count windows too, not SQuAD's questions.)
    """
    return self.first if self.kind == "choice" else np.arange(self.num_sequences + 1)

  def slice(self, sequence: int) -> slice:
    """Where a sequence lies in the flat arrays."""
    return slice(int(self.starts[sequence]), int(self.starts[sequence + 1]))


def flat(
  kind: str, layouts: Sequence[tuple], counts: Sequence[int], tokenizer: Tokenizer, last: bool, **more
) -> Features:
  """Features of sequences given as the ids of one or two texts.

  Args:
    kind: the task's.
    layouts: (first, second or None) each.
    counts: sequences of each example.
    tokenizer: knows the special pieces.
    last: rows end with the cls piece.
    more: further fields.
  """
  tokens = [rows.layout(tokenizer, a, b, cls_last=last) for a, b in layouts]
  segments = [
    rows.segment_ids(tokenizer, len(a), None if b is None else len(b), cls_last=last).astype(np.int8)
    for a, b in layouts
  ]
  return Features(
    kind,
    np.concatenate(tokens),
    np.concatenate(segments),
    offsets([len(row) for row in tokens]),
    offsets(counts),
    last,
    tokenizer.pad_id,
    **more,
  )


def offsets(counts: Sequence[int]) -> np.ndarray:
  """int64 [n + 1]: where each of n neighbours begins, and the end."""
  return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
