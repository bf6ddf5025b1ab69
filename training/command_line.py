"""The command line of a run: its flags, and one line for whatever ends it early."""

import sys
import traceback
from collections.abc import Callable

import jax
from absl import app, flags, logging
from ml_collections import ConfigDict

from training import cluster, failures, interrupts, run_flags
from training.aftermath import hush
from training.checkpoint import first_line
from training.memory import keep_freed_memory
from training.saved import saved_steps

AGAIN = 75  # status (EX_TEMPFAIL) of a process that nothing is wrong with: the same command may go on
INTERRUPTED = 128 + 2


def run(doc: str, train: Callable[[ConfigDict, str], None]) -> None:
  """Calls `train` with what --config and --workdir say, and exits: 0 when it returns, 1 after a mistake or a failure
  that it reports (ValueError, OSError, FloatingPointError) and after any other error (a traceback: a bug, or no
  memory), 130 after Ctrl-C, 75 when the other processes are gone or the network or a bucket has failed. When a process
  of several ends early, the others do so with its status.

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
        cluster.join()
      with cluster.together():
        train(flags.FLAGS.config, flags.FLAGS.workdir)
    except (KeyboardInterrupt, Exception) as error:
      status, line = verdict(error, flags.FLAGS.workdir)
      if not line and not jax.distributed.is_initialized():
        raise
      if not line:
        traceback.print_exc()
        line = f"error: {type(error).__name__}, see above: {first_line(error)}"
      sys.stderr.write(f"{line}\n")  # at once: other processes write to the same log
      cluster.leave(status, line.removeprefix("error: "))
      raise SystemExit(status) from None

  app.run(main, flags_parser=lambda argv: parse(argv, doc))


def verdict(error: BaseException, workdir: str) -> tuple[int, str]:
  """Returns (status, line) of a run that an error has ended; no line of an error that nobody has foreseen."""
  if isinstance(error, KeyboardInterrupt) or interrupts.heard():
    return INTERRUPTED, interrupted(workdir)
  if isinstance(error, cluster.ConnectionLost):
    return AGAIN, f"error: {error}"
  if jax.distributed.is_initialized() and failures.loses(error):
    return AGAIN, f"error: the run has lost a process, whose own output says why ({first_line(error)})"
  if failures.passes(error):
    reason = run_flags.one_line(str(error).strip() or type(error).__name__)
    return AGAIN, f"error: {reason} (this may pass: the same command goes on)"
  if isinstance(error, (ValueError, OSError, FloatingPointError)):
    return 1, f"error: {run_flags.one_line(error)}"
  return 1, ""


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


def interrupted(workdir: str) -> str:
  """Returns where a run stands that Ctrl-C has ended."""
  interrupts.end_at_once()
  steps = saved_steps(workdir)
  stands = f"step {steps[-1]} is saved in {workdir}; the same command continues" if steps else "nothing was saved"
  return f"interrupted: {stands}"
