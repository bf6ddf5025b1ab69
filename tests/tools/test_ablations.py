"""The six comparisons: which runs they take, in which order, what is not run again, and tables by hand."""

import contextlib
import json
import pathlib
import signal
import statistics
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from parts import pretraining
from tests.models import tiny
from tests.tools.test_sweep import STAND_IN
from tools import ablation_plan, ablation_table, ablations, cli, sweep, sweep_plan
from tools.ablation_plan import COMPARISONS, PRETRAINING, Arm
from tools.ablation_table import Results
from training import optimizer, run_flags, settings
from training.stages import Stage

SCALE = ablation_plan.scale(8, 4000)
SOURCES = {"conll2003": "CONLL", "stsb": "GLUE"}


def plan(tmp_path, names=tuple(COMPARISONS), seeds=(0, 1), sources=SOURCES):
  return ablation_plan.needs(names, seeds, 8, tmp_path, sources)


def finish(run, **metrics):
  """Writes what a finished run leaves."""
  run.workdir.mkdir(parents=True)
  steps = run.recipe["steps"] or 5
  (run.workdir / "config.json").write_text(json.dumps({"steps": steps}))
  records = [{"step": step, "split": "eval", "wall_s": 60.0, **metrics} for step in (0, steps)]
  (run.workdir / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
  sweep_plan.finish(run)


def test_an_arm_of_several_comparisons_is_run_once(tmp_path):
  found = plan(tmp_path)
  arms = {arm for comparison in COMPARISONS.values() for arm in comparison.arms}
  assert len(arms) == 12
  assert len(found) == 2 * len(arms)
  assert [need.pretraining.seed for need in found] == [0] * 12 + [1] * 12
  workdirs = [run.workdir for need in found for run in (need.pretraining, *need.after.values())]
  assert len(set(workdirs)) == len(workdirs)
  asked = {need.arm.row: set(need.after) for need in found if need.arm.family == "albert"}
  assert asked["all"] == {"conll2003", "stsb", "sop", "nsp"}
  assert asked["attention"] == {"conll2003", "stsb"}


def test_each_run_is_a_command_that_train_reads(tmp_path):
  for need in plan(tmp_path, seeds=(3,)):
    for run in (need.pretraining, *need.after.values()):
      _, config = run_flags.parsed(run.arguments)
      assert config.seed == 3
      assert config.init_from == ("" if run == need.pretraining else str(need.pretraining.workdir))
  _, config = run_flags.parsed(plan(tmp_path, ["ltr"])[1].pretraining.arguments)
  assert (config.objective.words, config.model.causal, config.steps) == ("ltr", True, 8)
  assert pretraining.stages_of(config) == [Stage(0, 0, 6, 32, 128), Stage(1, 6, 8, 64, 64)]


@pytest.mark.parametrize("question", ablation_plan.QUESTIONS)
def test_a_question_leaves_the_weights_as_they_were(question, tmp_path):
  """Bit for bit, by the optimizer of its own recipe, which decays weights, too."""
  run = plan(tmp_path, ["sop"])[2].after[question]
  _, config = run_flags.parsed(run.arguments)
  assert (config.steps, config.objective.pair, config.optimizer.weight_decay > 0) == (1, question, True)
  tx, _ = optimizer.make(settings.optimizer_config(config.optimizer, 1000), 1000)
  params = tiny.params(tiny.config(sharing="all", embedding_size=8))

  @jax.jit
  def steps(params):
    state, moved = tx.init(params), params
    for _ in range(3):  # in the first of them a warmup has no rate yet, whichever follows
      updates, state = tx.update(jax.tree.map(jnp.ones_like, params), state, moved)
      moved = optax.apply_updates(moved, updates)
    return moved

  jax.tree.map(np.testing.assert_array_equal, steps(params), params)


def test_a_task_without_files_is_left_out(tmp_path):
  assert all(set(need.after) == {"conll2003"} for need in plan(tmp_path, ["nsp"], sources={"conll2003": "CONLL"}))


def test_what_is_known_is_not_run_again_whether_its_workdir_is_there_or_not(tmp_path):
  need = plan(tmp_path, ["nsp"], seeds=(0,))[0]
  results = Results(tmp_path / "results.json", SCALE)
  assert results.missing_runs(need) == [need.pretraining, *need.after.values()]
  finish(need.pretraining, masked_loss=5.0)
  finish(need.after["conll2003"], f1=0.5)
  results.take_finished(need)
  assert not (tmp_path / "results.json").exists()
  results.write()
  assert results.missing_runs(need) == [need.after["stsb"]]

  again = Results(tmp_path / "results.json", SCALE)
  assert again.values == results.values
  moved = plan(tmp_path / "elsewhere", ["nsp"], seeds=(0,))[0]  # no workdir there: what is left needs the weights again
  assert again.missing_runs(moved) == [moved.pretraining, moved.after["stsb"]]
  finish(need.after["stsb"], pearson=0.2)
  again.take_finished(need)
  again.write()
  assert not Results(tmp_path / "results.json", SCALE).missing(moved)
  with pytest.raises(ValueError, match=r"is of --steps=8; use that, or another --output"):
    Results(tmp_path / "results.json", ablation_plan.scale(9, 4000))
  with pytest.raises(
    ValueError, match=r"is of another small scale, whose 'models' differ from today's; use another --output"
  ):
    Results(tmp_path / "results.json", SCALE | {"models": {}})


# ---------------------------------------------------------------- what is run


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
  """Runs the tool for NSP and names, with tests.tools.test_sweep's stand-in for train.py; returns (what it printed,
  what it said of it, the runs that it started)."""
  output, started, script = tmp_path / "out", tmp_path / "started", tmp_path / "stand_in.py"
  script.write_text(STAND_IN)
  (output / "corpora" / "bert").mkdir(parents=True)
  (output / "corpora" / "bert" / "corpus.json").touch()
  monkeypatch.setattr(sweep, "TRAIN", (sys.executable, "-S", str(script)))
  monkeypatch.setenv("OUTPUT", str(output))
  monkeypatch.setenv("STARTED", str(started))

  def run(*flags, play=(), ends=0):
    started.write_text("")
    monkeypatch.setenv("PLAY", json.dumps(dict(play)))
    monkeypatch.setattr("sys.argv", ["ablations", f"--output={output}", "--only=nsp", "--conll=CONLL", *flags])
    with pytest.raises(SystemExit) if ends else contextlib.nullcontext() as ended:
      ablations.main()
    assert not ends or ended.value.code == ends
    return *capsys.readouterr(), started.read_text().split()

  return run


def runs_of(seed: int, *whats: str) -> list[str]:
  return [f"bert-{row}/{what}/seed={seed}" for what in whats for row in ("base", "no_nsp")]


def test_a_seed_at_a_time_its_models_before_what_follows_them(call):
  scores = {run: score for seed, score in ((0, 0.5), (1, 0.75)) for run in runs_of(seed, "conll2003")}
  scores["bert-no_nsp/conll2003/seed=1"] = 0.5
  out, _, started = call("--seeds=2", play=scores)
  assert started == runs_of(0, PRETRAINING, "conll2003") + runs_of(1, PRETRAINING, "conll2003")
  assert "| base | 0 to 2 |  | 0.625 ± 0.177 |" in out
  assert "base over no_nsp on conll2003 f1 in 1 of 2 seeds" in out
  again, said, started = call("--seeds=2")
  assert (again, said, started) == (out, "", [])
  assert call("--seeds=3", "--dry_run")[1:] == ("2 of 6 pretrained models are not finished\n", [])
  assert call("--seeds=3")[2] == runs_of(2, PRETRAINING, "conll2003")


def test_one_command_at_a_time(call, tmp_path):
  with cli.claimed(tmp_path / "out"), pytest.raises(ValueError, match=r"another command is at work in .*out; wait for"):
    call("--seeds=1")
  assert call("--seeds=1")[2] == runs_of(0, PRETRAINING, "conll2003")


def test_nothing_follows_a_model_that_failed_and_the_others_go_on(call):
  failing = {"bert-base/pretraining/seed=0": "fail", "bert-no_nsp/conll2003/seed=1": "bug"}
  out, said, started = call("--seeds=2", play=failing, ends=1)
  after = runs_of(0, "conll2003")
  assert started == [*runs_of(0, PRETRAINING), after[1], *runs_of(1, PRETRAINING, "conll2003")]
  assert "bert-base/pretraining/seed=0  failed: error: the loss is nan at step 3  (all of it in " in said
  assert said.endswith("2 runs failed; the same command continues\n")
  assert "| no_nsp | 0 to 1 |" in out
  _, said, started = call("--seeds=2")
  assert started == ["bert-base/pretraining/seed=0", after[0], "bert-no_nsp/conll2003/seed=1"]
  assert "failed" not in said


def test_another_commands_workdir_stops_all_of_it(call, tmp_path):
  """Else the other seeds would be trained at another scale than what is there."""
  refuses = {"bert-base/pretraining/seed=0": "refuse"}
  with pytest.raises(ValueError, match=r"holds another run: steps is 8 there .*of all comparisons: another --output"):
    call("--seeds=2", play=refuses)
  assert (tmp_path / "started").read_text().split() == ["bert-base/pretraining/seed=0"]
  assert not (tmp_path / "out" / "results.json").exists()


def test_a_signal_makes_the_run_save_and_starts_no_other(call):
  for stops, before in (("pretraining", []), ("conll2003", [PRETRAINING])):
    run = f"bert-base/{stops}/seed=0"
    out, said, started = call("--seeds=2", play={run: "SIGTERM"}, ends=128 + signal.SIGTERM)
    assert started[-1] == run
    assert "stopping 1 run (as soon as saved)\n" in said
    assert said.endswith("stopped; the same command continues\n")
    assert out.startswith("**MLM + NSP against no NSP**")
    assert started[:-1] == [x for what in before for x in runs_of(0, what)]
  assert call("--seeds=1")[2] == runs_of(0, "conll2003")


# ---------------------------------------------------------------- of what text, and what comes of it


def test_a_corpus_of_other_text_is_not_taken_for_this_one(tmp_path, monkeypatch):
  commands = []
  ran = subprocess.CompletedProcess((), 0)
  monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command[2]) or ran)
  ablations.prepare("bert", tmp_path, 100, ["--input", "a.txt"])
  assert commands == ["tools.train_tokenizer", "tools.prepare_corpus"]
  (tmp_path / "bert").mkdir()
  (tmp_path / "bert" / "corpus.json").touch()
  ablations.prepare("bert", tmp_path, 100, ["--input", "a.txt"])
  ablations.prepare("bert", tmp_path, 100, [])
  assert len(commands) == 2
  for vocab_size, text in ((200, ["--input", "a.txt"]), (100, ["--input", "b.txt"])):
    with pytest.raises(ValueError, match=r"is made by --vocab_size=100 --input a.txt; use these, or another --output"):
      ablations.prepare("bert", tmp_path, vocab_size, text)


