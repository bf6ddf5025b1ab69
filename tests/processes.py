"""Several processes that are one run, for tests."""

import os
import pathlib
import socket
import subprocess

ENV = os.environ | {"JAX_PLATFORMS": "cpu"}


def run_together(command: list[str], log: pathlib.Path, count: int = 2, devices: int = 2, timeout: int = 120) -> str:
  """Runs `count` processes of a command with `devices` virtual devices each, as `srun` would start them; returns what
  they printed, and asserts that they exit with 0."""
  # What `srun` tells its processes; the address is ours, for no node of that name exists.
  cluster = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "node", "SLURM_NTASKS": str(count), "SLURM_LOCALID": "0"}
  cluster["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
  with socket.socket() as free:
    free.bind(("localhost", 0))
    cluster["JAX_COORDINATOR_ADDRESS"] = f"localhost:{free.getsockname()[1]}"
  with open(log, "w") as out:
    processes = [
      subprocess.Popen(command, env=ENV | cluster | {"SLURM_PROCID": str(i)}, stdout=out, stderr=out)
      for i in range(count)
    ]
    try:
      ends = [process.wait(timeout=timeout) for process in processes]
    finally:
      for process in processes:
        process.kill()
  assert ends == [0] * count, log.read_text()
  return log.read_text()
