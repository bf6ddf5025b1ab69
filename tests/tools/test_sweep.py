"""Sweeps: what they run, what they keep, what they say of it. Most of them start a stand-in for train.py."""

import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys

import pytest

from tests import tasks
from tests.training import toy_runs
from tools import cli, sweep, sweep_plan
from training import saved

# What train.py writes, at once. PLAY says for a run's name what happens to it: a score, or a word below.
STAND_IN = """
import json, os, pathlib, signal, sys, time
given = dict(x[2:].split("=", 1) for x in sys.argv[1:])
workdir = pathlib.Path(given["workdir"])
name = os.path.relpath(workdir, os.environ["OUTPUT"])
with open(os.environ["STARTED"], "a") as file:
  file.write(name + "\\n")
play = json.loads(os.environ["PLAY"]).get(name, 0.5)
steps = int(given.get("config.steps", 4))
log = workdir / "metrics.jsonl"
if log.exists() and json.loads(log.read_text().splitlines()[-1])["step"] >= steps:
  sys.exit(0)  # nothing left to do
(workdir / "config.json").write_text(json.dumps({"steps": steps, "init_from": given.get("config.init_from", "")}))
def saved(*_):
  (workdir / "saved").touch()
  sys.exit(0)
signal.signal(signal.SIGTERM, saved)
if play == "fail":
  print("compiling")
  print("error: the loss is nan at step 3", file=sys.stderr)
  print("step 3 is the last")
  sys.exit(1)
if play == "refuse":
  print(f"error: {workdir} holds another run: steps is 8 there and 5 here; use another --workdir", file=sys.stderr)
  sys.exit(1)
if play == "kill":
  os.kill(os.getpid(), signal.SIGKILL)
if play == "bug":
  raise RuntimeError("ours")
if play == "part":
  sys.exit(0)
if play in ("SIGINT", "SIGTERM"):
  os.kill(os.getppid(), getattr(signal, play))
if play in ("SIGINT", "SIGTERM", "wait"):
  time.sleep(60)
if play == "meet":
  (workdir / "here").touch()
  while len(list(workdir.parent.glob("*/here"))) < 2:
    time.sleep(0.01)
scores = play if isinstance(play, list) else [0.1, play if isinstance(play, float) else 0.5]
records = [
  {"step": steps * i // (len(scores) - 1), "split": "eval", "loss": 1 - x, "f1": x, "wall_s": i}
  for i, x in enumerate(scores)
]
log.write_text("".join(json.dumps(x) + "\\n" for x in records))
for x in [*records[1:][-2:], max(records[1:], key=lambda x: (x["f1"], x["step"]))]:  # keep_last=2, keep_best=1
  (workdir / "checkpoints" / str(x["step"])).mkdir(parents=True, exist_ok=True)
"""
RECIPE = "--config=configs/finetune/bert.py:mrpc"
OUT = pathlib.Path("out")
RATES = "optimizer.learning_rate=2e-5,0.0003"


class Stage:
  """Sweeps with the stand-in, into one folder."""

  def __init__(self, tmp_path, monkeypatch, capsys):
    self.output, self._patch, self._capsys = tmp_path / "out", monkeypatch, capsys
    self._script, self._started = tmp_path / "stand_in.py", tmp_path / "started"
    self._script.write_text(STAND_IN)
    monkeypatch.setenv("OUTPUT", str(self.output))
    monkeypatch.setenv("STARTED", str(self._started))

  def __call__(self, *arguments, play=(), status=0, ends=None) -> str:
    """Returns what the sweep printed; `err` and `started` have the rest."""
    self._started.write_text("")
    self._patch.setenv("PLAY", json.dumps(dict(play)))
    flags = [] if any(x.startswith("--config=") for x in arguments) else [RECIPE]
    self._patch.setattr("sys.argv", ["sweep", *flags, f"--output={self.output}", *arguments])
    main = lambda: sweep.main((sys.executable, "-S", str(self._script)))
    if status or ends is not None:
      with pytest.raises(SystemExit) as ended:
        cli.run(main)
      assert ended.value.code == (status or ends)
    else:
      cli.run(main)
    out, self.err = self._capsys.readouterr()
    self.started = self._started.read_text().split()
    return out

  def json(self) -> dict:
    return json.loads((self.output / "sweep.json").read_text())


