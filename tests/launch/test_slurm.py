"""The batch script for SLURM: what it asks for, and when it goes back into the queue."""

import os
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


STOPPED = "stopped by SIGTERM: step 5 is saved in /shared/large; the same command continues"
LOST = "error: the run has lost a process, whose own output says why (Gloo)"
PASSING = "error: gs://b cannot be reached: 503 (this may pass: the same command goes on)"
MISTAKE = "error: config.steps=0 must be at least 1"
STEP = "step 5/9  train  loss 3"


def ended(tmp_path, srun: str, before: str = "", python: str = "python", **env) -> tuple[int, bool]:
  """Runs the batch script with stubs of SLURM's programs, `srun` being what srun does; returns (status, whether the job
  goes back into the queue)."""
  script = slurm.script(RUN, 1, 0, 1, "1:00", "job", python)
  find = "for a; do case $a in --output=*) log=${a#*=};; esac; done; while [[ $1 = --* ]]; do shift; done\n"
  stubs = {
    "srun": f'#!/bin/bash\necho "$@" > srun.log\n{find}{srun}\n',
    "scontrol": '#!/bin/bash\necho "$@" > queued\n',
  }
  for name, text in stubs.items():
    (tmp_path / name).write_text(text)
    (tmp_path / name).chmod(0o755)
  (tmp_path / "queued").unlink(missing_ok=True)
  with open(tmp_path / "job-7.log", "a") as log:
    log.write(before)
    log.flush()
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node"} | env
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, stdout=log, stderr=log)
  queued = tmp_path / "queued"
  assert not queued.exists() or queued.read_text() == "requeue 7\n"
  return done.returncode, queued.exists()


def says(lines: str, status: int) -> str:
  """Returns a stub of srun whose processes, and which itself, says these lines."""
  return f"cat >> \"$log\" <<'END'\n{lines}\nEND\nexit {status}"


@pytest.mark.parametrize(
  ("lines", "status", "queued"),
  [
    ("done: /shared/large holds step 9", 0, False),
    (STOPPED, 0, True),
    (f"{STOPPED}\nsrun: error: n: task 1: Killed", 137, True),
    (MISTAKE, 1, False),
    (MISTAKE, 137, False),  # the others were killed for it
    (f"{LOST}\n{MISTAKE}\n{LOST}", 75, False),
    (LOST, 75, True),
    (PASSING, 75, True),
    (f"error: process 3 of the run has ended: {PASSING.removeprefix('error: ')}", 75, True),
    (f"error: process 3 of the run has ended: {MISTAKE.removeprefix('error: ')}", 1, False),
    (STEP, 137, True),
    (STEP, 134, True),  # JAX's, when process 0 is gone
    (STEP, 143, True),  # SIGTERM before the run could save
    (STEP, 130, False),
    ("interrupted: nothing was saved", 130, False),
    # Of several processes srun has the highest status, and its lines are in the order in which they ended.
    ("srun: error: n1: tasks 0-3: Exited with exit code 2\nsrun: error: n2: task 4: Killed", 137, False),
    ("srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n2: task 4: Killed", 137, False),
    ("srun: error: n1: task 2: Exited with exit code 130\nsrun: error: n2: tasks 4-7: Terminated", 143, False),
    ("srun: error: n1: task 2: Killed\nsrun: error: n2: task 4: Exited with exit code 1", 137, True),
    ("srun: error: n1: task 2: Aborted (core dumped)\nsrun: error: n2: task 4: Exited with exit code 1", 134, True),
    ("srun: error: n1: task 2: Exited with exit code 75\nsrun: error: n2: tasks 4-7: Killed", 137, True),
    ("srun: error: n1: task 2: Exited with exit code 134\nsrun: error: n2: tasks 4-7: Killed", 137, True),
    ("srun: error: Node failure on n2", 1, True),
    ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***", 1, True),
    ("srun: error: Unable to create step for job 7: Invalid partition", 1, False),
  ],
)
def test_what_is_saved_or_lost_goes_back_into_the_queue_and_a_mistake_does_not(tmp_path, lines, status, queued):
  before = "launch: attempt 0 on node\nstopped by SIGTERM: step 2 is saved\nsrun: error: n: task 0: Killed\n"
  before += f"launch: attempt 1 on node\n{MISTAKE}\n"
  assert ended(tmp_path, says(lines, status), before) == (status, queued)


