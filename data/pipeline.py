"""Batches as a pure function of (corpus, seed, stage, step).

A source makes any row of a stage by its number. Row i of a stage of pairs is row i mod N of epoch i div N; a shuffle
that needs no memory says which of the N chunks that is, and the row's own random numbers make a pair of it. So seeking
costs nothing, and neither the batch size, nor the processes that read, nor where reading began changes a row.
(`data.full_sentences` makes rows of one segment in the same way; `data.streams` makes rows of contiguous text, where
the batch size decides what a row continues.)
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Protocol

import grain
import numpy as np
from grain.experimental import index_shuffle

from data import philox
from data.chunks import chunk_starts
from data.corpus import Corpus
from data.pairs import PAIR, SINGLE_SENTENCE, SPECIAL, segment_pairs, usable_chunks
from data.tokenizers import Tokenizer

Batch = dict[str, np.ndarray]

_SHUFFLE, _PAIR = range(2)  # purposes of random numbers
_PREFETCH = 4  # batches made ahead of the step


class Source(Protocol):
  """Rows of a stage, without end."""

  tokenizer: Tokenizer

  @property
  def num_rows(self) -> int:
    """Rows of an epoch."""

  def rows(self, rows: np.ndarray) -> Batch:
    """Makes rows by their numbers in the stage; row r of step t is number t * (rows of a batch) + r."""


def shuffled(rows: np.ndarray, count: int, seed: int, stage: int) -> np.ndarray:
  """int64 [rows]: which of an epoch's `count` rows each row of a stage is; every epoch has another order of all."""
  epochs, indices = np.divmod(rows, count)
  seeds = philox.draw(philox.Key(seed, stage, _SHUFFLE), epochs, 0) >> np.uint64(32)
  shuffle = functools.partial(index_shuffle, max_index=count - 1, rounds=4)
  return np.array([shuffle(i, seed=s) for i, s in zip(indices.tolist(), seeds.tolist(), strict=True)], np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class PairSource:
  """Rows of two segments from one split, without end: after N rows the next epoch follows.

  Attributes:
    corpus: the split.
    tokenizer: the one that made the corpus; it knows the special tokens.
    length: tokens in a row, special ones included.
    seed: 0 … 2^32 - 1; rows of different seeds are independent.
    stage: number of the training stage; its rows are independent of other stages' rows.
    short_rate: rate of rows that aim at fewer tokens than fit (BERT: short_seq_prob).
    pair: what half of the pairs are: "nsp", B is random; "sop", A and B are swapped; "none", in order like the others.
    single_sentence: what becomes of a chunk of one sentence: "split" between two of its tokens (one of a single token
      is left out), "skip" (left out), or "random" (B is, with label 1). "" is "random" for nsp and "split" otherwise.
  """

  corpus: Corpus
  tokenizer: Tokenizer
  length: int
  seed: int
  stage: int = 0
  short_rate: float = 0.1
  pair: str = "nsp"
  single_sentence: str = ""

  def __post_init__(self) -> None:
    self.corpus.require_tokenizer(self.tokenizer)
    if self.length < SPECIAL + 2:
      raise ValueError(f"config.length={self.length} is too short for a pair: {SPECIAL + 2} tokens is the least")
    if not 0 <= self.seed < 1 << 32:
      raise ValueError(f"config.seed={self.seed} must lie in 0 … 2^32 - 1")
    if not 0 <= self.short_rate <= 1:
      raise ValueError(f"config.data.short_rate={self.short_rate} must lie in 0 … 1")
    if self.pair not in PAIR:
      raise ValueError(f"config.objective.pair={self.pair!r} is unknown; use one of {', '.join(PAIR)}")
    if self.single_sentence not in ("", *SINGLE_SENTENCE):
      raise ValueError(
        f"config.data.single_sentence={self.single_sentence!r} is unknown; use one of {', '.join(SINGLE_SENTENCE)}"
      )
    if (self.pair == "nsp" or self._single_sentence == "random") and len(self.corpus.document_starts) < 3:
      raise ValueError(
        f"{self.corpus.folder}: split {self.corpus.split!r} has a single document, but random next segments come from "
        "another one; prepare the text with other document boundaries"
      )

  def __len__(self) -> int:
    """Rows of an epoch, the same in every epoch."""
    return self.num_rows

  @property
  def num_rows(self) -> int:
    """Rows of an epoch."""
    return len(self._chunks[0])

  @property
  def _single_sentence(self) -> str:
    return self.single_sentence or ("random" if self.pair == "nsp" else "split")

  @functools.cached_property
  def _chunks(self) -> tuple[np.ndarray, np.ndarray]:
    """int64 [N] each: the first sentence of every chunk that gives a pair, and one past its last."""
    sentence_starts = self.corpus.sentence_starts
    starts = chunk_starts(sentence_starts, self.corpus.document_starts, self.length - SPECIAL)
    first, last = starts[:-1], starts[1:]
    usable = usable_chunks(sentence_starts, first, last, self._single_sentence)
    if usable.all():
      return first, last  # no copy: there may be many millions
    if not usable.any():
      raise ValueError(
        f"{self.corpus.folder}: split {self.corpus.split!r} gives no pair at length {self.length}: with "
        f"config.data.single_sentence={self._single_sentence!r} every chunk is left out; prepare the text with other "
        "sentence boundaries, or use config.data.single_sentence='split'"
      )
    return first[usable], last[usable]

  def chunks(self, rows: np.ndarray) -> np.ndarray:
    """int64 [rows]: the chunk that each row is made of; an epoch takes every chunk once."""
    return shuffled(rows, len(self), self.seed, self.stage)

  def rows(self, rows: np.ndarray) -> Batch:
    """Makes rows by their numbers in the stage.

    Returns:
      tokens: int32 [rows, length], [CLS] A [SEP] B [SEP] and padding.
      segment_ids: int32 [rows, length], 1 on B and its [SEP], else 0.
      sequence_ids: int32 [rows, length], 1 up to the last [SEP], 0 on padding.
      pair_label: int32 [rows], 0 where B follows A in the corpus, 1 where it is from another document or goes before A.
    """
    rows = np.asarray(rows, np.int64)
    chunks = self.chunks(rows)
    first, last = self._chunks
    pairs = segment_pairs(
      self.corpus.sentence_starts,
      self.corpus.document_starts,
      first[chunks],
      last[chunks],
      philox.Key(self.seed, self.stage, _PAIR),
      rows,
      room=self.length - SPECIAL,
      short_rate=self.short_rate,
      pair=self.pair,
      single_sentence=self._single_sentence,
    )
    column = np.arange(self.length)
    a_end = 1 + pairs.lengths[:, :1]  # the column of the first [SEP]
    b_end = a_end + 1 + pairs.lengths[:, 1:]  # and of the second
    tokens = np.full((len(rows), self.length), self.tokenizer.pad_id, np.int32)
    tokens[:, 0] = self.tokenizer.cls_id
    tokens[(column == a_end) | (column == b_end)] = self.tokenizer.sep_id
    # Row by row, the free columns are A then B: the order in which the spans are read.
    text = (column > 0) & (column < b_end) & (column != a_end)
    tokens[text] = self.corpus.spans(pairs.starts.ravel(), pairs.lengths.ravel())
    sequence_ids = (column <= b_end).astype(np.int32)
    return {
      "tokens": tokens,
      "segment_ids": sequence_ids * (column > a_end),
      "sequence_ids": sequence_ids,
      "pair_label": pairs.labels,
    }

  @staticmethod
  def blank(length: int) -> Batch:
    """One row of zeros, with the arrays, shapes and dtypes of `rows`."""
    of_tokens = {name: np.zeros((1, length), np.int32) for name in ("tokens", "segment_ids", "sequence_ids")}
    return of_tokens | {"pair_label": np.zeros(1, np.int32)}

  def example(self, row: int) -> Batch:
    """One row, without the leading axis."""
    return {name: values[0] for name, values in self.rows(np.array([row])).items()}


def batches(
  source: Source, batch_size: int, start: int, stop: int, rows: slice | np.ndarray = slice(None)
) -> grain.DatasetIterator[Batch]:
  """Iterates over the batches of steps start … stop - 1 of a stage; close() it when done.

  Args:
    source: the stage's rows.
    batch_size: rows of the global batch; a source that has a batch size of its own is read with that.
    start: the first step, counted within the stage.
    stop: one past the last step.
    rows: the part of every batch that this process makes, or the numbers of its rows.
  """
  offsets = np.arange(batch_size)[rows]
  return iterate(start, stop, lambda step: source.rows(step * batch_size + offsets))


def evaluation_batches(
  source: Source, batch_size: int, count: int | None = None, rows: slice | np.ndarray = slice(None)
) -> grain.DatasetIterator[Batch]:
  """Iterates over the first epoch once, in at most `count` batches, the same ones each time; close() it when done.

  The last batch is filled up with rows of padding alone: sequence_ids are 0, so they count for nothing.
  """
  offsets = np.arange(batch_size)[rows]

  def batch(step: int) -> Batch:
    wanted = step * batch_size + offsets
    made = source.rows(wanted[wanted < source.num_rows])
    missing = len(wanted) - len(made["tokens"])
    fill = {name: source.tokenizer.pad_id if name == "tokens" else 0 for name in made}
    return {
      name: np.pad(values, [(0, missing)] + [(0, 0)] * (values.ndim - 1), constant_values=fill[name])
      for name, values in made.items()
    }

  steps = -(-source.num_rows // batch_size)
  return iterate(0, steps if count is None else min(count, steps), batch)


def iterate(start: int, stop: int, batch: Callable[[int], Batch]) -> grain.DatasetIterator[Batch]:
  """Iterates over `batch(start)` … `batch(stop - 1)`, made a few ahead in a thread; close() it when done."""
  # One thread: more of them fight over Python's lock, and worker processes outlive a killed parent.
  options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=_PREFETCH)
  return iter(grain.MapDataset.range(start, stop).map(batch).to_iter_dataset(options))
