"""What every way of starting a run shares: train.py's own arguments, looked at before anything is started."""

import pathlib
import shlex
from collections.abc import Sequence

ROOT = pathlib.Path(__file__).parent.parent  # the checkout


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
  """Returns what stands before the first `--`, and what stands after it."""
  argv = list(argv)
  at = argv.index("--") if "--" in argv else len(argv)
  return argv[:at], argv[at + 1 :]


def check(arguments: Sequence[str]) -> list[str]:
  """Reads train.py's arguments as train.py will, so that a misspelt field costs nothing; returns lines to print.

  Raises:
    ValueError: a mistake, in one line.
  """
  if not arguments:
    raise ValueError(
      "no arguments for train.py; put them after --, e.g. -- --config=configs/quickstart.py:bert --workdir=runs/first"
    )
  try:
    from absl import flags

    from training import run_flags
  except ImportError as error:  # a machine that only starts runs needs nothing but Python
    return [f"note: train.py's arguments are checked where it runs, not here ({error})"]
  values = flags.FlagValues()
  argv = ["train.py", *arguments]
  run_flags.define(values, argv)
  run_flags.read(argv, values)
  return []


def shown(command: Sequence[str]) -> str:
  """Returns a command as a shell would read it, on one line."""
  return shlex.join(command)
