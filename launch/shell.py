"""Runs commands, or only prints them; a failure becomes one line that says what to do."""

import collections
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from launch.advice import Advice, advice
from launch.pods import Pod

_LINES = 400  # of what a command wrote, for a failure to be looked up
_LAST_WORDS = 5.0  # seconds that what an ended command wrote may take to arrive


class Failure(ValueError):
  """A command failed; the message says what to do.

  Attributes:
    kind: what it is, as launch.advice has it, or "late": it was ended at its limit.
    written: what it wrote to stdout.
  """

  def __init__(self, message: str, kind: str = "unclear", written: str = ""):
    super().__init__(message)
    self.kind = kind
    self.written = written


class Runner:
  """Runs commands one after another.

  Args:
    pod: whose commands they are.
    dry: print them to stdout as they would run, and do nothing.

  Attributes:
    unattended: nobody is there to answer a question or to end what hangs, so limits hold.
  """

  def __init__(self, pod: Pod, dry: bool = False):
    self.dry = dry
    self.unattended = False
    tier = "spot" if pod.spot else "reserved" if pod.reserved else "on-demand"
    project = f" --project={pod.project}" if pod.project else ""
    self._facts = {
      "name": pod.name,
      "zone": pod.zone,
      "type": pod.type or "this type",
      "tier": tier,
      "project": project,
    }

  def run(self, command: Sequence[str], planned: str = "", quiet: bool = False, limit: float | None = None) -> str:
    """Runs a command to its end; returns what it wrote to stdout.

    Args:
      command: the program and its arguments.
      planned: what it is taken to write in a dry run.
      quiet: show nothing of it.
      limit: seconds after which it is ended, if the runner is unattended.

    Raises:
      Failure: its status is not 0, or the limit is over; the message says what to do.
    """
    if self.dry:
      print(shlex.join(command), flush=True)
      return planned
    if not quiet:
      print("$", shlex.join(command), file=sys.stderr, flush=True)
    limit = limit if self.unattended else None
    status, written, output = self.execute(command, quiet, limit)
    # gcloud goes on, and ends with 0, where it does not reach all slices.
    if status == 0 and "Could not prepare all" not in output:
      return written
    shown = f"`{shlex.join(command[:6])} …`"
    reaching = any(verb in command[:6] for verb in ("ssh", "scp"))
    found = self.look_up(output, reaching) if command[0] == "gcloud" else None
    if found:
      raise Failure(found.line, found.kind, written)
    if status is None:
      raise Failure(f"{shown} was not done after {limit / 60:g} minutes", "late", written)
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "it wrote nothing")
    raise Failure(f"{shown} ended with status {status}: {last}", written=written)

  def execute(self, command: Sequence[str], quiet: bool, limit: float | None) -> tuple[int | None, str, str]:
    """Runs a command; returns its status, None where it was ended at its limit, what it wrote to stdout, and the end of
    what it wrote to stderr."""
    try:
      process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        # In a session of its own it can be ended with all that it has started, but not ask for a passphrase.
        start_new_session=limit is not None,
        stdin=subprocess.DEVNULL if limit is not None else None,
      )
    except FileNotFoundError:
      raise Failure(f"{command[0]} is not installed", "mend") from None
    said = collections.deque(maxlen=_LINES)
    written = []

    def complain(line: str) -> None:
      said.append(line)
      if not quiet:
        sys.stderr.write(line)
        sys.stderr.flush()

    def show(line: str) -> None:
      written.append(line)
      if not quiet:
        sys.stdout.write(line)
        sys.stdout.flush()

    try:
      readers = [_reading(process.stdout, show), _reading(process.stderr, complain)]
      status = process.wait(limit)
    except subprocess.TimeoutExpired:
      status = None
      _end(process)
    except BaseException:
      _end(process)  # Ctrl-C: nothing is waited for that the command may have left behind
      raise
    for reader in readers:
      reader.join(None if limit is None and status is not None else _LAST_WORDS)
    return status, "".join(written), "".join(said)

  def look_up(self, output: str, reaching: bool = False) -> Advice | None:
    """Returns what to do about a failure of gcloud that wrote `output`, if that is known."""
    return advice(output, self._facts, reaching)


def _end(process: subprocess.Popen) -> None:
  """Ends a process, and where it has a session of its own all that it has started."""
  with contextlib.suppress(ProcessLookupError):
    leads = os.getpgid(process.pid) == process.pid
    os.killpg(process.pid, signal.SIGKILL) if leads else process.kill()
  process.wait()


def _reading(stream, take: Callable[[str], None]) -> threading.Thread:
  """Starts to hand a stream's lines on."""

  def read() -> None:
    with stream:
      for line in stream:
        take(line)

  thread = threading.Thread(target=read, daemon=True)
  thread.start()
  return thread
