"""What an objective must know of the vocabulary: a plain table, handed in by the caller."""

from typing import NamedTuple

import numpy as np


class Vocabulary(NamedTuple):
  """Facts about each token id; V is the number of pieces of the tokenizer.

  Attributes:
    mask_id: the id of [MASK].
    special: bool [V], ids that are never a target and never a replacement.
    word_start: bool [V], ids that begin a word.
    num_bytes: int [V], UTF-8 bytes of text that a piece stands for.
    counts: int [V], frequencies in the training text, for the unigram baseline.
    functional: bool [V], ids that lay out a row, [SEP] and [CLS]; None where the objective does not ask.
  """

  mask_id: int
  special: np.ndarray
  word_start: np.ndarray
  num_bytes: np.ndarray
  counts: np.ndarray
  functional: np.ndarray | None = None

  @property
  def ordinary(self) -> np.ndarray:
    """Ids that may replace a token: everything that is not special. int32 [number of ordinary ids]."""
    return np.flatnonzero(~self.special).astype(np.int32)

  @property
  def unigram_log_probs(self) -> np.ndarray:
    """Natural-log probabilities of the training text's unigrams over ordinary ids, add-one smoothed. float32 [V]."""
    counts = np.where(self.special, 0, self.counts + 1).astype(np.float64)
    with np.errstate(divide="ignore"):
      return np.maximum(np.log(counts / counts.sum()), -1e9).astype(np.float32)

  @property
  def most_frequent(self) -> int:
    """The ordinary id that the training text holds most often."""
    return int(np.argmax(np.where(self.special, -1, self.counts)))
