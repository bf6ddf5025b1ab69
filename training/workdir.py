"""The folder that a run lives in."""

import contextlib
import os
import socket
from collections.abc import Iterator

import jax

from data.places import is_remote, lock, reach

LOCK_FILE = ".lock"


@contextlib.contextmanager
def claimed(folder: str) -> Iterator[None]:
  """Makes the folder and keeps other runs out of it, until the block or the process ends, however it ends.

  On several processes the first one claims it for all. In a bucket there are no locks: there nobody is kept out.

  Raises:
    ValueError: another run is in there, or the path is a file's.
    OSError: it cannot be written to.
  """
  if jax.process_index():
    yield
    return
  if is_remote(folder):
    try:
      (reach(folder) / LOCK_FILE).write_text(f"{socket.gethostname()} {os.getpid()}\n")
    except (OSError, ValueError):
      raise
    except Exception as error:  # of gcsfs: no common class
      raise OSError(f"{folder} cannot be written to: {' '.join(str(error).split())[:200]}") from None
    yield
    return
  try:
    os.makedirs(folder, exist_ok=True)
  except (FileExistsError, NotADirectoryError):
    raise ValueError(f"{folder} is a file or lies in one; --workdir must name a folder, which need not exist") from None
  with open(os.path.join(folder, LOCK_FILE), "a", encoding="utf-8") as file:
    if not lock(file):
      raise ValueError(f"another run is at work in {folder}; wait for it to end, or use another --workdir")
    yield
