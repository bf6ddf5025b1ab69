"""The batch script for SLURM: what it asks for, and when it goes back into the queue."""

import os
import pathlib
import subprocess
import sys

import pytest

from launch import slurm
from tests.launch.scripts import checked

RUN = ["--config=configs/bert.py:large", "--workdir=/shared/a b", "--config.stages=()"]


def command(*flags: str, run=RUN) -> list[str]:
  return [sys.executable, "-m", "launch.slurm", *flags, "--", *run]


def printed(*flags: str) -> str:
  return subprocess.run(command(*flags), capture_output=True, text=True, check=True).stdout


def test_a_process_a_gpu_sees_all_of_its_node():
  text = checked(printed("--nodes=4", "--gpus=8", "--sbatch=--partition=long"))
  asked = {line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")}
  assert {"--nodes=4", "--ntasks-per-node=8", "--gpus-per-node=8", "--gpu-bind=none", "--partition=long"} <= asked
  assert {"--signal=TERM@120", "--requeue", "--open-mode=append"} <= asked
  assert "JAX_PLATFORMS" not in text
  assert "train.py --distributed --config=configs/bert.py:large '--workdir=/shared/a b' '--config.stages=()'" in text


def test_without_gpus_there_is_a_process_a_node_on_its_cpus():
  text = checked(printed("--nodes=2", "--cpus=32"))
  assert "#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=32\n" in text
  assert "gpu" not in text
  assert "export JAX_PLATFORMS=cpu" in text


@pytest.mark.parametrize(
  ("said", "status", "attempt", "queued"),
  [
    ("done: /shared/large holds step 9", 0, 0, False),
    ("stopped by SIGTERM: step 5 is saved in /shared/large; the same command continues", 0, 30, True),
    ("error: config.steps=0 must be at least 1", 1, 0, False),
    ("error: config.steps=0 must be at least 1", 137, 0, False),  # the others were killed for it
    ("error: the run has lost a process, whose own output says why (Gloo)", 75, 0, True),
    ("step 5/9  train  loss 3", 137, 19, True),
    ("step 5/9  train  loss 3", 137, 20, False),
  ],
)
def test_what_is_saved_or_lost_goes_back_into_the_queue_and_a_mistake_does_not(tmp_path, said, status, attempt, queued):
  script = slurm.script(RUN, 1, 0, 1, "1:00", "job", "python")
  find_log = "for a; do case $a in --output=*) log=${a#*=};; esac; done"
  stubs = {
    "srun": f'#!/bin/bash\n{find_log}\necho "{said}" >> "$log"\nexit {status}\n',
    "scontrol": '#!/bin/bash\necho "$@" > scontrol.log\n',
  }
  for name, text in stubs.items():
    (tmp_path / name).write_text(text)
    (tmp_path / name).chmod(0o755)
  (tmp_path / "job-7.log").write_text("launch: attempt 0 on node\nstopped by SIGTERM: step 2 is saved\n")  # before
  env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node"}
  env["SLURM_RESTART_COUNT"] = str(attempt)
  done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env)
  assert done.returncode == status
  log = pathlib.Path(tmp_path / "scontrol.log")
  assert (log.read_text() if log.exists() else "") == ("requeue 7\n" if queued else "")


@pytest.mark.parametrize(
  ("flags", "run", "said"),
  [
    (["--nodes=0"], RUN, "--nodes=0 must be at least 1"),
    (["--name=a b"], RUN, "--name=a b must be letters"),
    ([], [], "no arguments for train.py"),
    ([], [*RUN, "--config.stps=1"], "'stps'"),
    (["--submit"], RUN, "there is no sbatch here"),
  ],
)
def test_a_mistake_is_one_line(flags, run, said, tmp_path):
  env = os.environ | {"PATH": str(tmp_path)}
  done = subprocess.run(command(*flags, run=run), capture_output=True, text=True, env=env)
  assert done.returncode == 1
  (line,) = done.stderr.splitlines()
  assert line.startswith("error: ")
  assert said in line
