"""What every way of starting a run shares: train.py's own arguments, looked at before anything is started."""

import pathlib
import subprocess
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
    from training import run_flags
  except ImportError as error:  # a machine that only starts runs needs nothing but Python
    return [f"note: train.py's arguments are checked where it runs, not here ({error})"]
  run_flags.parsed(arguments)
  return []


def check_committed(arguments: Sequence[str]) -> None:
  """Raises ValueError if the recipe is not in the commit that the hosts get."""
  commit()
  recipe = next((a.partition("=")[2].partition(":")[0] for a in arguments if a.startswith("--config=")), "")
  known = subprocess.run(["git", "-C", str(ROOT), "cat-file", "-e", f"HEAD:{recipe}"], capture_output=True)
  if known.returncode:
    raise ValueError(f"--config={recipe} is no file of the commit that the hosts get; commit it, or look at its name")


def commit() -> tuple[str, list[str]]:
  """Returns the checkout's commit, and the tracked files that differ from it.

  Raises:
    ValueError: the checkout is none of git's.
  """
  git = lambda *words: subprocess.run(
    ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
  ).stdout.splitlines()
  try:
    return git("rev-parse", "HEAD")[0], [line[3:] for line in git("status", "--porcelain", "--untracked-files=no")]
  except (OSError, subprocess.CalledProcessError) as error:
    said = getattr(error, "stderr", None) or str(error)
    raise ValueError(f"{ROOT} is no git checkout, of which the hosts get a commit ({said.strip()})") from None
