"""The command line of a run: its flags, and one line for whatever ends it early."""

import os
import sys
import threading
import traceback
from collections.abc import Callable

import jax
from absl import app, flags, logging
from ml_collections import ConfigDict

from training import interrupts, run_flags
from training.aftermath import hush
from training.checkpoint import first_line
from training.memory import keep_freed_memory
from training.saved import saved_steps

AGAIN = 75  # status (EX_TEMPFAIL) of a process that nothing is wrong with: the same command may go on
GRACE = 5.0  # seconds that a process which ends early waits for the others to end, too


class ConnectionLost(Exception):
  """The processes of a run do not find each other."""


def run(doc: str, train: Callable[[ConfigDict, str], None]) -> None:
  """Calls `train` with what --config and --workdir say, and exits: 0 when it returns, 1 after a mistake or a failure
  that it reports (ValueError, OSError, FloatingPointError), 130 after Ctrl-C, 75 when the other processes are gone.

  Args:
    doc: what --help prints.
    train: (config, workdir) → None.
  """
  run_flags.define(flags.FLAGS)

  def main(argv: list[str]) -> None:
    del argv
    keep_freed_memory()
    interrupts.listen()
    hush()
    logging.set_verbosity(logging.FATAL)  # libraries' chatter; what concerns the run is raised or printed
    try:
      if flags.FLAGS.distributed:
        join_cluster()
      train(flags.FLAGS.config, flags.FLAGS.workdir)
    except (KeyboardInterrupt, Exception) as error:
      if isinstance(error, KeyboardInterrupt) or interrupts.heard():
        raise leave(interrupted(flags.FLAGS.workdir)) from None
      if isinstance(error, (ValueError, OSError, FloatingPointError)):
        raise leave(fail(error)) from None
      if isinstance(error, ConnectionLost):
        print("error:", error, file=sys.stderr)
        raise leave(SystemExit(AGAIN)) from None
      if not jax.distributed.is_initialized():
        raise
      if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
        print(f"error: the run has lost a process, whose own output says why ({first_line(error)})", file=sys.stderr)
        raise leave(SystemExit(AGAIN)) from None
      traceback.print_exc()
      raise leave(SystemExit(1)) from None

  app.run(main, flags_parser=lambda argv: parse(argv, doc))


def join_cluster() -> None:
  """Makes this process one of a run on several, as SLURM, Open MPI, Kubernetes or a TPU pod's metadata describe it;
  JAX_COORDINATOR_ADDRESS overrides where they meet.

  Raises:
    ValueError: no cluster is found.
    ConnectionLost: its processes do not meet.
  """
  try:
    jax.distributed.initialize()
  except ValueError as error:
    raise ValueError(
      f"--distributed: no cluster to join ({error}); start by srun, by mpirun, by launch.local or on a TPU pod, or "
      "without the flag"
    ) from None
  except RuntimeError as error:
    raise ConnectionLost(f"--distributed: the processes of the run do not meet ({first_line(error)})") from None


def leave(end: SystemExit) -> SystemExit:
  """Ends this process of several without waiting for the others, who may never come to an end of their own; returns
  what to raise in a process that is alone."""
  if jax.distributed.is_initialized():
    sys.stdout.flush()
    sys.stderr.flush()
    farewell = threading.Thread(target=jax.distributed.shutdown, daemon=True)
    farewell.start()  # it returns when all have come to it
    farewell.join(GRACE)
    os._exit(end.code)
  return end


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
  interrupts.end_at_once()
  steps = saved_steps(workdir)
  stands = f"step {steps[-1]} is saved in {workdir}; the same command continues" if steps else "nothing was saved"
  print(f"interrupted: {stands}", file=sys.stderr)
  return SystemExit(128 + 2)
