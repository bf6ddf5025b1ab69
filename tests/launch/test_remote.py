"""What runs on the hosts: scripts that a shell and shellcheck take, and how the service's program ends."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.launch import scripts

SCRIPTS = sorted((pathlib.Path(__file__).parents[2] / "launch" / "remote").glob("*.sh"))
STEPS = "import signal, sys, time\n"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_sound(script):
  scripts.checked(script.read_text())


def test_shellcheck_is_there_and_looks():
  """Else nothing above could fail."""
  with pytest.raises(AssertionError, match="SC2086"):
    scripts.checked('rm "$1" $2')


@pytest.fixture
def home(tmp_path) -> pathlib.Path:
  """A host's home folder with a checkout."""
  (tmp_path / "bidir" / "checkout").mkdir(parents=True)
  (tmp_path / "bidir" / "venv" / "bin").mkdir(parents=True)
  (tmp_path / "bidir" / "venv" / "bin" / "python").symlink_to(sys.executable)
  shutil.copytree(SCRIPTS[0].parent, tmp_path / "bidir" / "checkout" / "launch" / "remote")
  (tmp_path / "bidir" / "arguments").write_text("--config=recipe.py\n--workdir=a b\n--config.stages=({'steps': 5},)\n")
  # What is printed before a run is of earlier ones.
  (tmp_path / "bidir" / "train.log").write_text("launch: beginning\nstopped by SIGTERM: step 3 is saved\n")
  return tmp_path


def train(home: pathlib.Path, program: str) -> subprocess.Popen:
  """Starts the service's program with `program` in the place of train.py, its output where the service sends it."""
  (home / "bidir" / "checkout" / "train.py").write_text(STEPS + program)
  with open(home / "bidir" / "train.log", "a") as log:
    script = home / "bidir" / "checkout" / "launch" / "remote" / "train.sh"
    return subprocess.Popen(["bash", str(script)], env=os.environ | {"HOME": str(home)}, stdout=log, stderr=log)


def wait_for(home: pathlib.Path, word: str) -> None:
  deadline = time.monotonic() + 300
  while word not in (home / "bidir" / "train.log").read_text():
    assert time.monotonic() < deadline
    time.sleep(0.02)


def test_arguments_arrive_as_they_were_written(home):
  assert train(home, "print('got', sys.argv[1:])").wait(timeout=300) == 0
  said = (home / "bidir" / "train.log").read_text()
  assert """got ['--distributed', '--config=recipe.py', '--workdir=a b', "--config.stages=({'steps': 5},)"]""" in said


@pytest.mark.parametrize(
  ("program", "status"),
  [
    ("print('done: x holds step 9')", 0),
    ("sys.exit(1)", 1),  # a mistake: not again
    ("sys.exit(75)", 75),
    ("import os; os.kill(os.getpid(), signal.SIGABRT)", 134),
    ("print('stopped by SIGTERM: step 5 is saved')", 75),  # another host was asked: this one goes on
  ],
)
def test_the_status_says_whether_to_begin_again(home, program, status):
  assert train(home, program).wait(timeout=300) == status


def test_sigterm_is_handed_on_and_the_run_may_take_its_time_to_save(home):
  saves = """
def save(signum, frame):
  time.sleep(1)
  print('stopped by SIGTERM: step 7 is saved', flush=True)
  sys.exit(0)
signal.signal(signal.SIGTERM, save)
print('at work', flush=True)
time.sleep(60)
"""
  service = train(home, saves)
  wait_for(home, "at work")
  service.send_signal(signal.SIGTERM)
  assert service.wait(timeout=55) == 0  # asked: it does not begin again
  assert "step 7 is saved" in (home / "bidir" / "train.log").read_text()


@pytest.mark.parametrize(
  ("unit", "log", "said"),
  [
    ("not-found inactive", "", "absent: "),
    ("loaded active", "step 5/9  train\nlibrary: chatter\n", "running: step 5/9  train"),
    ("loaded activating", "error: the run has lost a process\n", "restarting: error: the run has lost a process"),
    ("loaded failed", "error: config.steps=0\n", "failed: error: config.steps=0"),
    ("loaded inactive", "done: x holds step 9\n", "finished: done: x holds step 9"),
    ("loaded inactive", "stopped by SIGTERM: step 5\n", "stopped: stopped by SIGTERM: step 5"),
  ],
)
def test_status_is_a_line_a_host(home, unit, log, said):
  load, active = unit.split()
  (home / "bidir" / "train.log").write_text(log)
  stub = home / "systemctl"
  stub.write_text(f"#!/bin/bash\ncase $3$2 in *LoadState*) echo {load};; *) echo {active};; esac\n")
  stub.chmod(0o755)
  script = home / "bidir" / "checkout" / "launch" / "remote" / "status.sh"
  env = os.environ | {"HOME": str(home), "PATH": f"{home}:{os.environ['PATH']}"}
  done = subprocess.run(["bash", str(script)], env=env, capture_output=True, text=True, check=True)
  host, _, rest = done.stdout.removeprefix("launch: ").partition(" ")
  assert host
  assert rest == said + "\n"
