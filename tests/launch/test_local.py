"""Several processes as one run on this machine: how they end, and that they train as one process does."""

import fcntl
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from launch import local
from tests import compilation, runs
from tests.training import toy_runs
from training import command_line, metrics
from training.checkpoint import saved_steps


def script(text: str) -> list[str]:
  return [sys.executable, "-c", "import os, signal, sys, time\nme = int(os.environ['SLURM_PROCID'])\n" + text]


def test_each_process_is_told_who_it_is_as_by_srun(tmp_path):
  names = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_LOCALID", "JAX_PLATFORMS", "XLA_FLAGS")
  write = f"open(f'{tmp_path}/{{me}}', 'w').write(' '.join(os.environ[name] for name in {names}))"
  assert local.run(script(write), processes=3, devices=2) == 0
  for index in range(3):
    told = (tmp_path / str(index)).read_text()
    assert told.startswith(f"1 localhost 3 {index} cpu ")
    assert told.endswith("--xla_force_host_platform_device_count=2")


@pytest.mark.parametrize(
  ("end", "status", "said"),
  [
    ("sys.exit(3)", 3, "process 1 of 3 ended with status 3; stopping the others"),
    ("os.kill(os.getpid(), signal.SIGKILL)", 137, "process 1 of 3 was killed by SIGKILL; stopping the others"),
  ],
)
def test_one_that_ends_badly_ends_all(capfd, end, status, said):
  began = time.monotonic()
  assert local.run(script(f"if me == 1: {end}\ntime.sleep(60)"), processes=3) == status
  assert time.monotonic() - began < 50
  assert said in capfd.readouterr().err


@pytest.mark.parametrize(
  ("end", "status", "attempts"),
  [
    ("sys.exit(75)", 75, 2),
    ("os.kill(os.getpid(), signal.SIGKILL)", 137, 2),
    ("os.kill(os.getpid(), signal.SIGABRT)", 134, 2),  # JAX's, when process 0 is gone
    ("os.kill(os.getpid(), signal.SIGTERM)", 143, 1),  # while train.py imports: it was asked to stop
    ("sys.exit(130)", 130, 1),
    ("sys.exit(1)", 1, 1),  # a mistake
    ("sys.exit(2)", 2, 1),
    ("import no_such_module", 1, 1),
  ],
)
def test_all_begin_again_after_a_loss_alone_and_no_more_often_than_asked(tmp_path, capfd, end, status, attempts):
  count = f"""
if me == 0:
  with open('{tmp_path}/runs', 'a') as file: file.write('x')
  open('{tmp_path}/counted', 'w').close()
  time.sleep(60)
while not os.path.exists('{tmp_path}/counted'): time.sleep(0.01)
os.remove('{tmp_path}/counted')
{end}
"""
  assert local.run(script(count), processes=2, restarts=1) == status
  assert (tmp_path / "runs").read_text() == "x" * attempts
  assert capfd.readouterr().err.count("beginning again") == attempts - 1


def test_what_a_process_ends_with_is_what_the_launcher_knows():
  assert local.AGAIN == command_line.AGAIN


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_goes_to_all_and_nothing_begins_again(tmp_path, signum):
  listen = f"""
def stop(signum, frame):
  open(f'{tmp_path}/{{me}}.got', 'w').write(str(signum))
  sys.exit(0)
signal.signal({int(signum)}, stop)
open(f'{tmp_path}/{{me}}.ready', 'w').close()
time.sleep(60)
"""
  program = f"import sys; from launch import local; sys.exit(local.run({script(listen)!r}, processes=2, restarts=3))"
  process = subprocess.Popen([sys.executable, "-c", program])
  wait_for(lambda: len(list(tmp_path.glob("*.ready"))) == 2, process)
  process.send_signal(signum)
  assert process.wait(timeout=55) == 0
  assert [(tmp_path / f"{index}.got").read_text() for index in range(2)] == [str(int(signum))] * 2


@pytest.mark.parametrize(
  ("arguments", "said"),
  [
    (["--processes=0", "--", "--config=configs/quickstart.py:bert", "--workdir=x"], "--processes=0 must be at least 1"),
    (["--processes=2"], "no arguments for train.py; put them after --"),
    (["--processes=2", "--", "--config=configs/quickstart.py:bert"], "--workdir is required"),
    (["--processes=2", "--", "--config=configs/quickstart.py:bert", "--workdir=x", "--config.stps=3"], "'stps'"),
  ],
)
def test_a_mistake_starts_nothing_and_is_one_line(arguments, said):
  done = subprocess.run([sys.executable, "-m", "launch.local", *arguments], capture_output=True, text=True)
  assert done.returncode == 1
  (line,) = done.stderr.splitlines()
  assert line.startswith("error: ")
  assert said in line


def wait_for(condition, process: subprocess.Popen, seconds: float = 600) -> None:
  deadline = time.monotonic() + seconds
  while not condition():
    assert process.poll() is None, process.returncode
    assert time.monotonic() < deadline
    time.sleep(0.05)


