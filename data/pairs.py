"""BERT's segment pairs (Devlin et al. 2019, section 3.1 and appendix A.2): B follows A in its document, or is random.

The rules are those of create_instances_from_document and truncate_seq_pair (BERT, create_pretraining_data.py), for many
rows at once, each drawn for itself. Where they differ, docs/differences.md says why.
"""

import dataclasses
import enum

import numpy as np

from data import philox
from data.ragged import ranges

SPECIAL = 3  # [CLS] and two [SEP]
NEXT, RANDOM = 0, 1


class _Word(enum.IntEnum):
  """Which of a row's random words decides what; cuts take as many as they need, A's and B's in turn."""

  SHORT = 0
  TARGET = 1
  SPLIT = 2
  RANDOM = 3
  DOCUMENT = 4
  SENTENCE = 5
  CUT = 6


@dataclasses.dataclass(frozen=True)
class Pairs:
  """Segment pairs as spans of the corpus: int64 [rows, 2] for A and B, and int32 [rows] labels, 0 next, 1 random."""

  starts: np.ndarray
  lengths: np.ndarray
  labels: np.ndarray


def segment_pairs(
  sentence_starts: np.ndarray,
  document_starts: np.ndarray,
  first: np.ndarray,
  last: np.ndarray,
  key: philox.Key,
  row: np.ndarray,
  *,
  room: int,
  short_rate: float,
) -> Pairs:
  """Draws one pair from each chunk; a pure function of the chunk, the key and the row's number.

  Args:
    sentence_starts: int64 [sentences + 1], where each sentence begins in the tokens.
    document_starts: int64 [documents + 1], the first sentence of each document; at least two documents.
    first: int64 [rows], first sentence of the row's chunk.
    last: int64 [rows], one past its last.
    key: the stream of random numbers.
    row: int64 [rows], the row's number in that stream.
    room: tokens that A and B may hold together, at least 2.
    short_rate: rate of rows that aim at fewer tokens, uniformly 2 … room.
  """
  bits = philox.draw(key, row, np.arange(_Word.CUT)[:, None])

  def pick(word: _Word, choices: np.ndarray | int) -> np.ndarray:
    # A remainder of 64 bits favours no choice by more than choices / 2^64: nothing.
    return (bits[word] % np.asarray(choices, np.uint64)).astype(np.int64)

  short = philox.uniform(bits[_Word.SHORT]) < short_rate
  target = np.where(short, 2 + pick(_Word.TARGET, room - 1), room)
  last = np.minimum(last, np.searchsorted(sentence_starts, sentence_starts[first] + target))

  # A is at least one of the chunk's first sentences; B the others, or as many from a random place in another document.
  middle = first + 1 + pick(_Word.SPLIT, np.maximum(last - first - 1, 1))
  random = (pick(_Word.RANDOM, 2) == 1) | (middle == last)
  document = np.searchsorted(document_starts, first, side="right") - 1
  other = pick(_Word.DOCUMENT, len(document_starts) - 2)
  other += other >= document
  other_first, other_last = document_starts[other], document_starts[other + 1]
  other_first = other_first + pick(_Word.SENTENCE, other_last - other_first)
  wanted = target - (sentence_starts[middle] - sentence_starts[first])
  full = np.searchsorted(sentence_starts, sentence_starts[other_first] + wanted)
  other_last = np.clip(full, other_first + 1, other_last)

  starts = sentence_starts[np.stack([first, np.where(random, other_first, middle)], axis=1)]
  ends = sentence_starts[np.stack([middle, np.where(random, other_last, last)], axis=1)]
  kept = truncated(ends - starts, room)
  cut = ends - starts - kept
  starts = starts + np.stack([_heads(key, row, cut[:, side], _Word.CUT + side) for side in range(2)], axis=1)
  return Pairs(starts, kept, np.where(random, RANDOM, NEXT).astype(np.int32))


def truncated(lengths: np.ndarray, room: int) -> np.ndarray:
  """int64 [rows, 2]: what is left of A and B when the longer loses tokens (B where they are equal) until both fit."""
  a, b = lengths[:, 0], lengths[:, 1]
  a = np.minimum(a, np.maximum(room - b, (room + 1) // 2))
  return np.stack([a, np.minimum(b, room - a)], axis=1)


def _heads(key: philox.Key, row: np.ndarray, tosses: np.ndarray, word: int) -> np.ndarray:
  """int64 [rows]: heads among so many tosses of a fair coin. Every cut token goes at the front with probability ½."""
  words = -(-tosses // 64)
  index, number = np.repeat(np.arange(len(row)), words), ranges(np.zeros_like(words), words)
  bits = philox.draw(key, row[index], word + 2 * number)
  unused = np.maximum(64 * (number + 1) - tosses[index], 0).astype(np.uint64)
  return np.bincount(index, np.bitwise_count(bits >> unused), minlength=len(row)).astype(np.int64)
