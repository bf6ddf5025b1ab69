"""Processes that tests start as one run."""

import pathlib
import subprocess

from launch import local


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
