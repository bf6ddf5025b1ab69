"""From what a model says of a batch's rows back to sequences and examples. Numpy alone, on the host."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from data.pipeline import Batch
from data.tasks.flat import Features

Found = dict[int, np.ndarray]  # by the sequence's number in the features


def of_slots(batch: Batch, values: np.ndarray) -> Found:
  """What was said of each sequence: its entry of values [rows, slots, …]."""
  rows, slots = np.nonzero(batch["sequences"] >= 0)
  numbers = batch["sequences"][rows, slots].tolist()
  return dict(zip(numbers, values[rows, slots], strict=True))


def of_tokens(batch: Batch, values: np.ndarray) -> Found:
  """What was said of the tokens of each sequence [its length, …], out of values [rows, length, …]."""
  rows, slots = np.nonzero(batch["sequences"] >= 0)
  own = batch["sequence_ids"][rows] == slots[:, None] + 1
  numbers = batch["sequences"][rows, slots].tolist()
  return {number: values[row][here] for number, row, here in zip(numbers, rows, own, strict=True)}


def first_tokens(batch: Batch) -> np.ndarray:
  """int64 [rows, slots]: where each sequence begins in its row, to be subtracted from positions; 0 in empty slots."""
  slots = 1 + np.arange(batch["sequences"].shape[1])
  return (batch["sequence_ids"][:, None, :] == slots[:, None]).argmax(axis=2)


def of_examples(features: Features, found: Mapping[int, np.ndarray]) -> list[np.ndarray]:
  """What was said of each example, in order.

  Args:
    features: of the split.
    found: of every sequence, `of_slots` of a classification, regression or choice, `of_tokens` of tagging.

  Returns:
    The sequence's own; for choice [options, …]; for tagging [words, …], each word's first piece.

  Raises:
    ValueError: a sequence is missing.
  """
  missing = features.num_sequences - len(found)
  if missing:
    raise ValueError(f"nothing was said of {missing} of {features.num_sequences} sequences")
  if features.kind == "choice":
    own = [range(a, b) for a, b in zip(features.first[:-1], features.first[1:], strict=True)]
    return [np.stack([found[s] for s in some]) for some in own]
  if features.kind != "tagging":
    return [found[s] for s in range(features.num_sequences)]
  result = []
  for first, last in zip(features.first[:-1], features.first[1:], strict=True):
    words = [features.words[features.slice(s)] >= 0 for s in range(first, last)]
    result.append(np.concatenate([found[s][is_word] for s, is_word in zip(range(first, last), words, strict=True)]))
  return result


class WindowArrays(NamedTuple):
  """A question's windows, one a row, padded behind to one length; the fields of scores.spans.Windows."""

  begins: np.ndarray  # int [windows, length]: the token's first character in the context, or -1
  ends: np.ndarray  # int [windows, length]: one past its last
  is_max_context: np.ndarray  # bool [windows, length]
  real: np.ndarray  # bool [windows, length]: no padding


def window_arrays(features: Features, example: int) -> WindowArrays:
  """The windows of a question."""
  sequences = range(features.first[example], features.first[example + 1])
  length = int(features.lengths[sequences.start : sequences.stop].max())
  shape = len(sequences), length
  result = WindowArrays(np.full(shape, -1), np.full(shape, -1), np.zeros(shape, bool), np.zeros(shape, bool))
  for row, sequence in enumerate(sequences):
    own, here = features.slice(sequence), (row, slice(int(features.lengths[sequence])))
    result.begins[here], result.ends[here] = features.spans[own].T
    result.is_max_context[here], result.real[here] = features.max_context[own], True
  return result


def padded(found: Mapping[int, np.ndarray], features: Features, example: int, fill: float) -> np.ndarray:
  """float [windows, length, …]: what was said of the tokens of a question's windows, padded as `window_arrays`."""
  some = [found[s] for s in range(features.first[example], features.first[example + 1])]
  result = np.full((len(some), max(map(len, some)), *some[0].shape[1:]), fill, some[0].dtype)
  for row, values in zip(result, some, strict=True):
    row[: len(values)] = values
  return result
