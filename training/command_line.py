"""The command line of a run: its flags, and one line for whatever ends it early."""

import sys
from collections.abc import Callable

import jax
from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from training.aftermath import hush
from training.checkpoint import saved_steps
from training.memory import keep_freed_memory

HINT = " (every field is in configs/base.py; --help shows an example)"


def run(doc: str, train: Callable[[ConfigDict, str], None]) -> None:
  """Calls `train` with what --config and --workdir say, and exits: 0 when it returns, 1 after a mistake or a failure
  that it reports (ValueError, OSError, FloatingPointError), 130 after Ctrl-C.

  Args:
    doc: what --help prints.
    train: (config, workdir) → None.
  """
  define(flags.FLAGS)

  def main(argv: list[str]) -> None:
    del argv
    keep_freed_memory()
    hush()
    logging.set_verbosity(logging.FATAL)  # libraries' chatter; what concerns the run is raised or printed
    try:
      if flags.FLAGS.distributed:
        join_cluster()
      train(flags.FLAGS.config, flags.FLAGS.workdir)
    except (ValueError, OSError, FloatingPointError) as error:
      raise fail(error) from None
    except KeyboardInterrupt:
      raise interrupted(flags.FLAGS.workdir) from None

  app.run(main, flags_parser=lambda argv: parse(argv, doc))


def define(values: flags.FlagValues) -> None:
  """Defines the flags."""
  config_flags.DEFINE_config_file("config", None, "A recipe: FILE.py[:VARIANT].", values, lock_config=True)
  flags.DEFINE_string("workdir", None, "Where the run lives.", values)
  flags.DEFINE_bool("distributed", False, "Join the processes of a cluster into one run.", values)


def join_cluster() -> None:
  """Makes this process one of a run on several, as SLURM, Open MPI, Kubernetes or a TPU pod's metadata describe it;
  JAX_COORDINATOR_ADDRESS overrides where they meet.

  Raises:
    ValueError: no cluster is found, or its processes do not meet.
  """
  try:
    jax.distributed.initialize()
  except (ValueError, RuntimeError) as error:
    raise ValueError(
      f"--distributed: no cluster to join ({error}); start by srun, by mpirun or on a TPU pod, or without the flag"
    ) from None


def parse(argv: list[str], doc: str) -> list[str]:
  """Parses the command line; a mistake ends in one line, and --config may stand anywhere."""
  if {"--help", "-h", "-help", "--helpfull"} & set(argv):
    print(doc)
    raise SystemExit(0)
  first = [argument for argument in argv[1:] if argument.startswith(("--config=", "-config="))]
  rest = [argument for argument in argv[1:] if argument not in first]
  try:
    left = flags.FLAGS([argv[0], *first, *rest])[1:]
  except IndexError as error:
    indexed = " ".join(argument for argument in rest if "[" in argument)
    raise fail(f"{indexed}: the recipe has no such entry ({error})", HINT) from None
  except (AttributeError, KeyError) as error:  # ml_collections' ways to say so, one within the other
    raise fail(f"unknown field {innermost(error)}".replace("\nDid", "; did"), HINT) from None
  except (flags.Error, ValueError, TypeError, OSError) as error:
    raise fail(error, HINT) from None
  if left:
    raise fail(f"{left[0]!r} is no flag; write --{left[0].lstrip('-')} if it is meant as one", HINT)
  for name in ("config", "workdir"):
    if flags.FLAGS[name].value is None:
      raise fail(f"--{name} is required, e.g. python train.py --config=configs/quickstart.py:bert --workdir=runs/first")
  return argv[:1]


def innermost(error: Exception) -> str:
  """Returns what an error says that may wrap another one; a KeyError's text would be quoted once more each time."""
  reason = error.args[0] if error.args else error
  return innermost(reason) if isinstance(reason, Exception) and reason is not error else str(reason)


def fail(reason, hint: str = "") -> SystemExit:
  """Prints a user's mistake as one line; returns what to raise."""
  lines = str(reason).strip().splitlines()
  if "Traceback" in str(reason):  # a recipe's own error, wrapped by the flag parser: its last line says what is wrong
    lines = lines[-1:]
  print("error:", " ".join(" ".join(lines).split()) + hint, file=sys.stderr)
  return SystemExit(1)


def interrupted(workdir: str) -> SystemExit:
  """Says where a run stands that Ctrl-C has ended; returns what to raise."""
  steps = saved_steps(workdir)
  stands = f"step {steps[-1]} is saved in {workdir}; the same command continues" if steps else "nothing was saved"
  print(f"interrupted: {stands}", file=sys.stderr)
  return SystemExit(128 + 2)
