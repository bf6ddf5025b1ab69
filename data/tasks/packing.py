"""Sequences as batches of rows, with no more padding than the declared shapes ask for.

`batch_size` counts units (see `Features.units`): a text, a part of a sentence, a window, or a question with all its
options. Their sequences are packed into rows of `length` tokens, the longest first, each into the first row with room;
the batch is as large as the smallest declared number of rows that holds them. Unpacked, a row is one sequence, and the
batch as wide as the smallest declared length. There are at most four shapes, and one of them holds any batch.

A batch is a pure function of (features, seed, step): the order of an epoch is a shuffle that remembers nothing, and
example i of the run is i mod N of epoch i div N, so every example comes exactly once in each.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence

import grain
import numpy as np

from data import philox
from data.pipeline import Batch, iterate, shuffled
from data.ragged import ranges
from data.rows import PADDING_SEGMENT
from data.tasks.flat import IGNORED, Features

Shape = tuple[int, int]  # rows, length

MOST_SHAPES = 4
_SAMPLED = 256  # batches that the shapes are chosen by
_SLACK = 0.02  # of the tokens computed, not worth a further shape
_LENGTHS = 8  # unpacked lengths are multiples of this
_SHORT = 8  # tokens of a sequence; rows have slots for so short ones
_FEW = 512  # units of an epoch that are put in order all at once: one by one takes the longer, the fewer they are
_ORDER = 4  # a purpose of random numbers, beside those of `data.pipeline` and `data.streams`


@dataclasses.dataclass(frozen=True, eq=False)
class TaskSource:
  """Batches of a split.

  Attributes:
    features: its sequences, of at most `length` tokens.
    length: tokens of a row.
    batch_size: units of a batch.
    seed: 0 … 2^32 - 1, decides the order.
    pack: several sequences a row.
    parts: micro-batches that the training step makes of a batch. It deals rows out in turn, so row r is of micro-batch
      r mod parts; the options of a question stay in one.
    row_parts: parts that a mesh splits rows into; a micro-batch's rows are a multiple of it.
  """

  features: Features
  length: int
  batch_size: int
  seed: int = 0
  pack: bool = True
  parts: int = 1
  row_parts: int = 1

  def __post_init__(self):
    longest = int(self.features.lengths.max())
    if longest > self.length:
      raise ValueError(f"length={self.length} is shorter than a sequence of {longest} tokens")
    if self.batch_size < 1 or self.batch_size % self.parts:
      raise ValueError(
        f"batch_size={self.batch_size} does not divide into accumulate={self.parts} micro-batches; use a multiple of it"
      )
    if not 0 <= self.seed < 1 << 32:
      raise ValueError(f"seed={self.seed} must lie in 0 … 2^32 - 1")

  @property
  def num_units(self) -> int:
    """Units of an epoch."""
    return len(self.features.units) - 1

  @property
  def num_batches(self) -> int:
    """Batches that hold every unit once, the last perhaps not full."""
    return -(-self.num_units // self.batch_size)

  @functools.cached_property
  def slots(self) -> int:
    """Most sequences of a row."""
    shortest = max(int(self.features.lengths.min()), _SHORT)
    return max(self.length // shortest, 1) if self.pack else 1

  @functools.cached_property
  def shapes(self) -> tuple[Shape, ...]:
    """The declared shapes, the smallest first: one that holds any batch, and those that waste least beside it, on a
    sample of batches that depends on the features alone."""
    draw = np.random.default_rng(0).integers(self.num_units, size=(_SAMPLED, self.batch_size))
    needs = np.array([self._need(units) for units in draw])
    if self.pack:
      most = self._most_rows()
      return tuple((rows, self.length) for rows in levels(np.minimum(needs[:, 0], most), most))
    rows = self._rows(int(np.diff(self.features.units).max()) * (self.batch_size // self.parts))
    most = self._rounded(int(self.features.lengths.max()))
    return tuple((rows, length) for length in levels(needs[:, 1], most))

  def batch(self, step: int) -> Batch:
    """The batch of a training step, see `make`."""
    return self.make(self.units(step))

  def evaluation(self, step: int) -> Batch:
    """Batch `step` of `num_batches`: all units once, in order; where there are no more, rows are padding."""
    start = step * self.batch_size
    return self.make(np.arange(start, min(start + self.batch_size, self.num_units)))

  def units(self, step: int) -> np.ndarray:
    """int64 [batch_size]: the units of a training step."""
    wanted = step * self.batch_size + np.arange(self.batch_size)
    if self.num_units > _FEW:
      return shuffled(wanted, self.num_units, self.seed, stage=0)
    epochs, indices = np.divmod(wanted, self.num_units)
    epochs, of_unit = np.unique(epochs, return_inverse=True)
    numbers = epochs[:, None] * self.num_units + np.arange(self.num_units)
    return philox.draw(philox.Key(self.seed, 0, _ORDER), numbers, 0).argsort(axis=1)[of_unit, indices]

  def make(self, units: np.ndarray) -> Batch:
    """Lays out a batch of at most `batch_size` units.

    Returns, first axis the row, of one of `shapes`:
      tokens, segment_ids, sequence_ids: int32 [rows, length], the last 0 on padding and 1 … n on a row's sequences.
      cls_positions: int32 [rows, slots], where the cls piece of each sequence stands; 0 in slots that hold none.
      sequences: int32 [rows, slots], the sequence's number in the features, or -1.
      weights: float32 [rows, slots] (not tagging): 1 where a sequence counts. Of a choice, 1 at the right option alone.
      labels: classification int32, regression float32 [rows, slots].
      groups: choice, int32 [rows, slots]: the same number for all options of a question, below a micro-batch's units;
        or -1.
      targets: tagging, int32 [rows, length], IGNORED where nothing is to be predicted.
      start_positions, end_positions: span, int32 [rows, slots]: where the answer stands in the row.
      no_answer: span, int32 [rows, slots]: 1 where the window holds no answer.
      allowed: span, bool [rows, length].
    """
    f = self.features
    places, (rows, length) = self._place(units)
    sequence, row, column, slot, group = (np.array(x, np.int64) for x in zip(*places, strict=True))
    sizes = f.lengths[sequence]
    source = ranges(f.starts[sequence], sizes)
    target = ranges(row * length + column, sizes)

    def by_token(values: np.ndarray, fill: int, dtype=np.int32) -> np.ndarray:
      result = np.full(rows * length, fill, dtype)
      result[target] = values
      return result.reshape(rows, length)

    def by_slot(values: np.ndarray, fill: int, dtype=np.int32) -> np.ndarray:
      result = np.full((rows, self.slots), fill, dtype)
      result[row, slot] = values
      return result

    batch = {
      "tokens": by_token(f.tokens[source], f.pad_id),
      "segment_ids": by_token(f.segment_ids[source], PADDING_SEGMENT if f.cls_last else 0),
      "sequence_ids": by_token(np.repeat(slot + 1, sizes), 0),
      "cls_positions": by_slot(column + f.cls[sequence], 0),
      "sequences": by_slot(sequence, -1),
    }
    if f.kind == "tagging":
      return batch | {"targets": by_token(f.targets[source], IGNORED)}
    if f.kind == "span":
      first, last = f.answers[sequence].T
      known = first >= 0
      return batch | {
        "weights": by_slot(known, 0, np.float32),
        "start_positions": by_slot(np.where(known, column + first, 0), 0),
        "end_positions": by_slot(np.where(known, column + last, 0), 0),
        "no_answer": by_slot(first == f.cls[sequence], 0),
        "allowed": by_token(f.allowed[source], False, bool),
      }
    example = f.example[sequence]
    labels = f.labels[example]
    if f.kind == "choice":
      right = sequence - f.first[example] == labels
      return batch | {"weights": by_slot(right, 0, np.float32), "groups": by_slot(group, -1)}
    known = ~np.isnan(labels) if f.kind == "regression" else labels >= 0
    return batch | {
      "weights": by_slot(known, 0, np.float32),
      "labels": by_slot(np.where(known, labels, 0), 0, labels.dtype),
    }

  def _place(self, units: np.ndarray) -> tuple[list[tuple[int, int, int, int, int]], Shape]:
    """(sequence, row, column, slot, group) of each sequence of the units, and the shape that they need."""
    placed = self._packed(units)
    need = self._shape_of(placed)
    shape = next((s for s in self.shapes if s[0] >= need[0] and s[1] >= need[1]), None)
    assert shape is not None, f"{need} exceeds {self.shapes[-1]}, which holds any batch"
    lengths, columns, slots, result = self.features.lengths, {}, {}, []
    for part, group, sequence, row in placed:
      row, size = row * self.parts + part, int(lengths[sequence])
      column, slot = columns.get(row, 0), slots.get(row, 0)
      columns[row], slots[row] = column + size, slot + 1
      if not self.pack and self.features.cls_last:
        column = shape[1] - size  # XLNet pads at the left
      result.append((sequence, row, column, slot, group))
    return result, shape

  def _packed(self, units: np.ndarray) -> list[tuple[int, int, int, int]]:
    """(part, group, sequence, row of the part) of each sequence of the units."""
    bounds, lengths, placed = self.features.units, self.features.lengths, []
    for part in range(self.parts):
      some = [
        (part, group, sequence)
        for group, unit in enumerate(units[part :: self.parts].tolist())
        for sequence in range(bounds[unit], bounds[unit + 1])
      ]
      sizes = [int(lengths[sequence]) for *_, sequence in some]
      rows = first_fit(sizes, self.length, self.slots)
      placed += [(*one, row) for one, row in zip(some, rows, strict=True)]
    return placed

  def _shape_of(self, placed: Sequence[tuple[int, int, int, int]]) -> Shape:
    """The least shape, in rows and tokens, that holds the sequences."""
    rows = self._rows(1 + max(row for *_, row in placed))
    if self.pack:
      return rows, self.length
    return rows, self._rounded(max(int(self.features.lengths[sequence]) for _, _, sequence, _ in placed))

  def _need(self, units: np.ndarray) -> Shape:
    return self._shape_of(self._packed(units))

  def _rows(self, of_part: int) -> int:
    return self.parts * self.row_parts * -(-of_part // self.row_parts)

  def _rounded(self, length: int) -> int:
    return min(-(-length // _LENGTHS) * _LENGTHS, self.length)

  def _most(self, sizes: np.ndarray, count: int) -> int:
    """The sum of `sizes` over the largest `count` units that a batch may have, some of them once an epoch."""
    times = 1 if self.num_units % self.batch_size == 0 else 1 + -(-(self.batch_size - 1) // self.num_units)
    return int(np.repeat(np.sort(sizes)[-count:], times)[-count:].sum())

  def _most_rows(self) -> int:
    """Rows that hold any batch. First fit leaves no two rows that would fit into one, so rows of which none is full of
    slots are fewer than twice the tokens over the length."""
    count = self.batch_size // self.parts
    tokens = self._most(np.add.reduceat(self.features.lengths, self.features.units[:-1]), count)
    sequences = self._most(np.diff(self.features.units), count)
    return self._rows(min(sequences, 2 * tokens // self.length + 1 + sequences // self.slots))


def first_fit(sizes: Sequence[int], room: int, most: int) -> list[int]:
  """The row of each of some sequences: the longest first, each into the first row that has room for it.

  Args:
    sizes: tokens of each.
    room: tokens of a row.
    most: sequences of a row.
  """
  rows, free, left = [0] * len(sizes), [], []
  for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
    row = next((r for r, space in enumerate(free) if space >= sizes[i] and left[r]), None)
    if row is None:
      row = len(free)
      free.append(room)
      left.append(most)
    rows[i] = row
    free[row] -= sizes[i]
    left[row] -= 1
  return rows


def levels(needs: np.ndarray, most: int) -> list[int]:
  """At most MOST_SHAPES sizes, ascending, the last `most`: as few as give what is needed with hardly more than the
  least that so many can give, for each is a program to compile."""
  distinct = np.unique(needs)
  if len(distinct) > 24:  # few enough to try every choice
    distinct = np.unique(np.quantile(needs, np.linspace(0, 1, 24), method="higher"))
  below = distinct[distinct < most].tolist()
  cost = lambda sizes: np.take(sizes, np.searchsorted(sizes, needs)).sum()
  best = [
    min(((*some, most) for some in itertools.combinations(below, n)), key=cost)
    for n in range(min(MOST_SHAPES, len(below) + 1))
  ]
  return list(next(sizes for sizes in best if cost(sizes) <= (1 + _SLACK) * cost(best[-1])))


def batches(
  source: TaskSource, start: int, stop: int, local: Callable[[int], np.ndarray] = np.arange
) -> grain.DatasetIterator[Batch]:
  """Iterates over the batches of training steps start … stop - 1; close() it when done.

  Args:
    source: what makes them.
    start, stop: steps.
    local: rows of a batch → those of this process.
  """
  return iterate(start, stop, lambda step: _local(source.batch(step), local))


def evaluation_batches(
  source: TaskSource, count: int | None = None, local: Callable[[int], np.ndarray] = np.arange
) -> grain.DatasetIterator[Batch]:
  """Iterates over all units once, in order (or the first `count` batches); close() it when done."""
  stop = source.num_batches if count is None else min(count, source.num_batches)
  return iterate(0, stop, lambda step: _local(source.evaluation(step), local))


def _local(batch: Batch, local: Callable[[int], slice]) -> Batch:
  rows = local(len(batch["tokens"]))
  return {name: values[rows] for name, values in batch.items()}