def test_a_mistake_that_one_process_sees_ends_all_at_once_in_its_own_line(tmp_path):
  (tmp_path / "run").mkdir()
  with open(tmp_path / "run" / ".lock", "w") as file:
    fcntl.flock(file, fcntl.LOCK_EX)  # which the first process asks for
    toy = toy_runs.command(tmp_path / "run", "--distributed")
    program = f"import sys; from launch import local; sys.exit(local.run({toy!r}, processes=2, devices=1, restarts=2))"
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], env=toy_runs.ENV, capture_output=True, text=True)
  assert done.returncode == 1, done.stderr
  assert time.monotonic() - began < 200  # not the five minutes that JAX gives those who do not come
  mistake = f"another run is at work in {tmp_path / 'run'}; wait for it to end, or use another --workdir"
  said = [line for line in done.stderr.splitlines() if "[Gloo]" not in line]
  assert said[0] == f"error: {mistake}"
  assert set(said[1:-1]) <= {f"error: process 0 of the run has ended: {mistake}"}
  assert re.fullmatch("launch: process [01] of 2 ended with status 1; stopping the others", said[-1])
  assert "beginning again" not in done.stderr


# -------------------------------------------------------------------- a tiny BERT

NUMBERS = ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy")
FIELDS = {"steps": 60, "eval_every": 30, "checkpoint_every": 10}
ENV = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": compilation.QUICKLY, "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def alone(prepared_corpus, tmp_path_factory) -> list[dict]:
  """The records of one process on one device."""
  return runs.run(tmp_path_factory.mktemp("alone"), runs.config(prepared_corpus, **FIELDS))


def start(workdir: pathlib.Path, corpus: pathlib.Path, processes: int, restarts: int = 0) -> subprocess.Popen:
  """Starts the same run by command line, as several processes of two devices each."""
  changed = runs.config(corpus, **FIELDS).to_dict()
  model = {name: changed["model"][name] for name in ("hidden_size", "intermediate_size", "max_length")}
  names = ("steps", "batch_size", "length", "log_every", "eval_every", "eval_batches", "checkpoint_every")
  fields = {name: changed[name] for name in names} | {f"model.{name}": value for name, value in model.items()}
  fields |= {"data.corpus": corpus, "optimizer.warmup_steps": changed["optimizer"]["warmup_steps"]}
  train = ["--config=configs/quickstart.py:bert", f"--workdir={workdir}"]
  train += [f"--config.{name}={value}" for name, value in fields.items()]
  flags = [f"--processes={processes}", "--devices=2", f"--restarts={restarts}"]
  with open(f"{workdir}.log", "a") as log:
    return subprocess.Popen(
      [sys.executable, "-m", "launch.local", *flags, "--", *train], env=ENV, stdout=log, stderr=log
    )


def said(workdir: pathlib.Path) -> str:
  return pathlib.Path(f"{workdir}.log").read_text()


def assert_same(found: list[dict], expected: list[dict]) -> None:
  assert [(r["step"], r["split"]) for r in found] == [(r["step"], r["split"]) for r in expected]
  for x, y in zip(found, expected, strict=True):
    np.testing.assert_allclose([x[n] for n in NUMBERS], [y[n] for n in NUMBERS], rtol=1e-3, err_msg=str(x["step"]))


def trained(workdir: pathlib.Path) -> int:
  """Returns the newest step in the log."""
  return max((r["step"] for r in metrics.read(str(workdir / "metrics.jsonl"))), default=0)


def children(process: subprocess.Popen) -> list[int]:
  """Returns the ids of a launcher's processes, in their order."""
  return list(map(int, pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()))


@pytest.mark.slow
def test_of_four_processes_one_is_killed_and_all_go_on_with_the_series_of_one_process(alone, prepared_corpus, tmp_path):
  run = start(tmp_path / "run", prepared_corpus, 4, restarts=1)
  wait_for(lambda: saved_steps(str(tmp_path / "run")) and trained(tmp_path / "run") % 10 == 5, run)
  os.kill(children(run)[2], signal.SIGKILL)
  assert run.wait(timeout=900) == 0, said(tmp_path / "run")
  assert "process 2 of 4 was killed by SIGKILL; stopping the others" in said(tmp_path / "run")
  assert "continuing from step" in said(tmp_path / "run")
  assert "on 8 × cpu" in said(tmp_path / "run")
  assert_same(runs.series(tmp_path / "run"), alone)


@pytest.mark.slow
def test_sigterm_to_one_of_four_saves_on_all_and_two_go_on(alone, prepared_corpus, tmp_path):
  run = start(tmp_path / "run", prepared_corpus, 4)
  wait_for(lambda: trained(tmp_path / "run") >= 5, run)
  os.kill(children(run)[2], signal.SIGTERM)
  assert run.wait(timeout=600) == 0, said(tmp_path / "run")
  (step,) = saved_steps(str(tmp_path / "run"))[-1:]
  assert f"stopped by SIGTERM: step {step} is saved" in said(tmp_path / "run")
  assert step < FIELDS["steps"]
  run = start(tmp_path / "run", prepared_corpus, 2)
  assert run.wait(timeout=900) == 0, said(tmp_path / "run")
  assert f"continuing from step {step}" in said(tmp_path / "run")
  assert "on 4 × cpu" in said(tmp_path / "run")
  assert_same(runs.series(tmp_path / "run"), alone)