@pytest.fixture
def stage(tmp_path, monkeypatch, capsys):
  return Stage(tmp_path, monkeypatch, capsys)


# ---------------------------------------------------------------- what is run


def test_every_value_with_every_seed_each_in_a_workdir_named_by_what_differs(stage):
  grid = ("--grid", RATES, "batch_size=16,32", "--seeds=2", "--config.seed=7")
  out = stage(*grid, "--dry_run", "--", "--config.length=64")
  *commands, last = out.splitlines()
  assert last == "8 runs, 0 of them finished"
  workdir = f"{stage.output}/learning_rate=2e-05,batch_size=32/seed=8"
  changes = "--config.optimizer.learning_rate=2e-5 --config.batch_size=32 --config.seed=8"
  common = f"{RECIPE} --config.seed=7 --config.length=64"
  assert commands[3].endswith(f"stand_in.py {common} {changes} --workdir={workdir}")
  assert not stage.output.exists()
  stage(*grid)
  cells = [f"learning_rate={rate},batch_size={rows}" for rate in ("2e-05", "0.0003") for rows in (16, 32)]
  assert stage.started == [f"{cell}/seed={seed}" for cell in cells for seed in (7, 8)]


def test_seeds_are_a_count_or_a_list():
  assert sweep_plan.read_seeds("3", 5) == [5, 6, 7]
  assert sweep_plan.read_seeds("3,1", 5) == [3, 1]
  assert sweep_plan.read_seeds("3,", 5) == [3]


RATE, ROWS = "optimizer.learning_rate", "batch_size"
PAPERS_GRIDS = {
  "glue": (4, {RATE: [5e-5, 4e-5, 3e-5, 2e-5]}),  # at 32 rows and 3 epochs, as the recipe has them
  "appendix": (18, {ROWS: [16, 32], RATE: [5e-5, 3e-5, 2e-5], "epochs": [2, 3, 4]}),
  "small": (20, {ROWS: [8, 16, 32, 64, 128], RATE: [3e-4, 1e-4, 5e-5, 3e-5], "epochs": [4]}),
}


@pytest.mark.parametrize("name", PAPERS_GRIDS)
def test_the_papers_grids(name):
  cells, values = PAPERS_GRIDS[name]
  runs = sweep_plan.plan([RECIPE], sweep_plan.read_grid([name], "configs/finetune/bert.py:mrpc"), [0], OUT)
  assert len({run.cell for run in runs}) == len(runs) == cells
  assert {field: list(dict.fromkeys(run.fields[field] for run in runs)) for field in runs[0].fields} == values
  if name == "glue":
    assert {(run.recipe[ROWS], run.recipe["epochs"]) for run in runs} == {(32, 3.0)}


def test_names_that_tell_runs_apart_and_that_folders_can_have():
  named = lambda *grid: [run.name for run in sweep_plan.plan([RECIPE], sweep_plan.read_grid(grid, ""), [1], OUT)]
  assert named("--config.head.dropout=0,0.1", "epochs=2")[1] == "dropout=0.1,epochs=2.0/seed=1"
  assert named("optimizer.name=lamb", "head.kind=span") == ["name=lamb,kind=span/seed=1"]
  assert named("data.kind=span", "head.kind=span") == ["data.kind=span,head.kind=span/seed=1"]
  tuples = named("data.eval_splits=('dev', 'test'),('dev',)")
  assert len(set(tuples)) == 2
  one, other, plain = named("init_from=a/b.c,c/b.c,b.c")
  assert one.startswith("init_from=b.c-")
  assert one.count("/") == 1
  assert one != other
  assert plain == "init_from=b.c/seed=1"


