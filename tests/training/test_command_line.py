"""A run's command line: whatever is wrong with it, and whatever ends the run early, is one line."""

import signal
import subprocess
import sys
import time

import jax
import pytest
from absl import flags

from tests.training.toy_runs import ENV, command, newest
from training import cluster, command_line, run_flags


@pytest.mark.parametrize(
  ("arguments", "said"),
  [
    (["--config.modle.layers=3"], 'unknown field \'modle\'; did you mean "model" instead of "modle"? (every field'),
    (["--config.optimizer.learning_rat=3"], "unknown field 'learning_rat'; did you mean \"learning_rate\""),
    (["--config.steps=many"], "steps=many"),
    (["--config=configs/quickstart.py:gpt"], "gpt"),
    (["--config.stages[2].steps=3"], "--config.stages[2].steps=3: the recipe has no such entry"),
    (["config.steps=30"], "'config.steps=30' is no flag; write --config.steps=30"),
    (["--config.steps=30", "later"], "'later' is no flag"),
    (["--step=30"], "step"),
  ],
)
def test_a_mistake_on_the_command_line_is_one_line(tmp_path, monkeypatch, capsys, arguments, said):
  line = parse(monkeypatch, capsys, *command(tmp_path)[3:], *arguments)
  assert line.startswith("error: ")
  assert said in line
  assert "  " not in line


@pytest.mark.parametrize("missing", ["config", "workdir"])
def test_a_missing_flag_is_asked_for(tmp_path, monkeypatch, capsys, missing):
  line = parse(monkeypatch, capsys, *[a for a in command(tmp_path)[3:] if not a.startswith(f"--{missing}=")])
  assert line.startswith(f"error: --{missing} is required, e.g. python train.py --config=")


def test_the_recipe_may_stand_anywhere():
  argv = ["train.py", "--config.steps=7", "--workdir=x", "--config=tests/training/toy_config.py"]
  values = flags.FlagValues()
  run_flags.define(values, argv)
  run_flags.read(argv, values)
  assert values["config"].value.steps == 7


def parse(monkeypatch, capsys, *arguments) -> str:
  """Parses a command line with a mistake in it; returns the one line that says so."""
  monkeypatch.setattr(command_line.flags, "FLAGS", flags.FlagValues())
  monkeypatch.setattr(sys, "argv", ["train.py", *arguments])  # config_flags looks there
  run_flags.define(command_line.flags.FLAGS)
  with pytest.raises(SystemExit) as stopped:
    command_line.parse(sys.argv, "help")
  assert stopped.value.code == 1
  (line,) = capsys.readouterr().err.splitlines()
  return line


@pytest.mark.parametrize(
  ("arguments", "said"),
  [
    (["--config=configs/none.py"], "none.py"),
    (["--distributed"], "--distributed: no cluster to join (coordinator_address should be defined.)"),
  ],
)
def test_what_only_the_run_finds_is_one_line_too(tmp_path, arguments, said):
  done = subprocess.run(command(tmp_path / "run", *arguments), env=ENV, capture_output=True, text=True)
  assert done.returncode == 1
  (line,) = done.stderr.splitlines()
  assert line.startswith("error: "), done.stderr
  assert said in line
  assert not (tmp_path / "run").exists()


ENDS = """
from training import command_line

def train(config, workdir):
  raise TimeoutError

command_line.run("", train)
"""


def test_what_the_network_does_ends_in_one_line_and_with_a_status_that_says_to_go_on(tmp_path):
  program = [sys.executable, "-c", ENDS, *command(tmp_path / "run")[3:]]
  done = subprocess.run(program, env=ENV, capture_output=True, text=True, timeout=300)
  assert (done.returncode, done.stderr) == (75, "error: TimeoutError (this may pass: the same command goes on)\n")


@pytest.mark.parametrize(
  ("error", "status", "said"),
  [
    (jax.errors.JaxRuntimeError("UNKNOWN: Gloo all-reduce failed"), 75, "error: the run has lost a process"),
    (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), 1, ""),
    (cluster.ConnectionLost("--distributed: they do not meet"), 75, "error: --distributed: they do not meet"),
    (ConnectionResetError(104, "Connection reset by peer"), 75, "error: [Errno 104] Connection reset by peer (this "),
    (FloatingPointError("loss is nan"), 1, "error: loss is nan"),
    (KeyError("bug"), 1, ""),
  ],
  ids=repr,
)
def test_of_several_processes_one_that_is_lost_is_no_mistake(monkeypatch, tmp_path, error, status, said):
  monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
  found, line = command_line.verdict(error, str(tmp_path))
  assert found == status
  assert line.startswith(said)
  assert bool(line) == bool(said)


def test_ctrl_c_ends_in_one_line_that_names_the_last_checkpoint(tmp_path):
  fields = ("--config.steps=100000", "--config.stages=()", "--config.checkpoint_every=100")
  with open(tmp_path / "out", "w") as out, open(tmp_path / "err", "w") as err:
    process = subprocess.Popen(command(tmp_path / "run", *fields), env=ENV, stdout=out, stderr=err)
    while newest(tmp_path / "run") is None:
      assert process.poll() is None, (tmp_path / "err").read_text()
      time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=300) == 130
  step = newest(tmp_path / "run")
  assert (tmp_path / "err").read_text() == (
    f"interrupted: step {step} is saved in {tmp_path / 'run'}; the same command continues\n"
  )


LOST = """
import signal
import weakref
from training import command_line, loop

class Referred: pass

def interrupt_in_a_callback():
  gone = Referred()
  signal_then = weakref.ref(gone, lambda _: signal.raise_signal(signal.SIGINT))
  del gone
  print("went on", flush=True)

async def never_awaited(): pass

def train(config, workdir):
  preemption = loop.Preemption()
  interrupt_in_a_callback()
  never_awaited()
  if CONSEQUENCE:
    raise RuntimeError("release unlocked lock")
  while not preemption.reached(): pass

command_line.run("", train)
"""


@pytest.mark.parametrize("consequence", ["none", "another error"])
def test_ctrl_c_is_not_lost_where_python_drops_what_it_raises(tmp_path, consequence):
  program = LOST.replace("CONSEQUENCE", str(consequence == "another error"))
  done = subprocess.run(
    [sys.executable, "-c", program, *command(tmp_path / "run")[3:]],
    env=ENV,
    capture_output=True,
    text=True,
    timeout=300,
  )
  assert (done.returncode, done.stdout, done.stderr) == (130, "went on\n", "interrupted: nothing was saved\n")


IMPATIENT = """
import signal
from training import command_line

def interrupt(*_):
  signal.raise_signal(signal.SIGINT)

command_line.saved_steps = interrupt  # while the first one is reported
command_line.run("", interrupt)
"""


def test_a_second_ctrl_c_ends_the_process_without_a_traceback(tmp_path):
  program = [sys.executable, "-c", IMPATIENT, *command(tmp_path / "run")[3:]]
  done = subprocess.run(program, env=ENV, capture_output=True, text=True, timeout=300)
  assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_help_shows_an_example():
  done = subprocess.run([sys.executable, "train.py", "--help"], env=ENV, capture_output=True, text=True, check=True)
  assert "python train.py --config=configs/quickstart.py" in done.stdout
  assert "--distributed" in done.stdout
