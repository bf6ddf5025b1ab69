"""Files that are either whole or not there, and the processes that write them, one command at a time."""

import collections
import contextlib
import contextvars
import fcntl
import json
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent import futures
from multiprocessing import resource_tracker
from typing import Any, NamedTuple

import tqdm
from array_record.python import array_record_module
from etils import epath

from data import places

PARTIAL = ".partial"  # how the names of files end that are being written
_AHEAD = 4  # results a process may be ahead of the first that is missing
_attempt = contextvars.ContextVar("attempt", default="")


@contextlib.contextmanager
def attempt() -> Iterator[None]:
  """For a job that others may be at as well, which no lock keeps apart: until the block ends, files that are being
  written here have names that nobody else uses."""
  token = _attempt.set(f".{uuid.uuid4().hex[:12]}")
  try:
    yield
  finally:
    _attempt.reset(token)


@contextlib.contextmanager
def _new_file(path: epath.PathLike) -> Iterator[pathlib.Path]:
  """Yields a local file to write; when the context ends, that is on disk, or in its bucket, and gets its name."""
  path = epath.Path(path)
  partial = path.parent / f"{path.name}{_attempt.get()}{PARTIAL}"
  try:
    if places.is_remote(path):
      with tempfile.TemporaryDirectory() as folder:
        local = pathlib.Path(folder, path.name)
        yield local
        places.copy(local, partial)
    else:
      yield pathlib.Path(partial)
      with partial.open("rb") as file, _reported(path):
        os.fsync(file.fileno())
    partial.replace(path)
  finally:
    partial.unlink(missing_ok=True)


@contextlib.contextmanager
def file_writer(path: epath.PathLike) -> Iterator[Callable[[bytes], None]]:
  """Yields the function that appends to a file; the file appears, whole and on disk, when the context ends.

  Until then it has another name, and what was there before stays.

  Raises:
    OSError: the disk is full.
  """
  with _new_file(path) as new:
    file = new.open("wb")
    try:

      def write(chunk: bytes) -> None:
        with _reported(path):
          file.write(chunk)

      yield write
      with _reported(path):
        file.flush()
    finally:
      with contextlib.suppress(OSError):  # what could not be written was reported, or the file is not wanted
        file.close()


def write_bytes(path: epath.PathLike, chunks: Iterable[bytes]) -> None:
  """`file_writer` for what is at hand."""
  with file_writer(path) as write:
    for chunk in chunks:
      write(chunk)


def write_json(path: epath.PathLike, value: Any) -> None:
  """As `write_bytes`; equal values have equal text."""
  write_bytes(path, [(json.dumps(value, indent=1) + "\n").encode()])


@contextlib.contextmanager
def record_writer(path: epath.PathLike, options: str = "group_size:1") -> Iterator[Callable[[bytes], None]]:
  """Yields the function that appends a record to an ArrayRecord file; the file appears, whole, when the context ends.

  Raises:
    OSError: the disk is full, or what was written does not read back.
  """
  count = 0
  with _new_file(path) as new:
    with _reported(path):
      writer = array_record_module.ArrayRecordWriter(str(new), options)

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
    if (found := num_records(new)) != count:
      raise OSError(f"{path}: {count} records were written, {found} read back")


@contextlib.contextmanager
def _reported(path: epath.PathLike) -> Iterator[None]:
  """What goes wrong while writing, as one line that names the file people know."""
  try:
    yield
  except (OSError, RuntimeError) as error:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).split(";")[0]
    fix = "; free some space and run the same command again" if "space" in reason else ""
    raise OSError(f"{path}: {reason}{fix}") from None


def num_records(path: epath.PathLike) -> int:
  """The number of records in an ArrayRecord file; 0 if there is none, or only a piece of one."""
  reader = array_record_module.ArrayRecordReader(str(path))
  count = reader.num_records()
  with contextlib.suppress(RuntimeError):  # the library says here, and only here, that the file is damaged
    reader.close()
  return count


@contextlib.contextmanager
def locked(folder: epath.Path, busy: str, wait: bool = False) -> Iterator[None]:
  """Holds a folder's lock, which ends with the process at the latest. In a bucket there are none.

  Args:
    folder: it must exist; it keeps a file `.lock`.
    busy: what to say if another process holds the lock.
    wait: say it on stderr and wait, instead of raising it.

  Raises:
    OSError: another process holds the lock.
  """
  if places.is_remote(folder):
    yield
    return
  with (folder / ".lock").open("w") as lock:
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      if not wait:
        raise OSError(busy) from None
      print(busy, file=sys.stderr, flush=True)
      fcntl.flock(lock, fcntl.LOCK_EX)
    yield


class Pass(NamedTuple):
  """Jobs that may be done in any order and side by side.

  Attributes:
    label: what they are, in a word.
    function: does one, and leaves its result in files that are whole or not there; one that is done, it leaves alone.
    jobs: its arguments.
  """

  label: str
  function: Callable[[Any], Any]
  jobs: Sequence[Any]


Run = Callable[[Sequence[Pass]], None]
"""Does passes one after another. `run` does it here, `data.beam` elsewhere."""


def run(passes: Sequence[Pass], processes: int = 1) -> None:
  """A `Run`: `stream`, for what it leaves in files."""
  for label, function, jobs in passes:
    collections.deque(stream(function, jobs, processes, label), maxlen=0)


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
  _start_tracker()
  context = multiprocessing.get_context("spawn")
  pool = futures.ProcessPoolExecutor(processes, mp_context=context, initializer=_start_worker)
  waiting = collections.deque()
  try:
    for job in jobs:
      with _uninterrupted():  # this may start a process
        waiting.append(pool.submit(_do, function, job))
      if len(waiting) == _AHEAD * processes:
        yield waiting.popleft().result()
    while waiting:
      yield waiting.popleft().result()
  except futures.process.BrokenProcessPool:
    raise OSError("a worker process was killed; is the machine out of memory? try fewer --processes") from None
  except BaseException:
    # What they are at is lost anyway, and `_do` sees to it that no half of it stays.
    for worker in multiprocessing.active_children():
      worker.terminate()
    raise
  finally:
    pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
  """Keeps ^C until the context ends; a process started in it never sees ^C, which is the first one's to handle."""
  if threading.current_thread() is not threading.main_thread():
    yield
    return
  seen = []
  handler = signal.signal(signal.SIGINT, lambda *args: seen.append(args))  # another thread may be told
  mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a new process inherits this
  try:
    yield
  finally:
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    signal.signal(signal.SIGINT, handler)
  if seen and callable(handler):
    handler(*seen[0])


def _start_tracker() -> None:
  """Starts the process that frees what a killed parent leaves; it does, so nobody needs its warning about it."""
  sys.warnoptions.append("ignore:resource_tracker")
  try:
    resource_tracker.ensure_running()
  finally:
    sys.warnoptions.pop()


class _Terminated(BaseException):
  """SIGTERM while a job is running."""


def _do(function: Callable[[Any], Any], job: Any) -> Any:
  """Runs a job in a worker; one that is terminated cleans up first, as after any error."""
  signal.signal(signal.SIGTERM, _terminate)
  try:
    return function(job)
  except _Terminated:
    os._exit(1)
  finally:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(*_: Any) -> None:
  raise _Terminated


def _start_worker() -> None:
  os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes are the parallelism
  threading.Thread(target=_die_with_parent, daemon=True).start()


def _die_with_parent() -> None:
  multiprocessing.parent_process().join()
  os._exit(1)
