"""What runs on the hosts: scripts that a shell and shellcheck take, and how the service's program ends."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from launch import hosts, pods
from tests.launch import scripts

SCRIPTS = sorted((pathlib.Path(__file__).parents[2] / "launch" / "remote").glob("*.sh"))
STEPS = "import signal, sys, time\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_sound(script):
  scripts.checked(script.read_text())


def test_shellcheck_is_there_and_looks():
  """Else nothing above could fail."""
  with pytest.raises(AssertionError, match="SC2086"):
    scripts.checked('rm "$1" $2')


def test_a_host_that_is_still_updating_itself_is_waited_for():
  for script in SCRIPTS:
    for line in script.read_text().splitlines():
      assert "apt-get" not in line or "DPkg::Lock::Timeout=600" in line


@pytest.fixture
def home(tmp_path) -> pathlib.Path:
  """A host's home folder with a checkout."""
  (tmp_path / "bidir" / "checkout").mkdir(parents=True)
  (tmp_path / "bidir" / "venv" / "bin").mkdir(parents=True)
  (tmp_path / "bidir" / "venv" / "bin" / "python").symlink_to(sys.executable)
  shutil.copytree(SCRIPTS[0].parent, tmp_path / "bidir" / "checkout" / "launch" / "remote")
  (tmp_path / "bidir" / "arguments").write_text("--config=recipe.py\n--workdir=a b\n--config.stages=({'steps': 5},)\n")
  (tmp_path / "bidir" / "checkout" / "COMMIT").write_text(COMMIT + "\n")
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
  "program", ["time.sleep(60)", "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); time.sleep(60)"]
)
def test_sigterm_before_train_py_listens_is_a_stop_too(home, program):
  """While it is imported it dies of the signal, with a status that the service takes for a success."""
  service = train(home, f"print('at work', flush=True); {program}")
  wait_for(home, "at work")
  service.send_signal(signal.SIGTERM)
  status = service.wait(timeout=55)
  unit = (SCRIPTS[0].parent / "bidir.service").read_text()
  assert status in [0, *map(int, re.findall("^SuccessExitStatus=(.*)$", unit, re.MULTILINE))]


def test_a_process_that_somebody_else_has_ended_begins_again(home):
  assert train(home, "import os; os.kill(os.getpid(), signal.SIGTERM)").wait(timeout=300) == 75


# -------------------------------------------------------------------- how it stands

BEGUN = "launch: beginning 0123.abcd on t1v-0, 2026-01-01T00:00:00Z\n"
ENDED = "launch: ended with status "
TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 9, in <module>
    import missing
