"""The run's log: `metrics.jsonl`, one JSON object a record, and the same numbers for TensorBoard."""

import contextlib
import json
import os
import pathlib
import tempfile
import time

import numpy as np
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary

from data.places import is_remote, reach, upload

FILE = "metrics.jsonl"


def plain(value) -> float | int:
  """Returns a number whose text is the shortest that names the same float32: equal values have equal text."""
  if isinstance(value, int | np.integer):
    return int(value)
  return float(str(np.float32(value)))


class MetricsLog:
  """Appends records to DIR/metrics.jsonl and DIR/tensorboard/.

  A run restored at step k drops the records of later steps, and a torn last line, so that the file reads as if the
  run had never been interrupted. A bucket's files cannot grow: there both are written to a local folder, of which
  `sync` sends a copy.

  Args:
    folder: the workdir.
    step: the step the run continues from.
    write: False on all processes but the first: then nothing is written.
  """

  def __init__(self, folder: str, step: int, write: bool = True):
    self._file = self._board = self._target = self._scratch = None
    self.evaluated = False  # whether the file holds an evaluation at `step`
    self._began = time.monotonic()
    if write and is_remote(folder):
      self._target, self._scratch = folder, tempfile.TemporaryDirectory()
      folder = self._scratch.name
      if (there := reach(self._target) / FILE).exists():
        pathlib.Path(folder, FILE).write_bytes(there.read_bytes())
    self.path = os.path.join(folder, FILE)
    if write:
      kept = _keep(self.path, step)
      self.evaluated = any((record["step"], record["split"]) == (step, "eval") for record in kept)
      self._began -= max((record.get("wall_s", 0) for record in kept), default=0)
      self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()
      self._board = _Board(os.path.join(folder, "tensorboard"), step)

  def write(self, step: int, split: str, metrics: dict) -> None:
    """Writes one record: step, split, then the metrics by name, then the wall time of the run so far in seconds.

    Raises:
      OSError: it cannot be written; the disk may be full.
    """
    if self._file is None:
      return
    record = {"step": step, "split": split} | {name: plain(value) for name, value in metrics.items()}
    record["wall_s"] = round(time.monotonic() - self._began, 3)
    try:
      self._file.write(json.dumps(record) + "\n")
      self._file.flush()
      self._board.write(step, {f"{split}/{name}": float(value) for name, value in metrics.items()})
    except OSError as error:
      reason = f"{self.path} cannot be written ({error.strerror})"
      raise OSError(f"{reason}; once it can, run the same command again") from None

  def sync(self) -> None:
    """Sends what is written so far to where it lasts: to disk, or to the bucket."""
    if self._file is None:
      return
    if self._target is None:
      os.fsync(self._file.fileno())
    else:
      upload(pathlib.Path(self._scratch.name), self._target)

  def close(self) -> None:
    """Flushes and closes both files."""
    if self._file is not None:
      for file in (self._file, self._board):
        with contextlib.suppress(OSError):  # of a record that `write` has complained about
          file.close()
    if self._scratch is not None:
      upload(pathlib.Path(self._scratch.name), self._target)
      self._scratch.cleanup()


class _Board:
  """TensorBoard's file of the steps after `step`, each event written and flushed where it is made. (A writer with a
  queue and a thread, as libraries have it, may never end when Ctrl-C has come between the two.)"""

  def __init__(self, folder: str, step: int):
    os.makedirs(folder, exist_ok=True)
    self._events = EventsWriter(os.path.join(folder, "events"), f".{step}")
    if step:  # what an earlier file has of later steps is no longer so
      self._add(Event(step=step + 1, session_log=SessionLog(status=SessionLog.START)))

  def write(self, step: int, numbers: dict[str, float]) -> None:
    values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
    self._add(Event(step=step, summary=Summary(value=values)))

  def _add(self, event: Event) -> None:
    event.wall_time = time.time()
    self._events.write_event(event)
    self._events.flush()

  def close(self) -> None:
    self._events.close()


def read(path: str) -> list[dict]:
  """Returns the whole records of a metrics.jsonl; a torn line, or one that is no record, ends the file."""
  records = []
  if (file := reach(path)).exists():
    with file.open("rb") as lines:
      for line in lines:
        try:
          record = json.loads(line.decode("utf-8"))
        except ValueError:  # no UTF-8, or no JSON
          break
        if not (isinstance(record, dict) and isinstance(record.get("step"), int) and "split" in record):
          break
        records.append(record)
  return records


def _keep(path: str, step: int) -> list[dict]:
  """Rewrites the file with the records up to `step`, none at 0, where the run begins; returns them."""
  kept = [record for record in read(path) if record["step"] <= step and step]
  with open(path + ".new", "w", encoding="utf-8") as file:
    file.writelines(json.dumps(record) + "\n" for record in kept)
  os.replace(path + ".new", path)
  return kept
