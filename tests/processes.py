"""Processes that tests start: several that are one run, and such as can be interrupted."""

import pathlib
import signal
import subprocess

from launch import local
from tools import cli


def run_together(command: list[str], log: pathlib.Path, count: int = 2, devices: int = 2, timeout: int = 600) -> str:
  """Runs `count` processes of a command with `devices` virtual devices each, as `srun` would start them; returns what
  they printed, and asserts that they exit with 0."""
  address = f"localhost:{local.free_port()}"
  with open(log, "w") as out:
    processes = [
      subprocess.Popen(command, env=local.environment(i, count, devices, address), stdout=out, stderr=out)
      for i in range(count)
    ]
    try:
      ends = [process.wait(timeout=timeout) for process in processes]
    finally:
      for process in processes:
        process.kill()
  assert ends == [0] * count, log.read_text()
  return log.read_text()


def interruptible():
  """What is started in this block can be interrupted; else what a shell's background job starts ignores it, too."""
  return cli.handling([signal.SIGINT], signal.default_int_handler)
