"""Runs commands, or only prints them; a failure becomes one line that says what to do."""

import collections
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from launch.advice import advice
from launch.pods import Pod

_LINES = 400  # of what a command wrote, for a failure to be looked up


class Failure(ValueError):
  """A command failed.

  Attributes:
    output: what it wrote.
  """

  def __init__(self, message: str, output: str):
    super().__init__(message)
    self.output = output


class Runner:
  """Runs commands one after another.

  Args:
    pod: whose commands they are.
    dry: print them to stdout as they would run, and do nothing.
  """

  def __init__(self, pod: Pod, dry: bool = False):
    self.dry = dry
    tier = "spot" if pod.spot else "reserved" if pod.reserved else "on-demand"
    project = f" --project={pod.project}" if pod.project else ""
    self._facts = {
      "name": pod.name,
      "zone": pod.zone,
      "type": pod.type or "this type",
      "tier": tier,
      "project": project,
    }

  def run(self, command: Sequence[str], planned: str = "", quiet: bool = False) -> str:
    """Runs a command to its end; returns what it wrote to stdout.

    Args:
      command: the program and its arguments.
      planned: what it is taken to write in a dry run.
      quiet: show nothing of it.

    Raises:
      Failure: its status is not 0; the message says what to do.
    """
    if self.dry:
      print(shlex.join(command), flush=True)
      return planned
    if not quiet:
      print("$", shlex.join(command), file=sys.stderr, flush=True)
    try:
      process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    except FileNotFoundError:
      raise Failure(f"{command[0]} is not installed", "") from None
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

    with process:  # closes its pipes
      for thread in (_reading(process.stdout, show), _reading(process.stderr, complain)):
        thread.join()
    status = process.returncode
    output = "".join(said)
    # gcloud goes on, and ends with 0, where it does not reach all slices.
    if status or "Could not prepare all" in output:
      reaching = any(verb in command[:6] for verb in ("ssh", "scp"))
      hint = self.hint(output, reaching) if command[0] == "gcloud" else None
      last = next((line.strip() for line in reversed(said) if line.strip()), "it wrote nothing")
      told = f"`{shlex.join(command[:6])} …` ended with status {status}: {last}"
      raise Failure(hint or told, output)
    return "".join(written)

  def hint(self, output: str, reaching: bool = False) -> str | None:
    """Returns what to do about a failure of gcloud that wrote `output`, if that is known."""
    return advice(output, self._facts, reaching)

  def may_wait(self, output: str) -> bool:
    """Returns whether all that is missing is room."""
    return "has no room" in (self.hint(output) or "")


def _reading(stream, take: Callable[[str], None]) -> threading.Thread:
  """Starts to hand a stream's lines on."""

  def read() -> None:
    for line in stream:
      take(line)

  thread = threading.Thread(target=read, daemon=True)
  thread.start()
  return thread
