"""Pairs of segments: two that follow one another, or a pair that a model is to tell from those.

  nsp   B is random with probability ½ (BERT: Devlin et al. 2019, section 3.1 and appendix A.2)
  sop   A and B are swapped with probability ½ (ALBERT: Lan et al. 2020, section 3.1)
  none  always in order

The rules are those of create_instances_from_document and truncate_seq_pair (BERT's and ALBERT's
create_pretraining_data.py), for many rows at once, each drawn for itself. Where they differ, docs/differences.md says
why.
"""

import dataclasses
import enum
import functools

import numpy as np

from data import philox
from data.ragged import ranges

SPECIAL = 3  # [CLS] and two [SEP]
PAIR = ("nsp", "sop", "none")
SINGLE_SENTENCE = ("split", "skip", "random")


class _Word(enum.IntEnum):
  """Which of a row's random words decides what; cuts take as many as they need, A's and B's in turn."""

  SHORT = 0
  TARGET = 1
  SPLIT = 2
  LABEL = 3
  DOCUMENT = 4
  SENTENCE = 5
  CUT = 6


@dataclasses.dataclass(frozen=True)
class Pairs:
  """Segment pairs as spans of the corpus: int64 [rows, 2] for A and B, and int32 [rows] labels, 0 where B follows A in
  the corpus, 1 where it is random or goes before A."""

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
  pair: str = "nsp",
  single_sentence: str = "random",
) -> Pairs:
  """Draws one pair from each chunk; a pure function of the chunk, the key and the row's number.

  Args:
    sentence_starts: int64 [sentences + 1], where each sentence begins in the tokens.
    document_starts: int64 [documents + 1], the first sentence of each document; at least two documents where random
      segments are wanted.
    first: int64 [rows], first sentence of the row's chunk.
    last: int64 [rows], one past its last.
    key: the stream of random numbers.
    row: int64 [rows], the row's number in that stream.
    room: tokens that A and B may hold together, at least 2.
    short_rate: rate of rows that aim at fewer tokens, uniformly 2 … room.
    pair: one of PAIR.
    single_sentence: what becomes of a row of one sentence, one of SINGLE_SENTENCE: it is split between any two of its
      tokens; there is none (`usable_chunks` leaves such chunks out, and a short row takes two sentences); or B is
      random, as in both originals.
  """
  bits = philox.draw(key, row, np.arange(_Word.CUT)[:, None])
  pick = functools.partial(_pick, bits)
  short = philox.uniform(bits[_Word.SHORT]) < short_rate
  target = np.where(short, 2 + pick(_Word.TARGET, room - 1), room)
  full = np.searchsorted(sentence_starts, sentence_starts[first] + target)
  last = np.minimum(last, np.maximum(full, first + 2) if single_sentence == "skip" else full)

  # A is at least one of the chunk's first sentences, B the others.
  middle = first + 1 + pick(_Word.SPLIT, np.maximum(last - first - 1, 1))
  start, border, end = sentence_starts[first], sentence_starts[middle], sentence_starts[last]
  single = middle == last
  if single_sentence == "split":
    border = np.where(single, start + 1 + pick(_Word.SPLIT, np.maximum(end - start - 1, 1)), border)
  starts, ends = np.stack([start, border], axis=1), np.stack([border, end], axis=1)

  half = pick(_Word.LABEL, 2) == 1
  random = (single & (single_sentence == "random")) | (half & (pair == "nsp"))
  if random.any():
    b = _random_segments(
      sentence_starts, document_starts, first[random], (target - border + start)[random], bits[:, random]
    )
    starts[random, 1], ends[random, 1] = b
  swapped = half & ~random & (pair == "sop")
  starts[swapped], ends[swapped] = starts[swapped, ::-1], ends[swapped, ::-1]

  kept = truncated(ends - starts, room)
  cut = ends - starts - kept
  starts = starts + np.stack([_heads(key, row, cut[:, side], _Word.CUT + side) for side in range(2)], axis=1)
  return Pairs(starts, kept, (random | swapped).astype(np.int32))


def usable_chunks(sentence_starts: np.ndarray, first: np.ndarray, last: np.ndarray, single_sentence: str) -> np.ndarray:
  """bool [chunks]: which chunks can give a pair by the rule for single sentences."""
  usable = (last - first > 1) | (single_sentence == "random")
  if single_sentence == "split":
    alone = np.flatnonzero(~usable)
    usable[alone] = sentence_starts[last[alone]] - sentence_starts[first[alone]] > 1
  return usable


def _pick(bits: np.ndarray, word: _Word, choices: np.ndarray | int) -> np.ndarray:
  """int64 [rows]: a number in 0 … choices - 1 by the row's random word."""
  # A remainder of 64 bits favours no choice by more than choices / 2^64: nothing.
  return (bits[word] % np.asarray(choices, np.uint64)).astype(np.int64)


def _random_segments(
  sentence_starts: np.ndarray, document_starts: np.ndarray, first: np.ndarray, wanted: np.ndarray, bits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """int64 [rows] each: start and end of `wanted` tokens or more (whole sentences; fewer where the document ends) from
  any sentence of any document but that of sentence `first`."""
  document = np.searchsorted(document_starts, first, side="right") - 1
  other = _pick(bits, _Word.DOCUMENT, len(document_starts) - 2)
  other += other >= document
  begin, end = document_starts[other], document_starts[other + 1]
  begin = begin + _pick(bits, _Word.SENTENCE, end - begin)
  full = np.searchsorted(sentence_starts, sentence_starts[begin] + wanted)
  return sentence_starts[begin], sentence_starts[np.clip(full, begin + 1, end)]


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
