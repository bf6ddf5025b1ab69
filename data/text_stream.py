"""The documents of a split end to end, in an order of each epoch's own: one array of tokens that is never made.

Fixed blocks of neighbouring documents change places; inside a block documents keep their order. So an epoch costs one
permutation of the blocks, and any of its tokens is found by three binary searches: block, document, sentence.
"""

import dataclasses
import functools

import numpy as np

from data import philox
from data.corpus import Corpus
from data.ragged import cut, ranges

MAX_BLOCKS = 1 << 16  # a split of no more documents has one in each block


@dataclasses.dataclass(frozen=True, eq=False)
class Text:
  """A split with its documents in the corpus's order, each followed by an end-of-document piece if there is one.

  Attributes:
    corpus: the split.
    eod_id: the piece that ends a document; None for none. It belongs to the document's last sentence.
  """

  corpus: Corpus
  eod_id: int | None

  @property
  def eod(self) -> int:
    """Pieces that end a document: 1 or 0."""
    return int(self.eod_id is not None)

  @property
  def num_tokens(self) -> int:
    return int(self.document_tokens[-1])

  @functools.cached_property
  def document_tokens(self) -> np.ndarray:
    """int64 [documents + 1]: the first token of each document, then the number of tokens."""
    starts = self.corpus.sentence_starts[self.corpus.document_starts]
    return starts + self.eod * np.arange(len(starts))

  @functools.cached_property
  def block_tokens(self) -> np.ndarray:
    """int64 [blocks + 1]: the first token of each block, then the number of tokens."""
    documents = len(self.document_tokens) - 1
    size = -(-documents // MAX_BLOCKS)
    return self.document_tokens[np.append(np.arange(0, documents, size), documents)]

  def stream(self, key: philox.Key, epoch: int) -> "Stream":
    """Returns the stream of an epoch; its order follows from (key, epoch)."""
    sizes = np.diff(self.block_tokens)
    order = np.argsort(philox.draw(key, epoch, np.arange(len(sizes))), kind="stable")
    return Stream(self, order, np.concatenate([[0], np.cumsum(sizes[order])]))


@dataclasses.dataclass(frozen=True, eq=False)
class Stream:
  """A text with its blocks in another order. Positions count its tokens from 0.

  Attributes:
    text: the documents.
    order: int64 [blocks], the block at each place.
    starts: int64 [blocks + 1], the position where each place begins, then the end.
  """

  text: Text
  order: np.ndarray
  starts: np.ndarray

  def read(self, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Reads spans.

    Args:
      starts: int64 [spans], their first positions.
      lengths: int64 [spans], their numbers of tokens, at least 1.

    Returns:
      tokens: int32 [sum of lengths], one span after another.
      documents: int64 of that shape, the document of each token, by its number in the corpus.
    """
    text = self.text
    _, document, begin, end, _ = self._pieces(starts, lengths)
    sizes = end - begin
    ends_document = (end == text.document_tokens[document + 1]) & bool(text.eod)
    tokens = np.full(sizes.sum(), text.eod_id if text.eod else 0, np.int32)
    from_corpus = np.ones(len(tokens), bool)
    from_corpus[np.cumsum(sizes)[ends_document] - 1] = False
    words = sizes - ends_document
    some = words > 0
    tokens[from_corpus] = text.corpus.spans((begin - text.eod * document)[some], words[some])
    return tokens, np.repeat(document, sizes)

  def sentences(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int64, both of the shape of `positions`: where the sentence of each token begins, and where the next one does."""
    text, corpus = self.text, self.text.corpus
    place = np.searchsorted(self.starts, positions, side="right") - 1
    shift = self._shift(place)
    document = np.searchsorted(text.document_tokens, positions + shift, side="right") - 1
    shift = shift - text.eod * document  # now from the stream to the corpus's tokens
    last = corpus.document_starts[document + 1] - 1
    sentence = np.minimum(np.searchsorted(corpus.sentence_starts, positions + shift, side="right") - 1, last)
    ends = corpus.sentence_starts[sentence + 1] + text.eod * (sentence == last)
    return corpus.sentence_starts[sentence] - shift, ends - shift

  def borders(self, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finds the positions of spans (see `read`) where a sentence begins.

    Returns:
      int64 [borders] each: the span, ascending, and the position, ascending within a span.
    """
    text, corpus = self.text, self.text.corpus
    span, document, begin, end, shift = self._pieces(starts, lengths)
    moved = text.eod * document
    first = np.searchsorted(corpus.sentence_starts, begin - moved)
    last = np.searchsorted(corpus.sentence_starts, end - moved)
    # Behind the end-of-document piece the corpus's next sentence begins, but not this document's.
    counts = np.maximum(np.minimum(last, corpus.document_starts[document + 1]) - first, 0)
    positions = corpus.sentence_starts[ranges(first, counts)] + np.repeat(moved - shift, counts)
    return np.repeat(span, counts), positions

  def _shift(self, place: np.ndarray) -> np.ndarray:
    """What takes a position at a place of the stream to the text's own order."""
    return self.text.block_tokens[self.order[place]] - self.starts[place]

  def _pieces(self, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, ...]:
    """Cuts spans into pieces of one document each.

    Returns:
      int64 [pieces] each: span, document, first token and one past the last in the text's own order, and what was
      added to positions to get there.
    """
    span, place, begin, end = cut(self.starts, starts, starts + lengths)
    shift = self._shift(place)
    part, document, begin, end = cut(self.text.document_tokens, begin + shift, end + shift)
    return span[part], document, begin, end, shift[part]
