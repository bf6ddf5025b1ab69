"""Folders on this machine, and folders in a bucket: what a path may be, and copies from one kind to the other."""

import contextlib
import errno
import fcntl
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import IO, Any

import fsspec
from etils import epath

# Orbax writes past fsspec, which would go on to list a folder as it was before.
fsspec.config.conf.setdefault("gcs", {}).setdefault("use_listings_cache", False)
_AT_ONCE = 16  # requests to a bucket
# ArrayRecord has no class of errors for it: Google's client for buckets, of which it is built, and the system.
_OUT_OF_REACH = re.compile("Retry policy exhausted|CURL error|Input/output error|Stale file handle|timed out")


def is_remote(path: epath.PathLike) -> bool:
  """Returns whether a path is a bucket's, e.g. gs://BUCKET/FOLDER."""
  return "://" in os.fspath(path)


def reach(path: epath.PathLike) -> epath.Path:
  """Returns a path to read and write through.

  Raises:
    ValueError: nothing here reaches such a place; the message says what to install.
  """
  if not is_remote(path):
    return epath.Path(path)
  try:
    found = epath.Path(path)
    found.exists()
  except (ImportError, KeyError, NotImplementedError) as error:  # what etils raises
    hint = "; pip install gcsfs" if os.fspath(path).startswith("gs://") else ""
    raise ValueError(f"{path} cannot be reached ({' '.join(str(error).split())}){hint}") from None
  except Exception as error:  # of gcsfs and of what it stands on: no common class
    raise OSError(f"{path} cannot be reached: {' '.join(str(error).split())[:200]}") from None
  return found


def out_of_reach(error: RuntimeError) -> bool:
  """Returns whether ArrayRecord's error says that a file was not to be read just now, and not that it is damaged."""
  return bool(_OUT_OF_REACH.search(str(error)))


def absolute(path: epath.PathLike) -> epath.Path:
  """Returns a path that means the same in every working directory."""
  return reach(path) if is_remote(path) else epath.Path(os.path.abspath(path))


def make_folder(path: epath.Path) -> None:
  """Makes a folder; in a bucket there is one where a file is."""
  path.mkdir(parents=True, exist_ok=True)
  if is_remote(path):
    (path / ".folder").write_text("")


def lock(file: IO) -> bool:
  """Returns whether this process has the lock of an open local file now, until the file is closed or the process ends:
  not if another one has it. Some network file systems have no locks: there nobody is kept out."""
  try:
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  except OSError as error:
    if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP):
      raise
  return True


@contextlib.contextmanager
def local_copy(folder: epath.PathLike) -> Iterator[pathlib.Path]:
  """Yields the folder if it is local, else a copy of its files (none of its folders) for as long as the block takes."""
  if not is_remote(folder):
    yield pathlib.Path(folder)
    return
  with tempfile.TemporaryDirectory() as copy:
    for file in reach(folder).iterdir() if reach(folder).is_dir() else ():
      if not file.is_dir():
        pathlib.Path(copy, file.name).write_bytes(file.read_bytes())
    try:
      yield pathlib.Path(copy)
    except (ValueError, OSError) as error:  # which names the copy's files, of which nobody knows
      error.args = tuple(arg.replace(copy, os.fspath(folder)) if isinstance(arg, str) else arg for arg in error.args)
      raise


@contextlib.contextmanager
def written(folder: epath.PathLike) -> Iterator[str]:
  """Yields the folder if it is local, else one whose files are copied there when the block ends."""
  if not is_remote(folder):
    yield os.fspath(folder)
    return
  with tempfile.TemporaryDirectory() as copy:
    yield copy
    upload(pathlib.Path(copy), folder)


def upload(folder: pathlib.Path, target: epath.PathLike) -> None:
  """Copies all files below a local folder to a remote one."""
  for file in sorted(folder.rglob("*")):
    if file.is_file():
      copy(file, epath.Path(target) / file.relative_to(folder))


def copy(source: pathlib.Path, target: epath.Path) -> None:
  """Copies a local file, a piece at a time."""
  with source.open("rb") as file, target.open("wb") as copied:
    shutil.copyfileobj(file, copied, 1 << 20)


def each(function: Callable[[epath.Path], Any], paths: Sequence[epath.PathLike]) -> Iterator[Any]:
  """Yields function(path) for every path, in order; of a bucket's, sixteen at once: there, a file takes its time."""
  if not paths or not is_remote(paths[0]):
    yield from map(function, paths)
    return
  with futures.ThreadPoolExecutor(_AT_ONCE) as pool:
    for i in range(0, len(paths), _AT_ONCE):
      yield from pool.map(function, paths[i : i + _AT_ONCE])
