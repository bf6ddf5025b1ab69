"""Records of a task from a TFDS data set kept as ArrayRecord, by the task's own names of columns and labels."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from data.tasks.table import Task

_AT_ONCE = 256  # one by one costs several times as much
_NO_SCORE = -1.0  # GLUE's test sets have it for every label, a number's too


def records(task: Task, name: str, split: str, data_dir: str | None = None) -> Iterator[dict[str, Any]]:
  """Yields the records of a split; the data set is downloaded and prepared if it is not there yet.

  Args:
    task: its columns and labels; TFDS's class numbers become its names of labels, -1 (test sets) no label, and neither
      is a score of -1 where the task's bounds leave it out.
    name: for example "glue/cola".
    split: ours; task.tfds_splits has TFDS's.
    data_dir: where TFDS keeps its data sets.

  Raises:
    ValueError: an unknown data set or split, a missing column, or TFRecord files without TensorFlow.
  """
  import tensorflow_datasets as tfds

  from data import corpora

  builder = corpora.prepared(name, data_dir)
  wanted = task.tfds_splits.get(split, split)
  if wanted not in builder.info.splits:
    raise ValueError(f"{name} has no split {wanted!r}; it has {', '.join(builder.info.splits)}")
  if builder.info.file_format == tfds.core.FileFormat.TFRECORD:
    source = list(builder.as_dataset(split=wanted).as_numpy_iterator())
  else:
    source = builder.as_data_source(split=wanted)
  ours = {theirs: column for column, theirs in task.tfds_columns.items()}
  features = builder.info.features
  for first in range(0, len(source), _AT_ONCE):
    numbers = range(first, min(first + _AT_ONCE, len(source)))
    some = source.__getitems__(numbers) if hasattr(source, "__getitems__") else [source[i] for i in numbers]
    for record in some:
      plain = {ours.get(key, key): _plain(task, features[key], value) for key, value in record.items()}
      if task.bounds and plain.get(task.label) == _NO_SCORE < task.bounds[0]:
        plain[task.label] = None
      yield plain


def _plain(task: Task, feature: Any, value: Any) -> Any:
  """Text as str, class numbers as the task's labels, sequences as lists."""
  import tensorflow_datasets as tfds

  if isinstance(feature, tfds.features.ClassLabel):
    return _label(task, feature, int(value))
  if isinstance(feature, tfds.features.FeaturesDict):
    return {key: _plain(task, feature[key], each) for key, each in value.items()}
  if isinstance(feature, tfds.features.Sequence):
    inner = feature.feature
    if isinstance(value, dict):  # a sequence of dictionaries comes as a dictionary of sequences
      return {key: [_plain(task, inner[key], x) for x in each] for key, each in value.items()}
    return [_plain(task, inner, x) for x in value]
  if isinstance(value, bytes):
    return value.decode()
  if isinstance(value, np.ndarray | np.generic):
    return _plain(task, None, value.tolist())
  return value


def _label(task: Task, feature: Any, number: int) -> str | int | None:
  if number < 0:
    return None
  if task.kind not in ("classification", "tagging"):
    return number
  name = feature.int2str(number)
  if not task.labels or name in task.labels:
    return name
  return task.labels[number] if task.kind == "classification" and number < len(task.labels) else name
