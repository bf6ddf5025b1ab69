"""Run train.py as several processes on this machine, which are one run: a pod in small.

  python -m launch.local --processes=4 --devices=2 -- --config=configs/quickstart.py:bert --workdir=runs/four

What follows `--` is train.py's own; --distributed is added. With --devices each process computes on that many virtual
devices of the CPU; without, process i takes GPU i. SIGTERM and Ctrl-C go to every process. If one ends badly, the
others cannot go on: they are stopped, and with --restarts all begin again from the last checkpoint, so many times, if
it was killed or has ended with 75 (the network, a bucket or another process had failed). A mistake would be made again.

The status is 0 when all processes end with 0, else that of the first which did not (128 + signal, if one killed it).
"""

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from launch import command
from tools import cli

GRACE = 2.0  # seconds that the others have to say what is wrong, when it is wrong with all of them
POLL = 0.05
RELAYED = (signal.SIGTERM, signal.SIGINT)
AGAIN = 75  # training.command_line's; what starts runs needs no JAX


def main() -> None:
  own, train = command.split(sys.argv[1:])
  parser = cli.parser(__doc__)
  parser.add_argument("--processes", type=int, required=True, help="how many")
  parser.add_argument("--devices", type=int, default=0, help="virtual CPU devices of each; 0 = one GPU each")
  parser.add_argument("--restarts", type=int, default=0, help="how often to begin again after one was lost")
  args = parser.parse_args(own)
  command.check(train)
  each = [sys.executable, str(command.ROOT / "train.py"), "--distributed", *train]
  raise SystemExit(run(each, args.processes, args.devices, args.restarts))


def run(each: Sequence[str], processes: int, devices: int = 0, restarts: int = 0) -> int:
  """Runs `each` as the processes of one run; returns the status.

  Args:
    each: what each process runs; it calls jax.distributed.initialize().
    processes: how many.
    devices: virtual CPU devices of each; 0 = its GPU.
    restarts: how often all begin again after one was lost.

  Raises:
    ValueError: a number that makes no sense.
  """
  for name, value, least in (("processes", processes, 1), ("devices", devices, 0), ("restarts", restarts, 0)):
    if value < least:
      raise ValueError(f"--{name}={value} must be at least {least}")
  for left in range(restarts, -1, -1):
    status, asked = once(each, processes, devices)
    if asked or not left or not is_loss(status):
      break
    print(f"launch: beginning again from the last checkpoint ({left} more after this one)", file=sys.stderr, flush=True)
  return status


def is_loss(status: int) -> bool:
  """Returns whether nothing is wrong with a command that has ended so: 75, or killed by a signal that asks nobody to
  stop. (128 + SIGABRT, 134, is how JAX ends a process when the first one is gone.)"""
  return status == AGAIN or (status > 128 and status - 128 not in RELAYED)


def once(each: Sequence[str], processes: int, devices: int) -> tuple[int, bool]:
  """Runs the processes once; returns (status, whether a signal asked them to stop)."""
  address = f"localhost:{free_port()}"
  started = []
  with relayed(started) as signals:
    try:
      for index in range(processes):
        started.append(subprocess.Popen(each, env=environment(index, processes, devices, address)))
      return wait(started), bool(signals)
    finally:
      for process in started:
        if process.poll() is None:
          process.kill()
        process.wait()


def environment(index: int, processes: int, devices: int, address: str) -> dict[str, str]:
  """Returns a process's environment: what `srun` would tell it, for that JAX reads by itself."""
  slurm = {"JOB_ID": 1, "STEP_NODELIST": "localhost", "NTASKS": processes, "PROCID": index, "LOCALID": index}
  told = {f"SLURM_{name}": str(value) for name, value in slurm.items()} | {"JAX_COORDINATOR_ADDRESS": address}
  if devices:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    told |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags.strip()}
  return os.environ | told


def wait(started: list[subprocess.Popen]) -> int:
  """Waits until all have ended, or one badly; returns its status, having said which it was."""
  bad, deadline = None, math.inf
  while any(process.poll() is None for process in started) and time.monotonic() < deadline:
    if bad is None and (bad := first_bad(started)) is not None:
      deadline = time.monotonic() + GRACE
    time.sleep(POLL)
  if bad is None and (bad := first_bad(started)) is None:
    return 0
  status = started[bad].returncode
  killed = status < 0
  how = f"was killed by {signal.Signals(-status).name}" if killed else f"ended with status {status}"
  print(f"launch: process {bad} of {len(started)} {how}; stopping the others", file=sys.stderr, flush=True)
  return 128 - status if killed else status


def first_bad(started: list[subprocess.Popen]) -> int | None:
  """Returns the number of a process that has ended with another status than 0."""
  return next((index for index, process in enumerate(started) if process.poll() not in (None, 0)), None)


@contextlib.contextmanager
def relayed(started: list[subprocess.Popen]) -> Iterator[list[int]]:
  """Sends the signals that this process gets to all that are `started`; yields the list of those seen."""
  seen = []

  def relay(signum, frame):
    del frame
    seen.append(signum)
    for process in started:
      if process.poll() is None:
        process.send_signal(signum)

  with cli.handling(RELAYED, relay):
    yield seen


def free_port() -> int:
  """Returns a port that nothing listens on."""
  with socket.socket() as free:
    free.bind(("localhost", 0))
    return free.getsockname()[1]


if __name__ == "__main__":
  cli.run(main)
