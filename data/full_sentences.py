"""Rows of one segment, filled with whole sentences (RoBERTa: Liu et al. 2019, section 4.2).

  full_sentences   [CLS] sentences [SEP] sentences of the next document … [SEP]
  doc_sentences    [CLS] sentences of one document [SEP]

Sentences follow one another as in the corpus, as many as fit; the next one begins the next row. A row that goes on
over the end of a document has one more [SEP] there. A sentence longer than a row is cut into pieces that fill one,
and what is left of it is a sentence like any other. So every token of the split is in exactly one row, and rows are
neighbouring intervals of its tokens: a table of where they begin is all there is to know.
"""

import dataclasses
import functools

import numpy as np

from data.chunks import chain
from data.corpus import Corpus
from data.pipeline import Batch, shuffled
from data.ragged import cut, ranges
from data.tokenizers import Tokenizer

SPECIAL = 2  # [CLS] and the last [SEP]


@dataclasses.dataclass(frozen=True, eq=False)
class SentenceSource:
  """Rows of one segment from one split, without end: after N rows the next epoch follows, in another order.

  Attributes:
    corpus: the split.
    tokenizer: the one that made the corpus; it knows the special tokens.
    length: tokens in a row, special ones included.
    seed: 0 … 2^32 - 1; the orders of different seeds are independent.
    stage: number of the training stage; its order is independent of other stages' orders.
    across: rows go on over the ends of documents ("full_sentences"), rather than end there ("doc_sentences").
  """

  corpus: Corpus
  tokenizer: Tokenizer
  length: int
  seed: int
  stage: int = 0
  across: bool = True

  def __post_init__(self) -> None:
    self.corpus.require_tokenizer(self.tokenizer)
    if self.length <= SPECIAL:
      raise ValueError(f"config.length={self.length} is too short for a sentence: {SPECIAL + 1} tokens is the least")
    if not 0 <= self.seed < 1 << 32:
      raise ValueError(f"config.seed={self.seed} must lie in 0 … 2^32 - 1")

  @property
  def num_rows(self) -> int:
    """Rows of an epoch, the same in every epoch."""
    return len(self._starts) - 1

  @functools.cached_property
  def _documents(self) -> np.ndarray:
    """int64 [documents + 1]: the first token of each document, then the number of tokens."""
    return self.corpus.sentence_starts[self.corpus.document_starts]

  @functools.cached_property
  def _starts(self) -> np.ndarray:
    """int64 [N + 1]: the first token of each row of an epoch, then the number of tokens."""
    return row_starts(self.corpus.sentence_starts, self._documents, self.length - SPECIAL, self.across)

  def rows(self, rows: np.ndarray) -> Batch:
    """Makes rows by their numbers in the stage.

    Returns:
      tokens: int32 [rows, length], see the module, then padding.
      segment_ids: int32 [rows, length], 0.
      sequence_ids: int32 [rows, length], 1 up to the last [SEP], 0 on padding.
      pair_label: int32 [rows], 0.
    """
    number = shuffled(np.asarray(rows, np.int64), self.num_rows, self.seed, self.stage)
    row, _, begin, end = cut(self._documents, self._starts[number], self._starts[number + 1])
    # A row is parts of one document each, every one with a [SEP] behind it; where do these end?
    ends = np.cumsum(end - begin + 1)
    first = np.searchsorted(row, np.arange(len(number)))  # part of each row
    before = ends[first] - (end - begin + 1)[first]  # it, in the rows end to end
    tokens = np.full((len(number), self.length), self.tokenizer.pad_id, np.int32)
    tokens[:, 0] = self.tokenizer.cls_id
    separator = np.zeros(tokens.shape, bool)
    separator[row, ends - before[row]] = True
    tokens[separator] = self.tokenizer.sep_id
    column = np.arange(self.length)
    last = np.bincount(row, end - begin + 1, len(number)).astype(np.int64)[:, None]  # the column of the last [SEP]
    # Row by row, the free columns are the parts: the order in which they are read.
    tokens[(column > 0) & (column < last) & ~separator] = self.corpus.spans(begin, end - begin)
    return {
      "tokens": tokens,
      "segment_ids": np.zeros(tokens.shape, np.int32),
      "sequence_ids": (column <= last).astype(np.int32),
      "pair_label": np.zeros(len(number), np.int32),
    }


def row_starts(sentence_starts: np.ndarray, documents: np.ndarray, room: int, across: bool) -> np.ndarray:
  """Packs sentences into rows, each taking the next ones that fit.

  Args:
    sentence_starts: int64 [sentences + 1], where each sentence begins in the tokens, then their end.
    documents: int64 [documents + 1], where each document begins in the tokens, then their end.
    room: tokens that a row holds, at least 1. An end of a document inside it takes one.
    across: whether a row may hold one.

  Returns:
    int64 [rows + 1]: the first token of each row, then the number of tokens.
  """
  pieces = _pieces(sentence_starts, room)

  def ends(begins: np.ndarray) -> np.ndarray:
    low, count = begins[0], len(begins)
    near = pieces[low : np.searchsorted(pieces, pieces[begins[-1]] + room, side="right")]
    document = np.searchsorted(documents, near, side="right") - 1
    # With a place for each document that began before, a row's length is a difference: from the place where its first
    # piece begins to the place where its last one ends.
    full = np.searchsorted(near[1:] + document[:-1], near[:count] + document[:count] + room, side="right")
    if not across:
      full = np.minimum(full, np.searchsorted(near, documents[document[:count] + 1]))
    return low + full

  return pieces[chain(len(pieces) - 1, ends)]


def _pieces(sentence_starts: np.ndarray, room: int) -> np.ndarray:
  """`sentence_starts` with further starts inside sentences longer than `room`, one every `room` tokens."""
  cuts = (np.diff(sentence_starts) - 1) // room
  long = np.flatnonzero(cuts)
  if not len(long):
    return sentence_starts  # no copy: there may be many millions
  number = ranges(np.ones_like(long), cuts[long])
  return np.insert(
    sentence_starts, np.repeat(long + 1, cuts[long]), np.repeat(sentence_starts[long], cuts[long]) + room * number
  )