ModuleNotFoundError: No module named 'missing'
"""


def command(home: pathlib.Path, name: str, *arguments: str, **states: str) -> str:
  """Runs a script of a host where systemd answers `states`; returns what it writes."""
  stub = home / "bin" / "systemctl"
  stub.parent.mkdir(exist_ok=True)
  cases = "".join(f"  *{key}*) echo {value} ;;\n" for key, value in states.items())
  active = f'test "$1" != is-active || exit {int(states.get("ActiveState") != "active")}\n'
  stub.write_text(f'#!/bin/bash\necho "$1" >> "{home}/asked"\n{active}case "$*" in\n{cases}  *) ;;\nesac\n')
  (home / "bin" / "sudo").write_text('#!/bin/bash\ncase "$1" in tee) cat > /dev/null ;; *) "$@" ;; esac\n')
  for file in (home / "bin").iterdir():
    file.chmod(0o755)
  script = home / "bidir" / "checkout" / "launch" / "remote" / f"{name}.sh"
  env = os.environ | {"HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
  return subprocess.run(["bash", str(script), *arguments], env=env, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
  ("unit", "log", "said"),
  [
    ("not-found inactive", "", "absent -: "),
    ("loaded active", BEGUN + "step 5/9  train\nlibrary: chatter\n", "running 0123.abcd: step 5/9  train"),
    ("loaded activating", BEGUN + "error: lost a process\n", "restarting 0123.abcd: error: lost a process"),
    ("loaded failed", BEGUN + "error: config.steps=0\n", "failed 0123.abcd: error: config.steps=0"),
    ("loaded failed", BEGUN + TRACEBACK, "failed 0123.abcd: ModuleNotFoundError: No module named 'missing'"),
    ("loaded failed", BEGUN + "jax.errors.JaxRuntimeError: x\n", "failed 0123.abcd: jax.errors.JaxRuntimeError: x"),
    ("loaded failed", BEGUN + "AssertionError\n" + ENDED + "1\n", "failed 0123.abcd: AssertionError"),
    ("loaded failed", BEGUN + ENDED + "134\n", f"failed 0123.abcd: {ENDED}134"),
    ("loaded inactive", BEGUN + "done: x holds 9\n" + ENDED + "0\n", "finished 0123.abcd: done: x holds 9"),
    ("loaded inactive", BEGUN + ENDED + "0\n", "finished 0123.abcd: " + BEGUN.strip()),
    (
      "loaded inactive",
      BEGUN + "stopped by SIGTERM: step 5\n" + ENDED + "0\n",
      "stopped 0123.abcd: stopped by SIGTERM: step 5",
    ),
    ("loaded inactive", BEGUN + ENDED + "143\n", f"stopped 0123.abcd: {ENDED}143"),
    ("loaded inactive", BEGUN + "step 5/9\n", "stopped 0123.abcd: step 5/9"),  # the power went
    # Nobody has stopped these: their hosts are about to go, or just back.
    ("loaded inactive enabled", BEGUN + ENDED + "143\n", f"restarting 0123.abcd: {ENDED}143"),
    ("loaded inactive enabled", BEGUN + "step 5/9\n", "restarting 0123.abcd: step 5/9"),
    ("loaded inactive enabled", BEGUN + ENDED + "0\n", "finished 0123.abcd: " + BEGUN.strip()),
    # A service that has never begun, and a log of an earlier beginning.
    ("loaded inactive", None, "absent -: "),
    ("loaded inactive enabled", "", "absent -: "),
    ("loaded active", BEGUN + ENDED + "0\n" + BEGUN.replace("abcd", "new"), "running 0123.new: " + BEGUN.strip()),
  ],
)
def test_status_is_a_line_a_host(home, unit, log, said):
  load, active, *enabled = unit.split()
  (home / "bidir" / "train.log").unlink()
  if log is not None:
    (home / "bidir" / "train.log").write_text(log)
  written = command(home, "status", LoadState=load, ActiveState=active, UnitFileState=(*enabled, "disabled")[0])
  host, _, rest = written.removeprefix("launch: ").partition(" ")
  assert host
  assert rest.replace("0123.new on", "0123.abcd on") == said + "\n"


def test_what_the_service_writes_is_what_status_reads(home):
  assert train(home, "print('done: x holds step 9')").wait(timeout=300) == 0
  assert " finished " in command(home, "status", LoadState="loaded", ActiveState="inactive", UnitFileState="enabled")


@pytest.mark.parametrize("arguments", [["--config=recipe.py", "--workdir=a b", "--config.x=({'é': 5},)"], ["a"]])
def test_a_host_and_the_launcher_call_a_run_by_the_same_name(home, arguments):
  command(home, "run", *arguments, ActiveState="inactive")
  assert train(home, "pass").wait(timeout=300) == 0
  written = command(home, "status", LoadState="loaded", ActiveState="inactive")
  (found,) = hosts.read("gcloud: chatter\n" + written)
  assert (found.state, found.run) == ("finished", hosts.identity(COMMIT, arguments))


def test_a_service_that_begins_while_its_checkout_is_replaced_has_no_name(home):
  (home / "bidir" / "checkout" / "COMMIT").unlink()
  assert train(home, "pass").wait(timeout=300) == 0
  (found,) = hosts.read(command(home, "status", LoadState="loaded", ActiveState="activating"))
  assert (found.state, found.run) == ("restarting", "-")


def test_a_host_without_a_checkout_says_so(home):
  pod = pods.Pod("a", "us-east5-b")
  words = next(word for word in pods.status(pod) if word.startswith("--command=")).removeprefix("--command=")
  shutil.rmtree(home / "bidir")
  done = subprocess.run(
    ["bash", "-c", words], cwd=home, env=os.environ | {"HOME": str(home)}, capture_output=True, text=True
  )
  (found,) = hosts.read(done.stdout)
  assert (found.state, found.run, found.said) == ("absent", "-", "")


@pytest.mark.parametrize(
  ("change", "restarted"),
  [(None, False), ("arguments", True), ("commit", True), ("at rest", True)],
)
def test_run_leaves_a_run_alone_only_if_it_is_the_very_same(home, change, restarted):
  arguments = (home / "bidir" / "arguments").read_text().splitlines()
  assert train(home, "pass").wait(timeout=300) == 0
  if change == "arguments":
    arguments.append("--config.steps=5")
  if change == "commit":
    (home / "bidir" / "checkout" / "COMMIT").write_text("f" + COMMIT[1:])
  said = command(home, "run", *arguments, ActiveState="inactive" if change == "at rest" else "active")
  assert ("is at work already" in said) != restarted
  assert ("restart" in (home / "asked").read_text().split()) == restarted
  assert (home / "bidir" / "arguments").read_text().splitlines() == arguments