@pytest.mark.parametrize(
  ("arguments", "said"),
  [
    (["--grid", "optimizer.learning_rat=1"], "--grid optimizer.learning_rat=1: unknown field 'learning_rat'; did you"),
    (["--grid", "optimizer=1"], "--grid optimizer=1: "),
    (["--grid", "batch_size=16,x"], "--grid batch_size=x: "),
    (["--grid", "batch_size=16,016"], "--grid batch_size has 16 twice"),
    (["--grid", "optimizer.learning_rate=2e-5,0.00002"], "--grid optimizer.learning_rate has 2e-05 twice"),
    (["--grid", "epochs=2", "--grid", "config.epochs=3"], "--grid has epochs twice"),
    (["--grid", "batch_size=16,"], "--grid batch_size: an empty value"),
    (["--grid", "seed=1,2"], "--grid seed: seeds are named by --seeds"),
    (["--grid", "none"], "configs/finetune/bert.py has no grid 'none' (its grids are glue, appendix, small)"),
    (["--grid", "glue", "--config=configs/quickstart.py:bert"], "configs/quickstart.py has no grid 'glue' (it names "),
    (["--grid", "data.task=mrpc,rte"], "--grid over tasks: they have scores of their own"),
    (["--seeds=0"], "--seeds=0 is neither a count nor a list"),
    (["--seeds=a"], "--seeds=a is neither a count nor a list"),
    (["--seeds=1,1"], "--seeds has 1 twice"),
    (["--jobs=0"], "--jobs=0 must be at least 1"),
    (["--sedes=3"], "Unknown command line flag 'sedes'"),
    (["--", "--workdir=x"], "--workdir=x does not go with a sweep"),
    (["--config.optimizer.rate=1"], "unknown field 'rate'"),
    (["--config=configs/none.py"], "Configuration is not available"),
    (["--config=configs/finetune/bert.py:sudoku"], "configs/finetune/bert.py has no task 'sudoku'"),
  ],
)
def test_a_mistake_is_one_line_before_any_run(stage, arguments, said):
  stage(*arguments, status=1)
  (line,) = stage.err.splitlines()
  assert line.startswith(f"error: {said}")
  assert not stage.output.exists()


def test_the_sweep_itself_starts_without_jax():
  code = "import sys, tools.sweep; sys.exit('jax' in sys.modules or 'tensorflow' in sys.modules)"
  subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- what is kept


def test_the_same_command_starts_what_is_left_and_a_grid_may_grow(stage):
  first = ("--grid", "batch_size=16,32", "--seeds=2")
  stage(*first, play={"batch_size=32/seed=0": "part"}, status=1)
  assert "[3/4] batch_size=32/seed=0  failed: exit status 0" in stage.err
  out = stage(*first)
  assert out.startswith(f"4 runs in {stage.output}, 3 of them finished\n[3/4] batch_size=32/seed=0  f1 0.5000  1 s\n")
  assert stage.started == ["batch_size=32/seed=0"]
  stage(*first)
  assert stage.started == []
  stage("--grid", "batch_size=32,64", "--seeds=3")
  assert stage.started == ["batch_size=32/seed=2", *(f"batch_size=64/seed={seed}" for seed in range(3))]
  # What train.py has to judge: fields that may differ, or not.
  stage(*first, "--config.log_every=1")
  assert len(stage.started) == 4


def test_other_initial_weights_are_refused(stage):
  stage("--config.init_from=a")
  stage("--config.init_from=b", status=1)
  assert f"{stage.output}/seed=0 started from config.init_from=a, and this sweep starts from b" in stage.err
  assert stage.started == []


def test_fewer_steps_than_the_workdir_holds_are_no_result(stage):
  stage("--config.steps=8")
  stage("--config.steps=4", status=1)
  assert "failed: its workdir holds step 8, and this sweep asks for 4; use another --output" in stage.err