def test_text_that_came_to_nothing_may_be_mended(tmp_path, monkeypatch):
  made = []
  ran = lambda command, check: made.append(command[2:5]) or subprocess.CompletedProcess((), int("typo.txt" in command))
  monkeypatch.setattr(subprocess, "run", ran)
  with pytest.raises(ValueError, match=r"tools.train_tokenizer --input typo.txt .* has failed; mend what it names"):
    ablations.prepare("bert", tmp_path, 100, ["--input", "typo.txt"])
  ablations.prepare("bert", tmp_path, 100, ["--input", "a.txt"])
  assert made[-1] == ["tools.prepare_corpus", "--input", "a.txt"]
  assert json.loads((tmp_path / "bert.json").read_text())["text"] == ["--input", "a.txt"]


def test_sigterm_ends_the_tool_that_prepares_too(tmp_path, monkeypatch):
  real, ended = subprocess.Popen, []

  class Sleeping(real):
    def __init__(self, command, **_):
      super().__init__([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
      ended.append(self)

    def communicate(self, *args, **kwargs):
      signal.raise_signal(signal.SIGTERM)
      return super().communicate(*args, **kwargs)

  monkeypatch.setattr(subprocess, "Popen", Sleeping)
  with pytest.raises(KeyboardInterrupt):
    ablations.prepare("bert", tmp_path, 100, ["--input", "a.txt"])
  assert ended[0].poll() is not None


def test_the_table_by_hand(tmp_path):
  results = Results(tmp_path / "results.json", SCALE)
  scores = {"k6": (0.5, 0.6, 0.7), "no_memory": (0.4, 0.55, 0.75)}
  for row, values in scores.items():
    of = {str(seed): {"f1": value} for seed, value in enumerate(values)}
    losses = {str(seed): {"plm_loss": 4.0, "wall_s": 120.0} for seed in range(3)}
    results.values["arms"][Arm("xlnet", row).name] = {"conll2003": of, PRETRAINING: losses}
  lines = ablation_table.text(["memory"], results).splitlines()
  assert lines[0] == "**XLNet's memory, on and off**"
  assert "| k6 | 0 to 3 | 4.000 ± 0.000 | 0.600 ± 0.100 |  | 2.0 |" in lines
  differences = [-0.1, -0.05, 0.05]
  error = statistics.stdev(differences) / 3**0.5
  assert f"| no_memory - k6 |  | +0.000 ± 0.000 | {statistics.mean(differences):+.3f} ± {error:.3f} |  |  |" in lines
  assert "k6 over no_memory on conll2003 f1 in 2 of 3 seeds, p 0.53" in lines[-1]
  surely = {str(seed): {"f1": 0.9 + seed / 10} for seed in range(3)}
  results.values["arms"]["xlnet-k6"]["conll2003"] = {
    seed: {"f1": x["f1"] + float(seed) / 1000} for seed, x in surely.items()
  }
  results.values["arms"]["xlnet-no_memory"]["conll2003"] = {seed: {"f1": x["f1"] - 0.5} for seed, x in surely.items()}
  assert "k6 over no_memory on conll2003 f1 in 3 of 3 seeds, p < 0.01" in ablation_table.text(["memory"], results)
  assert "Here: nothing yet." in ablation_table.text(["plm"], Results(tmp_path / "none.json", SCALE))


@pytest.mark.parametrize(
  ("flags", "said"),
  [
    (["--only=nsp,nps"], "--only=nps is no comparison; use some of nsp, ltr, sharing, sop, plm, memory"),
    (["--seeds=0"], "--seeds=0 must be at least 1"),
    (["--only="], "--only names no comparison"),
    ([], "corpora/bert is not prepared; say what text it is made of"),
  ],
)
def test_mistakes(flags, said, monkeypatch, tmp_path):
  monkeypatch.setattr("sys.argv", ["ablations", f"--output={tmp_path}", *flags])
  with pytest.raises(ValueError, match=said):
    ablations.main()


def test_a_flag_that_no_tool_has(monkeypatch, tmp_path, capsys):
  monkeypatch.setattr("sys.argv", ["ablations", f"--output={tmp_path}", "--input=text", "--sedes=3", "--dry_run"])
  with pytest.raises(SystemExit):
    ablations.main()
  assert "--sedes=3" in capsys.readouterr().err


@pytest.mark.parametrize(
  "content",
  [
    "",
    "[]",
    "{}",
    '{"scale": {}, "arms": 1}',
    '{"scale": 8, "arms": {}}',
    '{"scale": {}, "arms": {"bert-base": []}}',
    '{"scale": {}, "arms": {"bert-base": {"stsb": {"0": 7}}}}',
    '{"scale": {}, "arms": {"bert-base": {"stsb": {"zero": {}}}}}',
  ],
)
def test_a_file_of_results_that_is_none(tmp_path, content):
  (tmp_path / "results.json").write_text(content)
  with pytest.raises(ValueError, match=r"results.json is no file of tools.ablations; delete it"):
    Results(tmp_path / "results.json", SCALE)


def test_the_documented_tables_are_those_of_the_documented_numbers():
  docs = pathlib.Path(ablations.__file__).parent.parent / "docs"
  numbers = json.loads((docs / "ablations" / ablations.RESULTS).read_text())
  scale = ablation_plan.scale(*(numbers["scale"][name] for name in ("steps", "vocab_size")))
  tables = ablation_table.text(list(COMPARISONS), Results(docs / "ablations" / ablations.RESULTS, scale))
  assert tables in (docs / "results.md").read_text()
