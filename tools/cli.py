"""What every command line shares: help with an example, and errors as one line on stderr."""

import argparse
import contextlib
import errno
import pathlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator

from data.places import lock


def parser(doc: str) -> argparse.ArgumentParser:
  """Returns a parser whose help is the module's docstring, layout kept."""
  lines = doc.strip().splitlines()
  module = sys.modules["__main__"].__spec__
  return argparse.ArgumentParser(
    prog=f"python -m {module.name}" if module else None,
    description="\n".join(lines),
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )


def run(main: Callable[[], None]) -> None:
  """Runs `main`; a user's mistake (ValueError, OSError) ends in one line on stderr and exit status 1."""
  try:
    main()
  except (ValueError, OSError) as error:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    fix = "; free some space and run the same command again" if full else ""
    of_system = isinstance(error, OSError) and error.strerror and error.filename
    said = f"{error.filename}: {error.strerror}" if of_system and not error.filename2 else error
    print(f"error: {said}{fix}", file=sys.stderr)
    raise SystemExit(1) from None
  except KeyboardInterrupt:
    raise SystemExit(130) from None


def make_folder(path: pathlib.Path) -> None:
  """Makes the folder of --output; raises ValueError if it is a file or lies in one."""
  try:
    path.mkdir(parents=True, exist_ok=True)
  except (FileExistsError, NotADirectoryError):
    raise ValueError(f"{path} is a file or lies in one; --output must name a folder") from None


@contextlib.contextmanager
def claimed(path: pathlib.Path) -> Iterator[None]:
  """Makes the folder of --output and keeps other commands that claim it out, until the block or the process ends.

  Raises:
    ValueError: another is in there, or the path is a file's.
  """
  make_folder(path)
  with (path / ".lock").open("a") as file:
    if not lock(file):
      raise ValueError(f"another command is at work in {path}; wait for it to end, or use another --output")
    yield


def counted(number: int, word: str) -> str:
  """Returns a number and what it counts: "1 run", "2 runs"."""
  return f"{number} {word}{'s' * (number != 1)}"


@contextlib.contextmanager
def handling(signals: Iterable[int], handler: Callable) -> Iterator[None]:
  """Has `handler` (number, frame) called for these signals until the block ends."""
  before = {signum: signal.signal(signum, handler) for signum in signals}
  try:
    yield
  finally:
    for signum, handler in before.items():
      signal.signal(signum, handler)