def test_a_workdir_of_another_recipe_is_refused_by_train_before_anything_new_is_started(tmp_path, monkeypatch, capsys):
  """By the real train.py, with the toy; of pretraining the loss counts."""
  output = tmp_path / "out"

  def call(*arguments):
    monkeypatch.setattr("os.environ", toy_runs.ENV)
    config = "--config=tests/training/toy_config.py"
    monkeypatch.setattr("sys.argv", ["sweep", config, f"--output={output}", "--config.steps=2", *arguments])
    cli.run(lambda: sweep.main((sys.executable, "-m", "tests.training.toy")))

  call("--config.stages=()")
  assert f"best run by loss on held-out text: {output}/seed=0@2  " in capsys.readouterr().out
  summary = (output / "sweep.json").read_text()
  with pytest.raises(SystemExit, match="1"):
    call("--config.stages=()", "--config.optimizer.b1=0.5", "--seeds=2")
  error = capsys.readouterr().err.splitlines()[-1]
  assert error.startswith(f"error: {output}/seed=0 holds another run: optimizer.b1 is 0.9 there and 0.5 here")
  assert not (output / "seed=1").exists()
  assert (output / "sweep.json").read_text() == summary


# ---------------------------------------------------------------- what goes wrong


def test_a_run_that_fails_is_named_and_the_others_go_on(stage):
  out = stage("--seeds=4", play={"seed=0": "fail", "seed=1": "kill", "seed=2": "bug"}, status=1)
  first, second, third, last = stage.err.splitlines()
  log = stage.output / "seed=0" / "sweep.log"
  assert first == f"[1/4] seed=0  failed: error: the loss is nan at step 3  (all of it in {log})"
  assert "seed=1  failed: ended by SIGKILL, perhaps for want of memory" in second
  assert "seed=2  failed: RuntimeError: ours" in third
  assert last == "error: 3 of 4 runs failed; the same command tries again"
  assert log.read_text().count("error: the loss is nan at step 3\n") == 1
  assert "all   1 of 4   0.5000" in out
  assert [run["status"] for run in stage.json()["runs"]] == ["failed"] * 3 + ["finished"]


def test_the_last_attempt_alone_is_quoted(stage):
  stage(play={"seed=0": "fail"}, status=1)
  stage(play={"seed=0": "part"}, status=1)
  assert "failed: exit status 0" in stage.err


