"""Runs of a sweep as processes: some at a time, each with its log, all of them stopped in good order."""

import collections
import contextlib
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tools import cli, sweep_plan
from tools.sweep_plan import Run

LOG = "sweep.log"  # in a workdir: what the run printed, one attempt after another
REFUSED = "holds another run"  # how train.py says that a workdir is another config's (training/settings.py)
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Ended(NamedTuple):
  """How a run ended: "finished", "stopped" by the sweep, or "failed"; and what is said of it."""

  status: str
  said: str = ""


class Asked:
  """The signals that have asked the sweep to stop; an ignored one (nohup) stays so."""

  def __init__(self):
    self.signals: list[int] = []

  @contextlib.contextmanager
  def listening(self) -> Iterator["Asked"]:
    hear = lambda signum, frame: self.signals.append(signum)
    heard = [signum for signum in SIGNALS if signal.getsignal(signum) is not signal.SIG_IGN]
    with cli.handling(heard, hear):
      yield self


def execute(
  runs: Sequence[Run],
  command: Sequence[str],
  jobs: int,
  asked: Asked,
  on_end: Callable[[Run, Ended], None],
  on_stop: Callable[[int, bool], None],
) -> None:
  """Runs them, `jobs` at a time, until all have ended or one is refused by its workdir or `asked` says to stop: then no
  other is started, and a stop ends those at work by SIGTERM, after which they save, and a second one by SIGKILL.

  Args:
    runs: in the order to start them.
    command: what starts train.py.
    jobs: runs at a time.
    asked: listening to signals.
    on_end: is told how each started run ended.
    on_stop: is told how many runs are being stopped, and whether for the second time.
  """
  waiting, at_work, told = collections.deque(runs), {}, 0
  try:
    while at_work or (waiting and not asked.signals):
      while waiting and len(at_work) < jobs and not asked.signals:
        run = waiting.popleft()
        at_work[run.workdir] = (run, *_start(run, command))
      if len(asked.signals) > told:
        on_stop(len(at_work), told > 0)
        for _, process, _ in at_work.values():
          process.send_signal(signal.SIGKILL if told else signal.SIGTERM)
        told = len(asked.signals)
      time.sleep(0.05)
      for workdir, (run, process, begins) in list(at_work.items()):
        if process.poll() is None:
          continue
        del at_work[workdir]
        ended = _ended(run, process.returncode, begins, bool(told))
        if REFUSED in ended.said:
          waiting.clear()
        on_end(run, ended)
  finally:  # of a mistake of ours: leave nobody behind
    for _, process, _ in at_work.values():
      process.send_signal(signal.SIGTERM)


def _start(run: Run, command: Sequence[str]) -> tuple[subprocess.Popen, int]:
  """Returns the run's process, in a group of its own so that Ctrl-C reaches the sweep alone, and where in the log its
  output begins."""
  run.workdir.mkdir(parents=True, exist_ok=True)
  with open(run.workdir / LOG, "ab") as log:
    begins = os.fstat(log.fileno()).st_size
    process = subprocess.Popen(
      [*command, *run.arguments],
      stdin=subprocess.DEVNULL,
      stdout=log,
      stderr=subprocess.STDOUT,
      process_group=0,
    )
  return process, begins


def _ended(run: Run, status: int, begins: int, stopping: bool) -> Ended:
  reached, asked = sweep_plan.reached(run), sweep_plan.asked_steps(run)
  if status == 0 and reached == asked:
    sweep_plan.finish(run)
    return Ended("finished")
  if stopping:
    return Ended("stopped")
  if status == 0 and reached > asked:
    return Ended("failed", f"its workdir holds step {reached}, and this sweep asks for {asked}; use another --output")
  said = last_line(run.workdir / LOG, begins)
  if status < 0:
    said = f"ended by {signal.Signals(-status).name}" + (", perhaps for want of memory" * (-status == signal.SIGKILL))
  return Ended("failed", said or f"exit status {status}")


def last_line(log: pathlib.Path, begins: int) -> str:
  """Returns the last line of the log from byte `begins` on that says what is wrong, or the last line at all."""
  with open(log, "rb") as file:
    file.seek(begins)
    lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
  wrong = [line for line in lines if line.startswith("error:")]
  return (wrong or lines or [""])[-1]
