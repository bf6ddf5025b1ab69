"""The command line of a run: its flags, and one line for whatever ends it early."""

import sys
from collections.abc import Callable

import jax
from absl import app, flags, logging
from ml_collections import ConfigDict

from training import run_flags
from training.aftermath import hush
from training.checkpoint import saved_steps
from training.memory import keep_freed_memory


def run(doc: str, train: Callable[[ConfigDict, str], None]) -> None:
  """Calls `train` with what --config and --workdir say, and exits: 0 when it returns, 1 after a mistake or a failure
  that it reports (ValueError, OSError, FloatingPointError), 130 after Ctrl-C.

  Args:
    doc: what --help prints.
    train: (config, workdir) → None.
  """
  run_flags.define(flags.FLAGS)

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
  try:
    run_flags.read(argv, flags.FLAGS)
  except ValueError as error:
    raise fail(error) from None
  return argv[:1]


def fail(reason) -> SystemExit:
  """Prints a user's mistake as one line; returns what to raise."""
  print("error:", run_flags.one_line(reason), file=sys.stderr)
  return SystemExit(1)


def interrupted(workdir: str) -> SystemExit:
  """Says where a run stands that Ctrl-C has ended; returns what to raise."""
  steps = saved_steps(workdir)
  stands = f"step {steps[-1]} is saved in {workdir}; the same command continues" if steps else "nothing was saved"
  print(f"interrupted: {stands}", file=sys.stderr)
  return SystemExit(128 + 2)
