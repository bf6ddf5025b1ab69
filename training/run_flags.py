"""The flags of a run and how they are read: without JAX, so that a tool that starts runs can read them, too."""

import re
import sys
from collections.abc import Sequence

from absl import flags
from ml_collections import ConfigDict, config_flags

HINT = " (every field is in configs/base.py; --help shows an example)"


def define(values: flags.FlagValues, argv: Sequence[str] | None = None) -> None:
  """Defines the flags in `values`; those of the config's fields come from `argv`, by default the process's own."""
  argv = recipe_first(sys.argv if argv is None else argv)
  config_flags.DEFINE_config_file(
    "config", None, "A recipe: FILE.py[:VARIANT].", values, lock_config=True, sys_argv=argv
  )
  flags.DEFINE_string("workdir", None, "Where the run lives.", values)
  flags.DEFINE_bool("distributed", False, "Join the processes of a cluster into one run.", values)


def recipe_first(argv: Sequence[str]) -> list[str]:
  """Returns a command line with --config before what changes its fields, wherever it stood."""
  name, *arguments = argv
  return [name, *sorted(arguments, key=lambda argument: not argument.startswith(("--config=", "-config=")))]


def read(argv: Sequence[str], values: flags.FlagValues) -> None:
  """Reads a command line, the program's name first, into `values`.

  Raises:
    ValueError: a mistake, in one line.
  """
  argv = recipe_first(argv)
  try:
    left = values(argv)[1:]
  except IndexError as error:
    indexed = " ".join(argument for argument in argv if "[" in argument)
    raise ValueError(f"{indexed}: the recipe has no such entry ({error}){HINT}") from None
  except (AttributeError, KeyError) as error:  # ml_collections' ways to say so, one within the other
    raise ValueError(one_line(f"unknown field {innermost(error)}".replace("\nDid", "; did")) + HINT) from None
  except (flags.Error, ValueError, TypeError, OSError) as error:
    raise ValueError(one_line(error) + HINT) from None
  if left:
    raise ValueError(f"{left[0]!r} is no flag; write --{left[0].lstrip('-')} if it is meant as one{HINT}")
  for name in ("config", "workdir"):
    if values[name].value is None:
      raise ValueError(
        f"--{name} is required, e.g. python train.py --config=configs/quickstart.py:bert --workdir=runs/first"
      )


def parsed(arguments: Sequence[str]) -> tuple[str, ConfigDict]:
  """Returns the recipe, FILE.py[:VARIANT], and the config that train.py makes of these arguments.

  Raises:
    ValueError: a mistake in them, as train.py says it.
  """
  values, argv = flags.FlagValues(), ["train.py", *arguments]
  define(values, argv)
  read(argv, values)
  recipe, config = values["config"].config_filename, values["config"].value
  try:
    config.seed  # noqa: B018 - of a file that could not be loaded, only now it is said
  except (ValueError, OSError) as error:
    raise ValueError(one_line(error)) from None
  return recipe, config


def innermost(error: Exception) -> str:
  """Returns what an error says that may wrap another one; a KeyError's text would be quoted once more each time."""
  reason = error.args[0] if error.args else error
  return innermost(reason) if isinstance(reason, Exception) and reason is not error else str(reason)


def one_line(reason) -> str:
  """Returns a mistake's text as one line."""
  lines = str(reason).strip().splitlines()
  if "Traceback" in str(reason):  # a recipe's own error, wrapped by the flag parser: its last line says what is wrong
    lines = [re.sub(r"^\w+(Error|Exception): ", "", lines[-1])]
  return " ".join(" ".join(lines).split())
