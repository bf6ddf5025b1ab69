"""The command lines, run in a notebook's own process: a second process would find a TPU taken, and a GPU's memory."""

import importlib
import sys


def tool(name: str, *arguments) -> None:
  """Does what `python -m tools.NAME ARGUMENTS` does.

  Raises:
    ValueError, OSError: what the command would end with.
  """
  before, sys.argv = sys.argv, [name, *map(str, arguments)]
  try:
    importlib.import_module(f"tools.{name}").main()
  finally:
    sys.argv = before