@pytest.fixture
def interrupts():
  """Ctrl-C as in the foreground; what a shell starts in the background begins with it ignored."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 0)])
def test_a_signal_makes_the_runs_save_and_says_how_to_go_on(stage, interrupts, name, status):
  stage("--seeds=4", "--jobs=2", play={"seed=1": "wait", "seed=2": name}, ends=status)
  assert sorted(stage.started) == [f"seed={i}" for i in range(3)]
  assert stage.err.splitlines() == [
    "stopping 2 runs (as soon as saved; once more: at once)",
    "stopped: 1 of 4 runs finished; the same command continues",
  ]
  assert all((stage.output / f"seed={i}" / "saved").exists() for i in (1, 2))
  assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
  stage("--seeds=4")
  assert stage.started == ["seed=1", "seed=2", "seed=3"]


def test_jobs_are_at_work_together(stage):
  stage("--seeds=2", "--jobs=2", play={"seed=0": "meet", "seed=1": "meet"})


# ---------------------------------------------------------------- what is found


def test_means_deviations_and_the_best(stage):
  scores = {
    "batch_size=16/seed=0": 0.5,
    "batch_size=16/seed=1": 0.75,
    "batch_size=16/seed=2": 0.7,
    "batch_size=32/seed=0": 0.8,  # the best run, of the second cell by mean
    "batch_size=32/seed=1": 0.4,
    "batch_size=32/seed=2": 0.6,
    "batch_size=64/seed=0": 0.9,
    "batch_size=64/seed=1": math.nan,  # of a correlation with a constant
    "batch_size=64/seed=2": "fail",
  }
  out = stage("--grid", "batch_size=16,32,64", "--seeds=3", play=scores, status=1)
  first, second = list(scores.values())[:3], list(scores.values())[3:6]
  table = out.splitlines()[-6:]
  assert table[0].split() == ["runs", "f1", "loss", "best", "seed"]
  assert table[1].split() == ["batch_size=16", "3", "0.6500", "±", "0.1323", "0.3500", "±", "0.1323", "1"]
  assert table[2].split() == ["batch_size=32", "3", "0.6000", "±", "0.2000", "0.4000", "±", "0.2000", "0"]
  assert table[3].split() == ["batch_size=64", "2", "of", "3", "nan", "±", "nan", "nan", "±", "nan", "0"]
  assert table[4] == "best cell by mean f1 on dev: batch_size=16  0.6500 ± 0.1323, 3 of 3 runs"
  assert table[5] == f"best run by f1 on dev: {stage.output}/batch_size=64/seed=0@4  0.9000"
  found = stage.json()
  assert found["best_cell"] == "batch_size=16"
  assert found["best_run"]["f1"] == 0.9
  assert found["cells"][1]["deviation"]["f1"] == statistics.stdev(second)
  assert found["cells"][0]["mean"]["f1"] == statistics.mean(first)
  assert found["cells"][2]["mean"]["f1"] is None
  assert found["runs"][0]["metrics"] == {"loss": 0.5, "f1": 0.5, "wall_s": 1.0}
  assert found["runs"][0]["fields"] == {"batch_size": 16}


def test_a_single_run_has_no_deviation(stage):
  out = stage("--json")
  assert stage.err.splitlines()[0] == f"1 run in {stage.output}, 0 of them finished"
  found = json.loads(out)
  assert found == stage.json()
  assert found["cells"][0]["deviation"] == {"loss": None, "f1": None, "wall_s": None}
  assert "±" not in stage()


@pytest.mark.parametrize(
  ("flags", "value", "step"),
  [
    ([], "0.2000", 4),
    (["--pick=best"], "0.6000", 2),
    (["--pick=best", "--lower"], "0.2000", 4),
    (["--pick=best", "--metric=loss"], "0.4000", 2),
  ],
)
def test_the_last_or_the_best_evaluation_counts_but_none_before_training(stage, flags, value, step):
  out = stage(*flags, play={"seed=0": [0.7, 0.6, 0.2]})
  assert out.splitlines()[-1].endswith(f"{stage.output}/seed=0@{step}  {value}")


@pytest.mark.parametrize(
  ("flags", "scores", "said", "checkpoint"),
  [
    ([], [0, 0.6, 0.6, 0.1, 0.2], "@2  0.6000", "@2"),  # of equal ones that which is kept
    (
      ["--lower"],
      [0, 0.1, 0.6, 0.3, 0.2],
      "  0.1000 at step 1, whose checkpoint is not kept (it keeps those of 2, 3, 4; ",
      "",
    ),
  ],
)
def test_the_best_is_named_by_a_checkpoint_that_is_there_or_it_is_said(stage, flags, scores, said, checkpoint):
  out = stage("--pick=best", *flags, play={"seed=0": scores})
  assert f"best run by f1 on dev: {stage.output}/seed=0{said}" in out
  expected = f"{stage.output}/seed=0{checkpoint}" if checkpoint else None
  found = stage.json()
  assert found["best_run"]["checkpoint"] == found["runs"][0]["checkpoint"] == expected
  assert not checkpoint or saved.at_step(expected)[1] in saved.saved_steps(stage.output / "seed=0")


def test_an_unknown_metric_loses_no_run(stage):
  stage("--metric=matthews", status=1)
  assert stage.err == "error: no evaluation has a metric 'matthews'; --metric takes one of loss, f1\n"
  stage()
  assert stage.started == []


@pytest.mark.slow
def test_a_sweep_of_real_runs(tmp_path, monkeypatch, capsys):
  source = tasks.write(tmp_path / "files", "classification")
  fields = {"init_from": tasks.FIXTURES / "bert", "data.task": "custom", "data.source": source, "steps": 2}
  flags = [f"--config.{name}={value}" for name, value in (fields | {"batch_size": 6, "length": 24}).items()]
  grid = ("--grid", "optimizer.learning_rate=1e-3,2e-3")
  monkeypatch.setattr(
    "sys.argv", ["sweep", "--config=configs/base.py:task", f"--output={tmp_path / 'out'}", *grid, *flags]
  )
  cli.run(sweep.main)
  out = capsys.readouterr().out
  assert "best cell by mean accuracy on dev: learning_rate=" in out
  found = json.loads((tmp_path / "out" / "sweep.json").read_text())
  assert [run["step"] for run in found["runs"]] == [2, 2]
  assert os.path.exists(os.path.join(found["best_run"]["workdir"], "checkpoints", "2", "params"))