@pytest.mark.parametrize(
  ("python", "text", "status"),
  [
    ("no/such/python", "", 127),
    ("./python", "import no_such_module", 1),
    ("./python", "raise RuntimeError('RESOURCE_EXHAUSTED: Out of memory')", 1),
    ("./python", "import os, signal; os.kill(os.getpid(), signal.SIGINT)", 130),
  ],
)
def test_what_ends_before_train_py_can_say_why_is_a_mistake(tmp_path, python, text, status):
  (tmp_path / "program.py").write_text(text)
  (tmp_path / "python").write_text(f"#!/bin/bash\nexec {sys.executable} program.py\n")
  (tmp_path / "python").chmod(0o755)
  run = '"$@" >> "$log" 2>&1; status=$?; echo "srun: error: n: task 0: Exited with exit code $status" >&2; exit $status'
  assert ended(tmp_path, run, python=python) == (status, False)


def test_twenty_losses_in_a_row_end_the_job_and_a_saved_step_begins_the_count_anew(tmp_path):
  times = lambda count, step: "".join(
    f"launch: attempt 0 on n\ncontinuing from step {step}\nlaunch: lost a process or its node\n" for _ in range(count)
  )
  lost = lambda before, step: ended(
    tmp_path, says(f"continuing from step {step}\n{LOST}", 75), before, SLURM_RESTART_COUNT="500"
  )[1]
  log = tmp_path / "job-7.log"
  assert lost(times(18, 100), 100)  # however often its time was up
  assert "launch: lost a process or its node, 19 times in a row; 20 end the job\n" in log.read_text()
  assert not lost("", 100)
  log.unlink()
  assert lost(times(19, 100), 200)
  assert "launch: lost a process or its node, 1 times" in log.read_text()
  log.unlink()
  assert lost(times(19, 100) + f"launch: attempt 7 on n\ncontinuing from step 100\n{STOPPED}\n", 100)


def test_srun_asks_for_the_cores_that_sbatch_was_asked_for(tmp_path):
  ended(tmp_path, "exit 0", SLURM_CPUS_PER_TASK="8")
  assert (tmp_path / "srun.log").read_text().startswith("--cpus-per-task=8 --kill-on-bad-exit=1 ")
  ended(tmp_path, "exit 0")
  assert (tmp_path / "srun.log").read_text().startswith("--kill-on-bad-exit=1 ")


@pytest.mark.parametrize("time", ["90", "90:30", "24:00:00", "2-12", "2-12:30", "2-12:30:00", "UNLIMITED"])
def test_a_time_is_slurms(time):
  assert f"#SBATCH --time={time}\n" in checked(printed(f"--time={time}"))


@pytest.mark.parametrize(
  ("flags", "run", "said"),
  [
    (["--nodes=0"], RUN, "--nodes=0 must be at least 1"),
    (["--name=a b"], RUN, "--name='a b' must be letters"),
    (["--time=abc"], RUN, "--time='abc' must be as SLURM writes it"),
    (["--time=1:00\n#SBATCH --qos=x"], RUN, "must be as SLURM writes it"),
    (["--name=a\n#SBATCH --qos=x"], RUN, "must be letters"),
    (["--sbatch=partition=long"], RUN, "--sbatch='partition=long' must be a flag in one line"),
    (["--sbatch=--a=b\n#SBATCH --qos=x"], RUN, "must be a flag in one line"),
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
