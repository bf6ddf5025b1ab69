"""Files that are either whole or not there, and the processes that write them."""

import collections
import contextlib
import json
import multiprocessing
import os
import pathlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any

import tqdm
from array_record.python import array_record_module

_AHEAD = 4  # results a process may be ahead of the first that is missing


def write_bytes(path: pathlib.Path, chunks: Iterable[bytes]) -> None:
  """Writes a file under another name and renames it when it is whole and on disk; replaces what was there.

  Raises:
    OSError: the disk is full.
  """
  partial = _partial(path)
  try:
    with partial.open("wb") as file:
      for chunk in chunks:
        with _reported(path):
          file.write(chunk)
      with _reported(path):
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
  finally:
    partial.unlink(missing_ok=True)


def write_json(path: pathlib.Path, value: Any) -> None:
  """As `write_bytes`; equal values have equal text."""
  write_bytes(path, [(json.dumps(value, indent=1) + "\n").encode()])


@contextlib.contextmanager
def record_writer(path: pathlib.Path, options: str = "group_size:1") -> Iterator[Callable[[bytes], None]]:
  """Yields the function that appends a record to an ArrayRecord file; the file appears, whole, when the context ends.

  Raises:
    OSError: the disk is full, or what was written does not read back.
  """
  partial, count = _partial(path), 0
  try:
    with _reported(path):
      writer = array_record_module.ArrayRecordWriter(str(partial), options)

    def write(record: bytes) -> None:
      nonlocal count
      with _reported(path):
        writer.write(record)
      count += 1

    try:
      yield write
    finally:
      with _reported(path):
        writer.close()  # only here does the library say what went wrong
    if (found := num_records(partial)) != count:
      raise OSError(f"{path}: {count} records were written, {found} read back")
    with partial.open("rb") as file:
      os.fsync(file.fileno())
    partial.replace(path)
  finally:
    partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _reported(path: pathlib.Path) -> Iterator[None]:
  """What goes wrong while writing, as one line that names the file people know."""
  try:
    yield
  except (OSError, RuntimeError) as error:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).split(";")[0]
    fix = "; free some space and run the same command again, it continues" if "space" in reason else ""
    raise OSError(f"{path}: {reason}{fix}") from None


def num_records(path: pathlib.Path) -> int:
  """The number of records in an ArrayRecord file; 0 if there is none."""
  reader = array_record_module.ArrayRecordReader(str(path))
  count = reader.num_records()
  reader.close()
  return count


def _partial(path: pathlib.Path) -> pathlib.Path:
  return path.with_name(path.name + ".partial")


def run(function: Callable[[Any], Any], jobs: Sequence[Any], processes: int, label: str) -> list[Any]:
  """`stream`, collected."""
  return list(stream(function, jobs, processes, label))


def stream(function: Callable[[Any], Any], jobs: Sequence[Any], processes: int, label: str) -> Iterator[Any]:
  """Applies a picklable function to every job and yields the results in order of the jobs, few of them waiting.

  One process means this one. Otherwise processes are spawned (never forked: the libraries here hold threads); they end
  when this one does, even if it is killed, so a second run never meets the first run's workers.

  Raises:
    OSError: a process was killed, most often for want of memory.
  """
  processes = min(processes, len(jobs))
  results = map(function, jobs) if processes <= 1 else _spawned(function, jobs, processes)
  yield from tqdm.tqdm(results, total=len(jobs), desc=label, unit="part", disable=None if len(jobs) > 1 else True)


def _spawned(function: Callable[[Any], Any], jobs: Sequence[Any], processes: int) -> Iterator[Any]:
  context = multiprocessing.get_context("spawn")
  pool = futures.ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker)
  waiting = collections.deque()
  try:
    for job in jobs:
      waiting.append(pool.submit(function, job))
      if len(waiting) == _AHEAD * processes:
        yield waiting.popleft().result()
    while waiting:
      yield waiting.popleft().result()
  except futures.process.BrokenProcessPool:
    raise OSError("a worker process was killed; is the machine out of memory? try fewer --processes") from None
  except BaseException:
    # What they are at is lost anyway: a file is whole or not there.
    for worker in multiprocessing.active_children():
      worker.terminate()
    raise
  finally:
    pool.shutdown(cancel_futures=True)


def _start_worker() -> None:
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is the first process's to handle
  os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
  threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
  multiprocessing.parent_process().join()
  os._exit(1)
