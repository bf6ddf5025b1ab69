"""Rows for XLNet: long contiguous text, so that memory of the row before is memory of what was just read.

The stream of an epoch is cut into lanes, one a row of the batch, or one for two rows that read it in both directions.
Each step a row takes the lane's next `reuse_len` tokens, then two segments from what follows:

  [reuse | A <sep> B <sep> <cls>]

as _create_data and _split_a_and_b lay them out (XLNet, data_utils.py), with every row a function of (seed, stage, step,
row) alone. docs/differences.md says where it differs.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable

import numpy as np

from data import philox
from data.corpus import Corpus
from data.pairs import truncated
from data.text_stream import Stream, Text
from data.tokenizers import Tokenizer

SPECIAL = 3  # two <sep> and <cls>
EVALUATION_STEPS = 8  # a lane gives at least so many where the split allows: without steps before, memory is empty

_ORDER, _SEGMENTS = 2, 3  # purposes of random numbers, beside those of `data.pipeline`
_MAX_ID = (1 << 31) - 2


class _Word(enum.IntEnum):
  """Which of a row's random words decides what."""

  CUT = 0
  RANDOM = 1
  PLACE = 2


@dataclasses.dataclass(frozen=True, eq=False)
class StreamSource:
  """Rows of contiguous text from one split, without end: after the last step of an epoch the next one follows.

  Attributes:
    corpus: the split.
    tokenizer: the one that made the corpus; documents end with its `eod_id` if it has one.
    length: tokens in a row, special ones included.
    batch_size: rows of the global batch; with the split it decides the lanes.
    reuse_len: tokens that a row advances by, and that memory keeps of it.
    seed: 0 … 2^32 - 1; rows of different seeds are independent.
    stage: number of the training stage; its rows are independent of other stages' rows.
    bidirectional: rows 2p and 2p + 1 read the same lane, one of them backwards.
    random_rate: rate of rows whose B is from a random place of the lane, away from the row's own text and what memory
      may hold, rather than what follows A.
    mem_len: tokens before a row that the model's memory holds of its lane; a random B is none of these, nor of as many
      as a row has.
    partial: for evaluation. A split too short for all rows gives fewer lanes, as many as have EVALUATION_STEPS steps or
      else one, and rows of padding for the rest; without it that is an error.
  """

  corpus: Corpus
  tokenizer: Tokenizer
  length: int
  batch_size: int
  reuse_len: int
  seed: int
  stage: int = 0
  bidirectional: bool = True
  random_rate: float = 0.5
  mem_len: int = 0
  partial: bool = False

  def __post_init__(self) -> None:
    self.corpus.require_tokenizer(self.tokenizer)
    if self.reuse_len < 1 or self._room < 2:
      raise ValueError(
        f"config.data.reuse_len={self.reuse_len} does not fit length={self.length}: behind it {SPECIAL} special "
        f"tokens and at least two others follow, so it lies in 1 … {self.length - SPECIAL - 2}"
      )
    if self.batch_size < 1:
      raise ValueError(f"config.batch_size={self.batch_size} must be at least 1")
    if self.bidirectional and self.batch_size % 2:
      raise ValueError(
        f"config.batch_size={self.batch_size} is odd, but rows come in pairs that read one text in both directions; "
        "use an even number, or config.data.bidirectional=False"
      )
    if not 0 <= self.seed < 1 << 32:
      raise ValueError(f"config.seed={self.seed} must lie in 0 … 2^32 - 1")
    if not 0 <= self.random_rate <= 1:
      raise ValueError(f"config.data.random_rate={self.random_rate} must lie in 0 … 1")
    if self._lane_length < self.length:
      fits = self._text.num_tokens // self.length * self._rows_of_lane
      fix = f"batch_size={fits} would fit" if fits else "prepare more text, or use shorter rows"
      raise ValueError(
        f"{self.corpus.folder}: split {self.corpus.split!r} has {self._text.num_tokens} tokens, too few for "
        f"batch_size={self.batch_size} rows of length={self.length}; {fix}"
      )

  def __len__(self) -> int:
    """Steps of an epoch, the same in every epoch."""
    return (self._lane_length - self.length) // self.reuse_len + 1

  @property
  def num_rows(self) -> int:
    """Rows of an epoch."""
    return len(self) * self.batch_size

  @functools.cached_property
  def lanes(self) -> int:
    """Runs of text that are read side by side."""
    wanted = self.batch_size // self._rows_of_lane
    if not self.partial:
      return wanted
    long = self._text.num_tokens // (self.length + (EVALUATION_STEPS - 1) * self.reuse_len)
    return min(wanted, max(long, 1))

  @property
  def _rows_of_lane(self) -> int:
    return 2 if self.bidirectional else 1

  @property
  def _lane_length(self) -> int:
    return self._text.num_tokens // self.lanes

  @property
  def _room(self) -> int:
    """Tokens that A and B hold together."""
    return self.length - self.reuse_len - SPECIAL

  @functools.cached_property
  def _text(self) -> Text:
    return Text(self.corpus, self.tokenizer.eod_id)

  @functools.cached_property
  def _stream(self) -> Callable[[int], Stream]:
    key = philox.Key(self.seed, self.stage, _ORDER)
    return functools.lru_cache(maxsize=2)(functools.partial(self._text.stream, key))

  def batch(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
    """Makes the rows of a step, or a part of them; see `rows`."""
    return self.rows(step * self.batch_size + np.arange(self.batch_size)[rows])

  def rows(self, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Makes rows by their numbers in the stage: row r of step t is number t * batch_size + r.

    Returns:
      tokens: int32 [rows, length], [reuse | A <sep> B <sep> <cls>]; backward rows hold the text in reverse.
      segment_ids: int32 [rows, length], 0 on reuse, A and its <sep>, 1 on B and its <sep>, 2 on <cls>.
      document_ids: int32 [rows, length], which document a token is of: equal within an epoch where the document is the
        same, other ids in the epochs beside it, at least 1. <sep> and <cls> have that of the token before.
      backward: bool [rows], whether the row reads from right to left.
      sequence_ids: int32 [rows, length], 1. A row of padding has 0 there and in all else but its tokens.
      pair_label: int32 [rows], 0 where B follows A as the row is read, 1 where it is from elsewhere.
    """
    rows = np.asarray(rows, np.int64)
    steps, places = np.divmod(rows, self.batch_size)
    batch = self.blank(self.length, len(rows))
    batch["tokens"][:] = self.tokenizer.pad_id
    epochs, steps = np.divmod(steps, len(self))
    real = places < self.lanes * self._rows_of_lane
    for epoch in np.unique(epochs[real]).tolist():
      mine = real & (epochs == epoch)
      for name, values in self._rows(epoch, steps[mine], places[mine], rows[mine]).items():
        batch[name][mine] = values
    return batch

  @staticmethod
  def blank(length: int, rows: int = 1) -> dict[str, np.ndarray]:
    """Rows of zeros, with the arrays, shapes and dtypes of `rows`."""
    of_tokens = ("tokens", "segment_ids", "document_ids", "sequence_ids")
    of_rows = {"backward": np.zeros(rows, bool), "pair_label": np.zeros(rows, np.int32)}
    return {name: np.zeros((rows, length), np.int32) for name in of_tokens} | of_rows

  def _rows(self, epoch: int, step: np.ndarray, place: np.ndarray, row: np.ndarray) -> dict[str, np.ndarray]:
    """`rows` of one epoch, without padding; `step` within the epoch, `place` within the batch."""
    lane, direction = np.divmod(place, self._rows_of_lane)
    lanes = _Lanes(self._stream(epoch), lane * self._lane_length, self._lane_length, direction == 1)
    bits = philox.draw(philox.Key(self.seed, self.stage, _SEGMENTS), row, np.arange(len(_Word))[:, None])
    start = step * self.reuse_len
    begin = start + self.reuse_len
    known = start - max(self.length, self.mem_len), begin + self._room
    b_begin, kept, random = _segments(lanes, begin, self._room, known, bits, self.random_rate)
    tokens, documents = lanes.read(
      np.stack([start, b_begin], axis=1), np.stack([self.reuse_len + kept[:, 0], kept[:, 1]], axis=1), self.length
    )
    column = np.arange(self.length)
    head = self.reuse_len + kept[:, :1]  # the column of the first <sep>
    tokens[(column == head) | (column == self.length - 2)] = self.tokenizer.sep_id
    tokens[:, -1] = self.tokenizer.cls_id
    number = (epoch * (len(self._text.document_tokens) - 1) + documents) % _MAX_ID
    return {
      "tokens": tokens,
      "segment_ids": (column > head).astype(np.int32) + (column == self.length - 1),
      "document_ids": 1 + number,
      "backward": lanes.backward,
      "sequence_ids": np.ones((1, 1), np.int32),
      "pair_label": random,
    }


@dataclasses.dataclass(frozen=True, eq=False)
class _Lanes:
  """A row's own view of its lane: places count from 0 in the direction of reading. Arrays are int64 or bool [rows]."""

  stream: Stream
  origin: np.ndarray  # position of the lane in the stream
  length: int
  backward: np.ndarray

  def _mirrored(self, place: np.ndarray) -> np.ndarray:
    """Takes borders between tokens (0 … length) from reading order to the lane's own, or back."""
    return np.where(self.backward, self.length - place, place)

  def sentence(self, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the sentence of the token at a place begins and ends, within the lane."""
    starts, ends = self.stream.sentences(self.origin + self._mirrored(place) - self.backward)
    starts = self._mirrored(np.maximum(starts - self.origin, 0))
    ends = self._mirrored(np.minimum(ends - self.origin, self.length))
    return np.minimum(starts, ends), np.maximum(starts, ends)

  def borders(self, first: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sentence borders at the places first … first + count - 1: the row of each, ascending, and its place."""
    low = np.minimum(self._mirrored(first), self._mirrored(first + count - 1))
    row, position = self.stream.borders(self.origin + low, np.full(len(low), count))
    place = position - self.origin[row]
    return row, np.where(self.backward[row], self.length - place, place)

  def read(self, starts: np.ndarray, lengths: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads two spans a row (both int64 [rows, 2]) as the reader meets them.

    Returns:
      tokens, documents: [rows, width]: the first span, its last token again, the second span, and its last token to the
      end.
    """
    low = np.where(self.backward[:, None], self.length - starts - lengths, starts)
    tokens, documents = self.stream.read((self.origin[:, None] + low).ravel(), lengths.ravel())
    spans = np.cumsum(lengths.ravel()).reshape(-1, 2) - lengths
    first, second = lengths[:, :1], lengths[:, 1:]
    column = np.arange(width)
    in_second = column > first
    place = np.where(in_second, np.minimum(column - first - 1, second - 1), np.minimum(column, first - 1))
    place = np.where(self.backward[:, None], np.where(in_second, second, first) - 1 - place, place)
    index = np.where(in_second, spans[:, 1:], spans[:, :1]) + place
    return tokens[index], documents[index]


def _segments(
  lanes: _Lanes,
  begin: np.ndarray,
  room: int,
  known: tuple[np.ndarray, np.ndarray],
  bits: np.ndarray,
  random_rate: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Draws A, which begins at `begin`, and B: where B begins, int64 [rows], how long they are, int64 [rows, 2], and
  whether B is random, bool [rows].

  A ends at a sentence border inside the room, each of them alike. B is what follows up to the border that fills the
  room, or a random span, widened to whole sentences, that does; always random where there is no border inside. Then the
  longer loses at its right end, B if they are equal, until both fit exactly.

  A random span is none of what lies between the places `known`, the row's own text and what memory may hold: its
  targets would stand there to be copied. So a sentence that reaches in is cut there. Where a lane has nothing else, B
  is what follows A, which ends amid the room where there is no border inside.
  """
  row, border = lanes.borders(begin + 1, room - 1)
  counts = np.bincount(row, minlength=len(begin))
  cut = _pick(bits[_Word.CUT], np.maximum(counts, 1)) + np.cumsum(counts) - counts
  _, full = lanes.sentence(begin + room - 1)
  a_end = full.copy()
  a_end[counts > 0] = border[cut[counts > 0]]

  wanted = np.maximum(room - (a_end - begin), 1)
  before = np.maximum(known[0] - wanted + 1, 0)
  behind = np.maximum(lanes.length - wanted - known[1] + 1, 0)
  elsewhere = before + behind > 0
  random = elsewhere & ((counts == 0) | (philox.uniform(bits[_Word.RANDOM]) < random_rate))
  a_end = np.where((counts > 0) | elsewhere, a_end, begin + room // 2)
  place = _pick(bits[_Word.PLACE], np.maximum(before + behind, 1))
  is_behind = place >= before
  place += np.where(elsewhere & is_behind, known[1] - before, 0)
  random_begin = np.maximum(lanes.sentence(place)[0], np.where(is_behind, known[1], 0))
  random_end = np.minimum(lanes.sentence(place + wanted - 1)[1], np.where(is_behind, lanes.length, known[0]))
  b_begin = np.where(random, random_begin, a_end)
  b_end = np.where(random, random_end, full)
  return b_begin, truncated(np.stack([a_end - begin, b_end - b_begin], axis=1), room), random


def _pick(bits: np.ndarray, choices: np.ndarray) -> np.ndarray:
  """int64 [rows]: a number in 0 … choices - 1 by the row's random word."""
  return (bits % choices.astype(np.uint64)).astype(np.int64)
